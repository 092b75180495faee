//! Disconnected, replaced and swapped servers: nothing is deleted, and afterwards everything is in sync.

mod backups;
mod credentials;
mod hours;
mod killed;
mod restarts;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use api::meta::is_being_deleted;
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::sleep;

use crate::server::{InProcessServer, TestLink};
use crate::setup::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_syncer_enforces_the_last_desired_state_after_a_restart() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut test = SyncerTest::new().await?;
    test.directory = Some(directory.path().to_owned());
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    test.place(CONFIG_MAPS, map("settings", "one")).await?;
    let running = test.start();
    let path = format!("{CONFIG_MAPS}/settings");
    test.downstream.until_exists(&path).await?;
    test.until_steady().await?;
    test.mailbox_link.cut(true);
    drop(running);
    // While no syncer runs, the mailbox changes and someone deletes a downstream object.
    test.mailbox.merge(&path, json!({ "data": { "key": "two" } })).await?;
    test.downstream.delete(&path).await?;
    let _running = test.start();
    test.downstream.until(&path, |found| found["data"]["key"] == "one").await?;
    test.downstream.merge(&path, json!({ "data": { "key": "wrong" } })).await?;
    test.downstream.until(&path, |found| found["data"]["key"] == "one").await?;
    test.mailbox_link.cut(false);
    test.downstream.until(&path, |found| found["data"]["key"] == "two").await?;
    test.until_steady().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_to_another_cluster_behind_a_kubeconfig() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    test.place(CONFIG_MAPS, map("settings", "one")).await?;
    let running = test.start();
    test.downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
    until("ClusterIdentity is True", async || {
        Ok(test.condition("ClusterIdentity").await?["status"] == "True")
    })
    .await?;
    running.stop().await;

    let (other, other_link) = (InProcessServer::start().await?, TestLink::new());
    let (mailbox, downstream): (Client, Client) = (test.mailbox_server.client(), other.through(&other_link));
    let running = RunningSyncer::start(mailbox, downstream, None);
    until("ClusterIdentity is False", async || {
        Ok(test.condition("ClusterIdentity").await?["status"] == "False")
    })
    .await?;
    test.mailbox.delete(&format!("{CONFIG_MAPS}/settings")).await?;
    sleep(STEADY).await;
    assert_eq!(other_link.written(), Vec::<String>::new());
    let pending_object = test.mailbox.get(&format!("{CONFIG_MAPS}/settings")).await?.unwrap_or_default();
    assert!(is_being_deleted(&pending_object), "the deletion is still pending: {pending_object:#}");
    running.stop().await;
    // When the syncer reaches the right cluster again, the deletion is made.
    let _running = test.start();
    test.downstream.until_deleted(&format!("{CONFIG_MAPS}/settings")).await?;
    test.mailbox.until_deleted(&format!("{CONFIG_MAPS}/settings")).await
}

/// An address suddenly leads to another cluster, for example because a load balancer was reconfigured. The identity of
/// the cluster was checked only every ten seconds. Until then the objects of the mailbox were created in the wrong
/// cluster, and objects to delete were not found there and counted as deleted.
#[tokio::test(start_paused = true)]
async fn an_address_that_leads_to_another_cluster_loses_nothing() -> Result<()> {
    for (watches, seconds_after_check) in [("break", 1), ("stay", 1), ("break", 9)] {
        println!("{watches}, {seconds_after_check} s after the last identity check");
        let (test, other) = (SyncerTest::new().await?, InProcessServer::start().await?);
        test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
        test.place(CONFIG_MAPS, map("settings", "one")).await?;
        let (other_link, is_switched) = (TestLink::new(), Arc::new(AtomicBool::new(false)));
        let downstream = switchable_client(
            test.downstream_server.through(&test.downstream_link),
            other.through(&other_link),
            &is_switched,
        );
        let _running = RunningSyncer::start(test.mailbox_server.client(), downstream, None);
        test.downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
        until("ClusterIdentity is True", async || {
            Ok(test.condition("ClusterIdentity").await?["status"] == "True")
        })
        .await?;
        sleep(Duration::from_secs(60 + seconds_after_check)).await;

        // It has a longer history than the first cluster, and has compacted it.
        let client = TestClient(controller::remote::Remote::new(other.client()));
        client.create(NAMESPACES, namespace("shop")).await?;
        for number in 0..200 {
            client.create(CONFIG_MAPS, map(&format!("theirs-{number}"), "one")).await?;
        }
        other.forget_history().await?;
        is_switched.store(true, Ordering::Relaxed);
        if watches == "break" {
            test.downstream_link.cut(true);
        }
        test.place(CONFIG_MAPS, map("new", "one")).await?;
        test.mailbox.delete(&format!("{CONFIG_MAPS}/settings")).await?;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(other_link.written(), Vec::<String>::new());
        assert_eq!(test.condition("ClusterIdentity").await?["reason"], "OtherCluster");
        let pending_object = test.mailbox.get(&format!("{CONFIG_MAPS}/settings")).await?.unwrap_or_default();
        assert!(is_being_deleted(&pending_object), "the deletion is still pending: {pending_object:#}");

        // The address leads to the first cluster again.
        test.downstream_link.clear_faults();
        is_switched.store(false, Ordering::Relaxed);
        other_link.cut(true);
        test.downstream.until_deleted(&format!("{CONFIG_MAPS}/settings")).await?;
        test.mailbox.until_deleted(&format!("{CONFIG_MAPS}/settings")).await?;
        test.downstream.until_exists(&format!("{CONFIG_MAPS}/new")).await?;
    }
    Ok(())
}

/// Returns a client of one of two servers, which the flag switches.
fn switchable_client(one: Client, other: Client, is_other: &Arc<AtomicBool>) -> Client {
    let is_other = is_other.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = if is_other.load(Ordering::Relaxed) { other.clone() } else { one.clone() };
        async move { client.send(request).await.map_err(io::Error::other) }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_syncers_one_writes() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    let first = test.start();
    test.downstream.until_exists(&format!("{NAMESPACES}/shop")).await?;
    let other_link = TestLink::new();
    let second =
        RunningSyncer::start(test.mailbox_server.client(), test.downstream_server.through(&other_link), None);
    sleep(STEADY).await;
    test.place(CONFIG_MAPS, map("settings", "one")).await?;
    test.downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
    sleep(STEADY).await;
    assert_eq!(other_link.written(), Vec::<String>::new());
    // The first syncer stops gracefully, so the second does not have to wait.
    first.stop().await;
    test.mailbox.merge(&format!("{CONFIG_MAPS}/settings"), json!({ "data": { "key": "two" } })).await?;
    test.downstream.until(&format!("{CONFIG_MAPS}/settings"), |found| found["data"]["key"] == "two").await?;
    assert_eq!(other_link.written().len(), 1);
    drop(second);
    Ok(())
}

/// Of two syncers, the leader is disconnected from Holon only. It continued with its old state while the other one led
/// with the current state: each undid the writes of the other, and deleted objects came back, without a tombstone to
/// delete them.
#[tokio::test(start_paused = true)]
async fn a_disconnected_syncer_stops_when_another_leads() -> Result<()> {
    const LATER: Duration = Duration::from_secs(60);
    let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
    let [first, second] = directories.each_ref().map(|directory| Some(directory.path().to_owned()));
    let mut test = SyncerTest::new().await?;
    test.directory = first;
    for name in ["shop", "closed"] {
        test.mailbox.create(NAMESPACES, placed(namespace(name))).await?;
    }
    for name in ["changed", "deleted", "kept"] {
        test.place(CONFIG_MAPS, map(name, "one")).await?;
    }
    let running = test.start();
    let path = |name: &str| format!("{CONFIG_MAPS}/{name}");
    test.downstream.until_exists(&path("kept")).await?;
    let other_link = TestLink::new();
    let other = RunningSyncer::start(
        test.mailbox_server.client(),
        test.downstream_server.through(&other_link),
        second.clone(),
    );
    sleep(LATER).await;
    assert_eq!(other_link.written(), Vec::<String>::new());
    test.mailbox_link.cut(true);
    test.downstream.merge(&path("kept"), json!({ "data": { "key": "meddled" } })).await?;
    test.downstream.until(&path("kept"), |found| found["data"]["key"] == "one").await?;
    // This object is deleted before the other syncer leads; some others are deleted after that.
    test.mailbox.delete(&format!("{NAMESPACES}/closed")).await?;
    test.downstream_link.written();
    sleep(LATER).await;
    test.downstream.until_deleted(&format!("{NAMESPACES}/closed")).await?;
    test.mailbox.delete(&path("deleted")).await?;
    test.mailbox.merge(&path("changed"), json!({ "data": { "key": "two" } })).await?;
    test.downstream.until_deleted(&path("deleted")).await?;
    sleep(LATER).await;
    let check_state_of_other_leader = async |test: &SyncerTest| -> Result<()> {
        assert_eq!(test.downstream_link.written(), Vec::<String>::new());
        assert_eq!(test.downstream.get(&path("deleted")).await?, None);
        assert_eq!(test.downstream.get(&format!("{NAMESPACES}/closed")).await?, None);
        test.downstream.until(&path("changed"), |found| found["data"]["key"] == "two").await?;
        Ok(())
    };
    check_state_of_other_leader(&test).await?;
    // The disconnected syncer does not lead after a restart either.
    drop(running);
    let running = test.start();
    sleep(LATER).await;
    check_state_of_other_leader(&test).await?;
    // Reconnected, and after the other syncer has ended, it leads with the current state.
    test.mailbox_link.clear_faults();
    drop(other);
    sleep(LATER).await;
    test.mailbox.merge(&path("changed"), json!({ "data": { "key": "three" } })).await?;
    test.downstream.until(&path("changed"), |found| found["data"]["key"] == "three").await?;
    test.until_steady().await?;
    running.stop().await;
    // A syncer that takes over from another writes its identity into the namespaces; one that continues writes nothing.
    let others = [(second.clone(), 2), (second, 0)];
    for (directory, expected) in others {
        other_link.written();
        let other = RunningSyncer::start(
            test.mailbox_server.client(),
            test.downstream_server.through(&other_link),
            directory,
        );
        sleep(LATER).await;
        let written = other_link.written();
        assert!(written.len() <= expected, "{written:?}");
        other.stop().await;
    }
    Ok(())
}

/// The physical cluster is unreachable for a while, in which objects are created, changed and deleted.
#[tokio::test(flavor = "multi_thread")]
async fn changes_missed_by_an_unreachable_cluster_are_applied_when_it_is_back() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["changed", "deleted", "kept"] {
        test.place(CONFIG_MAPS, map(name, "one")).await?;
    }
    let _running = test.start();
    for name in ["changed", "deleted", "kept"] {
        test.downstream.until_exists(&format!("{CONFIG_MAPS}/{name}")).await?;
    }
    test.downstream_link.cut(true);
    test.place(CONFIG_MAPS, map("new", "one")).await?;
    test.mailbox.merge(&format!("{CONFIG_MAPS}/changed"), json!({ "data": { "key": "two" } })).await?;
    test.mailbox.delete(&format!("{CONFIG_MAPS}/deleted")).await?;
    sleep(Duration::from_secs(2)).await;
    test.downstream_link.written();
    test.downstream_link.cut(false);
    test.downstream.until_exists(&format!("{CONFIG_MAPS}/new")).await?;
    test.downstream.until(&format!("{CONFIG_MAPS}/changed"), |found| found["data"]["key"] == "two").await?;
    test.downstream.until_deleted(&format!("{CONFIG_MAPS}/deleted")).await?;
    test.mailbox.until_deleted(&format!("{CONFIG_MAPS}/deleted")).await?;
    let deletes: Vec<_> =
        test.downstream_link.written().into_iter().filter(|call| call.starts_with("DELETE")).collect();
    assert_eq!(deletes, [format!("DELETE {CONFIG_MAPS}/deleted")]);
    Ok(())
}

/// Whatever a failing server answers, the syncer must not conclude anything from it.
#[tokio::test(flavor = "multi_thread")]
async fn error_and_garbage_responses_cause_no_deletion() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    test.place(CONFIG_MAPS, map("settings", "one")).await?;
    let _running = test.start();
    test.downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
    test.until_steady().await?;
    let responses = [
        (500, "{}"),
        (429, "{}"),
        (401, ""),
        (403, "{\"kind\":\"Status\",\"code\":403}"),
        (404, "{\"kind\":\"Status\",\"code\":404}"),
        (200, "<html>"),
        (200, "{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}"),
    ];
    for (round, response) in responses.into_iter().enumerate() {
        for link in [&test.mailbox_link, &test.downstream_link] {
            link.respond_with(Some(response));
            sleep(Duration::from_secs(1)).await;
            link.respond_with(None);
            let value = format!("{round} of {response:?}");
            test.mailbox
                .merge(&format!("{CONFIG_MAPS}/settings"), json!({ "data": { "key": value } }))
                .await?;
            test.downstream
                .until(&format!("{CONFIG_MAPS}/settings"), |found| found["data"]["key"] == value)
                .await?;
        }
    }
    let deletes = |call: &String| call.starts_with("DELETE");
    assert!(!test.downstream_link.written().iter().any(deletes));
    Ok(())
}

/// The mailbox is restored from an older backup: some objects are missing, others have uids that the downstream objects
/// do not name.
#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_restored_from_an_older_backup_deletes_nothing() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["old", "newer"] {
        test.place(CONFIG_MAPS, map(name, "new")).await?;
    }
    let running = test.start();
    for name in ["old", "newer"] {
        test.downstream.until_exists(&format!("{CONFIG_MAPS}/{name}")).await?;
    }
    running.stop().await;

    let (restored, other_link) = (InProcessServer::start().await?, TestLink::new());
    let mailbox = TestClient(controller::remote::Remote::new(restored.client()));
    mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    mailbox.create(CONFIG_MAPS, placed(map("old", "old"))).await?;
    let _running = RunningSyncer::start(restored.client(), test.downstream_server.through(&other_link), None);
    test.downstream.until(&format!("{CONFIG_MAPS}/old"), |found| found["data"]["key"] == "old").await?;
    until("Synced reports the missing tombstone", async || {
        let report = mailbox.get("/apis/holon.dev/v1alpha1/physicalclusters/east").await?.unwrap_or_default();
        Ok(report["status"]["conditions"].to_string().contains("shop/newer: NoTombstone"))
    })
    .await?;
    assert!(test.downstream.get(&format!("{CONFIG_MAPS}/newer")).await?.is_some());
    assert!(!other_link.written().iter().any(|call| call.starts_with("DELETE")));
    // Deletions in the restored mailbox work.
    mailbox.delete(&format!("{CONFIG_MAPS}/old")).await?;
    test.downstream.until_deleted(&format!("{CONFIG_MAPS}/old")).await?;
    mailbox.until_deleted(&format!("{CONFIG_MAPS}/old")).await
}
