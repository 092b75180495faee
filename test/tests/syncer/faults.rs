//! Disconnected, replaced and swapped servers: nothing is deleted, and afterwards everything is in sync.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::sleep;

use crate::server::{Link, Server};
use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_syncer_enforces_the_last_desired_state_after_a_restart() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut world = World::new().await?;
    world.directory = Some(directory.path().to_owned());
    world.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    world.place(MAPS, map("settings", "one")).await?;
    let running = world.start();
    let path = format!("{MAPS}/settings");
    world.below.until_there(&path).await?;
    world.rests().await?;
    world.mailbox_link.cut(true);
    drop(running);
    // While no syncer runs, the mailbox changes and someone deletes a downstream object.
    world.mailbox.merge(&path, json!({ "data": { "key": "two" } })).await?;
    world.below.delete(&path).await?;
    let _running = world.start();
    world.below.until(&path, |found| found["data"]["key"] == "one").await?;
    world.below.merge(&path, json!({ "data": { "key": "wrong" } })).await?;
    world.below.until(&path, |found| found["data"]["key"] == "one").await?;
    world.mailbox_link.cut(false);
    world.below.until(&path, |found| found["data"]["key"] == "two").await?;
    world.rests().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_leads_to_another_cluster_writes_nothing_there() -> Result<()> {
    let world = World::new().await?;
    world.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    world.place(MAPS, map("settings", "one")).await?;
    let running = world.start();
    world.below.until_there(&format!("{MAPS}/settings")).await?;
    until("it is reported", async || Ok(world.condition("ClusterIdentity").await?["status"] == "True"))
        .await?;
    running.stop().await;

    let (other, link) = (Server::start().await?, Link::new());
    let (mailbox, below): (Client, Client) = (world.mailbox_server.client(), other.through(&link));
    let running = Running::start(mailbox, below, None);
    until("it is said", async || Ok(world.condition("ClusterIdentity").await?["status"] == "False")).await?;
    world.mailbox.delete(&format!("{MAPS}/settings")).await?;
    sleep(STEADY).await;
    assert_eq!(link.written(), Vec::<String>::new());
    let waiting = world.mailbox.get(&format!("{MAPS}/settings")).await?.unwrap_or_default();
    assert!(
        !waiting["metadata"]["deletionTimestamp"].is_null(),
        "what is owed is not forgotten: {waiting:#}"
    );
    running.stop().await;
    // When the syncer reaches the right cluster again, the deletion is made.
    let _running = world.start();
    world.below.until_gone(&format!("{MAPS}/settings")).await?;
    world.mailbox.until_gone(&format!("{MAPS}/settings")).await
}

/// An address suddenly leads to another cluster, for example because a load balancer was reconfigured. The identity of
/// the cluster was checked only every ten seconds. Until then the objects of the mailbox were created in the wrong
/// cluster, and objects to delete were not found there and counted as deleted.
#[tokio::test(start_paused = true)]
async fn an_address_behind_which_there_is_another_cluster_loses_nothing() -> Result<()> {
    for (watches, begun_after) in [("break", 1), ("stay", 1), ("break", 9)] {
        println!("{watches}, {begun_after} s after the last look");
        let (world, other) = (World::new().await?, Server::start().await?);
        world.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
        world.place(MAPS, map("settings", "one")).await?;
        let (link, elsewhere) = (Link::new(), Arc::new(AtomicBool::new(false)));
        let below = either(world.below_server.through(&world.below_link), other.through(&link), &elsewhere);
        let _running = Running::start(world.mailbox_server.client(), below, None);
        world.below.until_there(&format!("{MAPS}/settings")).await?;
        until("it is reported", async || Ok(world.condition("ClusterIdentity").await?["status"] == "True"))
            .await?;
        sleep(Duration::from_secs(60 + begun_after)).await;

        // It has a longer history than the first cluster, and has compacted it.
        let eyes = Eyes(controller::remote::Remote::new(other.client()));
        eyes.make(NAMESPACES, namespace("shop")).await?;
        for number in 0..200 {
            eyes.make(MAPS, map(&format!("theirs-{number}"), "one")).await?;
        }
        other.forget_history().await?;
        elsewhere.store(true, Ordering::Relaxed);
        if watches == "break" {
            world.below_link.cut(true);
        }
        world.place(MAPS, map("new", "one")).await?;
        world.mailbox.delete(&format!("{MAPS}/settings")).await?;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(link.written(), Vec::<String>::new());
        assert_eq!(world.condition("ClusterIdentity").await?["reason"], "OtherCluster");
        let waiting = world.mailbox.get(&format!("{MAPS}/settings")).await?.unwrap_or_default();
        assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "it is still owed: {waiting:#}");

        // The address leads to the first cluster again.
        world.below_link.mend();
        elsewhere.store(false, Ordering::Relaxed);
        link.cut(true);
        world.below.until_gone(&format!("{MAPS}/settings")).await?;
        world.mailbox.until_gone(&format!("{MAPS}/settings")).await?;
        world.below.until_there(&format!("{MAPS}/new")).await?;
    }
    Ok(())
}

/// Returns a client of one of two servers, which the flag switches.
fn either(one: Client, other: Client, is_other: &Arc<AtomicBool>) -> Client {
    let is_other = is_other.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = if is_other.load(Ordering::Relaxed) { other.clone() } else { one.clone() };
        async move { client.send(request).await.map_err(io::Error::other) }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_syncers_one_writes() -> Result<()> {
    let world = World::new().await?;
    world.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    let first = world.start();
    world.below.until_there(&format!("{NAMESPACES}/shop")).await?;
    let link = Link::new();
    let second = Running::start(world.mailbox_server.client(), world.below_server.through(&link), None);
    sleep(STEADY).await;
    world.place(MAPS, map("settings", "one")).await?;
    world.below.until_there(&format!("{MAPS}/settings")).await?;
    sleep(STEADY).await;
    assert_eq!(link.written(), Vec::<String>::new());
    // The first syncer stops gracefully, so the second does not have to wait.
    first.stop().await;
    world.mailbox.merge(&format!("{MAPS}/settings"), json!({ "data": { "key": "two" } })).await?;
    world.below.until(&format!("{MAPS}/settings"), |found| found["data"]["key"] == "two").await?;
    assert_eq!(link.written().len(), 1);
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
    let mut world = World::new().await?;
    world.directory = first;
    for name in ["shop", "closed"] {
        world.mailbox.make(NAMESPACES, placed(namespace(name))).await?;
    }
    for name in ["changed", "deleted", "kept"] {
        world.place(MAPS, map(name, "one")).await?;
    }
    let running = world.start();
    let path = |name: &str| format!("{MAPS}/{name}");
    world.below.until_there(&path("kept")).await?;
    let link = Link::new();
    let other =
        Running::start(world.mailbox_server.client(), world.below_server.through(&link), second.clone());
    sleep(LATER).await;
    assert_eq!(link.written(), Vec::<String>::new());
    world.mailbox_link.cut(true);
    world.below.merge(&path("kept"), json!({ "data": { "key": "meddled" } })).await?;
    world.below.until(&path("kept"), |found| found["data"]["key"] == "one").await?;
    // This object is deleted before the other syncer leads; some others are deleted after that.
    world.mailbox.delete(&format!("{NAMESPACES}/closed")).await?;
    world.below_link.written();
    sleep(LATER).await;
    world.below.until_gone(&format!("{NAMESPACES}/closed")).await?;
    world.mailbox.delete(&path("deleted")).await?;
    world.mailbox.merge(&path("changed"), json!({ "data": { "key": "two" } })).await?;
    world.below.until_gone(&path("deleted")).await?;
    sleep(LATER).await;
    let so = async |world: &World| -> Result<()> {
        assert_eq!(world.below_link.written(), Vec::<String>::new());
        assert_eq!(world.below.get(&path("deleted")).await?, None);
        assert_eq!(world.below.get(&format!("{NAMESPACES}/closed")).await?, None);
        world.below.until(&path("changed"), |found| found["data"]["key"] == "two").await?;
        Ok(())
    };
    so(&world).await?;
    // It does not lead after a restart either.
    drop(running);
    let running = world.start();
    sleep(LATER).await;
    so(&world).await?;
    // Reconnected, and after the other syncer has ended, it leads with the current state.
    world.mailbox_link.mend();
    drop(other);
    sleep(LATER).await;
    world.mailbox.merge(&path("changed"), json!({ "data": { "key": "three" } })).await?;
    world.below.until(&path("changed"), |found| found["data"]["key"] == "three").await?;
    world.rests().await?;
    running.stop().await;
    // A syncer that takes over from another writes its identity into the namespaces; one that continues writes nothing.
    let others = [(second.clone(), 2), (second, 0)];
    for (directory, expected) in others {
        link.written();
        let other =
            Running::start(world.mailbox_server.client(), world.below_server.through(&link), directory);
        sleep(LATER).await;
        let written = link.written();
        assert!(written.len() <= expected, "{written:?}");
        other.stop().await;
    }
    Ok(())
}

/// The physical cluster is unreachable for a while, in which objects are created, changed and deleted.
#[tokio::test(flavor = "multi_thread")]
async fn changes_missed_by_an_unreachable_cluster_are_applied_when_it_is_back() -> Result<()> {
    let world = World::new().await?;
    world.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["changed", "deleted", "kept"] {
        world.place(MAPS, map(name, "one")).await?;
    }
    let _running = world.start();
    for name in ["changed", "deleted", "kept"] {
        world.below.until_there(&format!("{MAPS}/{name}")).await?;
    }
    world.below_link.cut(true);
    world.place(MAPS, map("new", "one")).await?;
    world.mailbox.merge(&format!("{MAPS}/changed"), json!({ "data": { "key": "two" } })).await?;
    world.mailbox.delete(&format!("{MAPS}/deleted")).await?;
    sleep(Duration::from_secs(2)).await;
    world.below_link.written();
    world.below_link.cut(false);
    world.below.until_there(&format!("{MAPS}/new")).await?;
    world.below.until(&format!("{MAPS}/changed"), |found| found["data"]["key"] == "two").await?;
    world.below.until_gone(&format!("{MAPS}/deleted")).await?;
    world.mailbox.until_gone(&format!("{MAPS}/deleted")).await?;
    let deletes: Vec<_> =
        world.below_link.written().into_iter().filter(|call| call.starts_with("DELETE")).collect();
    assert_eq!(deletes, [format!("DELETE {MAPS}/deleted")]);
    Ok(())
}

/// Whatever a failing server answers, the syncer must not conclude anything from it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_refuses_or_talks_nonsense_makes_nothing_happen() -> Result<()> {
    let world = World::new().await?;
    world.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    world.place(MAPS, map("settings", "one")).await?;
    let _running = world.start();
    world.below.until_there(&format!("{MAPS}/settings")).await?;
    world.rests().await?;
    let answers = [
        (500, "{}"),
        (429, "{}"),
        (401, ""),
        (403, "{\"kind\":\"Status\",\"code\":403}"),
        (404, "{\"kind\":\"Status\",\"code\":404}"),
        (200, "<html>"),
        (200, "{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}"),
    ];
    for (turn, answer) in answers.into_iter().enumerate() {
        for link in [&world.mailbox_link, &world.below_link] {
            link.answer(Some(answer));
            sleep(Duration::from_secs(1)).await;
            link.answer(None);
            let value = format!("{turn} of {answer:?}");
            world.mailbox.merge(&format!("{MAPS}/settings"), json!({ "data": { "key": value } })).await?;
            world.below.until(&format!("{MAPS}/settings"), |found| found["data"]["key"] == value).await?;
        }
    }
    let deletes = |call: &String| call.starts_with("DELETE");
    assert!(!world.below_link.written().iter().any(deletes));
    Ok(())
}

/// The mailbox is restored from an older backup: some objects are missing, others have uids that the downstream objects
/// do not name.
#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_restored_from_an_older_backup_deletes_nothing() -> Result<()> {
    let world = World::new().await?;
    world.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["old", "newer"] {
        world.place(MAPS, map(name, "new")).await?;
    }
    let running = world.start();
    for name in ["old", "newer"] {
        world.below.until_there(&format!("{MAPS}/{name}")).await?;
    }
    running.stop().await;

    let (restored, link) = (Server::start().await?, Link::new());
    let mailbox = Eyes(controller::remote::Remote::new(restored.client()));
    mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    mailbox.make(MAPS, placed(map("old", "old"))).await?;
    let _running = Running::start(restored.client(), world.below_server.through(&link), None);
    world.below.until(&format!("{MAPS}/old"), |found| found["data"]["key"] == "old").await?;
    until("it is said what is held", async || {
        let report = mailbox.get("/apis/holon.dev/v1alpha1/physicalclusters/east").await?.unwrap_or_default();
        Ok(report["status"]["conditions"].to_string().contains("shop/newer: NoTombstone"))
    })
    .await?;
    assert!(world.below.get(&format!("{MAPS}/newer")).await?.is_some());
    assert!(!link.written().iter().any(|call| call.starts_with("DELETE")));
    // Deletions in the restored mailbox work.
    mailbox.delete(&format!("{MAPS}/old")).await?;
    world.below.until_gone(&format!("{MAPS}/old")).await?;
    mailbox.until_gone(&format!("{MAPS}/old")).await
}
