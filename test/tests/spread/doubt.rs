//! With incomplete or invalid input, running workloads do not change. Each of these cases was a bug in some project.

use std::time::Duration;

use anyhow::Result;
use api::meta::is_being_deleted;
use scenarios::client::{condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use scenarios::history::{History, check};
use serde_json::{Value, json};

use crate::app::*;
use crate::replicas::stays_within_total;

/// Returns a fleet in which `web` has four replicas, two on each of two clusters.
async fn two_and_two() -> Result<Fleet> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 4)).await?;
    // The splitter may have learned of the second cluster only after the first had all replicas.
    until("each has two", async || Ok(shares(&fleet).await? == [Some(2), Some(2)])).await?;
    fleet.root.until_available(WEB, 4).await?;
    fleet.root.until(WEB_RECORD, |record| targets(record) == ["a Steady 2", "b Steady 2"]).await?;
    Ok(fleet)
}

/// Waits until the verdict on a physical cluster excludes it.
async fn until_excluded(fleet: &Fleet, name: &str) -> Result<()> {
    let is_expected = |record: &Value| {
        let verdicts = record["status"]["verdicts"].as_array().into_iter().flatten();
        verdicts.into_iter().any(|verdict| verdict["cluster"] == name && verdict["rule"].is_string())
    };
    fleet.root.until(WEB_RECORD, is_expected).await.map(drop)
}

/// karmada 1640 and 6951: a cordoned cluster lost its replicas at the next scale, or got more of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_cluster_keeps_its_share_exactly() -> Result<()> {
    let fleet = two_and_two().await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.change("b", json!({ "spec": { "schedulable": false } })).await?;
    until_excluded(&fleet, "b").await?;
    for (total, expected) in [(9, [Some(7), Some(2)]), (3, [Some(1), Some(2)])] {
        fleet.root.merge(WEB, json!({ "spec": { "replicas": total } })).await?;
        fleet.root.until_available(WEB, total).await?;
        assert_eq!(shares(&fleet).await?, expected, "of {total}");
    }
    fleet.change("b", json!({ "spec": { "schedulable": true } })).await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 8 } })).await?;
    until("each has its half again", async || Ok(shares(&fleet).await? == [Some(4), Some(4)])).await?;
    let web = fleet.root.until_available(WEB, 8).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web"), stays_within_total);
    Ok(())
}

/// The same with a taint: running replicas stay, new ones go elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_taint_keeps_out_new_replicas_and_moves_none() -> Result<()> {
    let fleet = two_and_two().await?;
    let taint = json!({ "spec": { "taints": [{ "key": "upgrade", "effect": "NoSchedule" }] } });
    fleet.change("b", taint).await?;
    until_excluded(&fleet, "b").await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 10 } })).await?;
    fleet.root.until_available(WEB, 10).await?;
    assert_eq!(shares(&fleet).await?, [Some(8), Some(2)]);
    fleet.root.create(DEPLOYMENTS, deployment("api", 3)).await?;
    fleet.root.until_available(&format!("{DEPLOYMENTS}/api"), 3).await?;
    assert_eq!(fleet.member("b").mailbox.get(&downstream_path(&format!("{DEPLOYMENTS}/api"))).await?, None);
    Ok(())
}

/// kcp 2041 and 2671, karmada 6098, 5406 and 7455: a placement decision without a result, because a selector matched
/// nothing, a label was lost or a cache was empty, deleted running workloads.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_or_empty_selection_moves_no_workload() -> Result<()> {
    let fleet = two_and_two().await?;
    let history = History::of_deployments(&fleet).await?;
    for (placement, reason) in [("nowhere", "nowhere"), ("zone in (", ""), ("region=mars", "mars")] {
        fleet.root.place(SHOP, placement).await?;
        let record = fleet
            .root
            .until(WEB_RECORD, |record| {
                let placed = condition(record, "Placed");
                placed["reason"] == "Held"
                    && placed["message"].as_str().is_some_and(|message| message.contains(reason))
            })
            .await?;
        assert_eq!(targets(&record), ["a Steady 2", "b Steady 2"]);
        let message = condition(&record, "Placed")["message"].clone();
        scenarios::client::until("an Event reports the reason", async || {
            let events = fleet.root.list(&format!("{SHOP}/events")).await?;
            Ok(events.iter().any(|event| event["reason"] == "Held" && event["message"] == message))
        })
        .await?;
    }
    // The label by which the cluster was selected is lost too.
    fleet.change("a", json!({ "metadata": { "labels": null } })).await?;
    fleet.change("b", json!({ "spec": { "schedulable": false } })).await?;
    // The workload can still be updated on its current targets.
    fleet
        .root
        .merge(
            WEB,
            json!({ "spec": { "template": { "metadata": { "annotations": { "touched": "yes" } } } } }),
        )
        .await?;
    let web = fleet.root.until_available(WEB, 4).await?;
    history.until_observed(&web).await?;
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.mailbox_objects.len() == 2);
    check(&moments, |_, now| !now.mailbox_objects.values().any(is_being_deleted));
    Ok(())
}

/// A new workload with an invalid placement once had no verdicts on any physical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_placement_still_has_verdicts_on_every_cluster() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.change("b", json!({ "spec": { "schedulable": false } })).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "zone in (")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 4)).await?;
    let has_all_verdicts = |record: &Value| {
        let verdicts = record["status"]["verdicts"].as_array().map_or(&[][..], Vec::as_slice);
        let names: Vec<&str> = verdicts.iter().filter_map(|one| one["cluster"].as_str()).collect();
        names == ["a", "b"] && verdicts[1]["rule"].is_string()
    };
    let record = fleet.root.until(WEB_RECORD, has_all_verdicts).await?;
    assert_eq!(condition(&record, "Placed")["reason"], "Pending", "{record:#}");
    assert!(targets(&record).is_empty());
    for verdict in record["status"]["verdicts"].as_array().into_iter().flatten() {
        assert_ne!(verdict["verdict"], "Chosen", "{verdict:#}");
    }
    assert_eq!(shares(&fleet).await?, [None, None]);
    fleet.root.place(SHOP, "a").await?;
    fleet.root.until_available(WEB, 4).await.map(drop)
}

/// A missing report is not a report of zero: the user's numbers stay, and a condition says that they are old.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_keeps_the_numbers_of_a_silent_cluster() -> Result<()> {
    let mut fleet = two_and_two().await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.kill_syncer("b");
    fleet.stop_fleet_controller();
    let expired_heartbeat = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "HeartbeatExpired", "message": "the syncer has not renewed its lease for 40 s",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    fleet.root.merge(&format!("{PHYSICAL_CLUSTERS}/b/status"), expired_heartbeat).await?;
    let web = fleet.root.until(WEB, |web| condition(web, "StatusStale")["status"] == "True").await?;
    assert!(
        condition(&web, "StatusStale")["message"].as_str().is_some_and(|message| message.contains('b')),
        "{web:#}"
    );
    assert_eq!(web["status"]["availableReplicas"], 4);
    // New replicas go to the cluster that reports; the silent one keeps its replicas.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 6 } })).await?;
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 6).await?;
    assert_eq!(shares(&fleet).await?, [Some(4), Some(2)]);
    history.until_observed(&web).await?;
    let reported = |now: &scenarios::history::Moment| {
        now.user_object["status"]["availableReplicas"].as_u64().unwrap_or(0)
    };
    check(&history.moments("shop", "web"), |before, now| reported(now) >= reported(before));
    Ok(())
}

/// A restarted splitter has empty caches. Objects that it has not read yet are not missing, and correct objects are not
/// written again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_splitter_writes_nothing() -> Result<()> {
    let mut fleet = two_and_two().await?;
    fleet.root.until(WEB_RECORD, |record| record["status"]["counts"]["available"] == 2).await?;
    // The revision comes from the ReplicaSets, which are projected later.
    let has_revision =
        |web: &Value| web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1";
    fleet.root.until(WEB, has_revision).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.start_splitter();
    // An event that the splitter receives after all others.
    fleet.root.create(DEPLOYMENTS, deployment("later", 1)).await?;
    let later = fleet.root.until_available(&format!("{DEPLOYMENTS}/later"), 1).await?;
    history.until_observed(&later).await?;
    let moments = history.moments("shop", "web");
    assert_eq!(moments.len(), 1, "the new splitter wrote: {moments:#?}");
    Ok(())
}

/// An object that was deleted while the splitter was down is removed when it is back: according to the Distribution,
/// not because it is missing.
#[tokio::test(flavor = "multi_thread")]
async fn objects_deleted_while_the_splitter_was_down_are_removed_when_it_is_back() -> Result<()> {
    let mut fleet = two_and_two().await?;
    fleet.stop_splitter();
    fleet.root.delete(WEB).await?;
    fleet.root.until_deleted(WEB).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), Some(2)]);
    fleet.start_splitter();
    for name in ["a", "b"] {
        fleet.member(name).mailbox.until_deleted(&downstream_path(WEB)).await?;
        fleet.member(name).downstream.until_deleted(&downstream_path(WEB)).await?;
    }
    fleet.root.until_deleted(WEB_RECORD).await
}

/// An object that is deleted and created again under the same name does not inherit the pods of the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_object_does_not_inherit_pods() -> Result<()> {
    let fleet = two_and_two().await?;
    let old = fleet.member("a").downstream.until_exists(&downstream_path(WEB)).await?;
    fleet.root.delete(WEB).await?;
    fleet.root.until_deleted(WEB).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 6)).await?;
    fleet.root.until_available(WEB, 6).await?;
    until("each has three", async || Ok(shares(&fleet).await? == [Some(3), Some(3)])).await?;
    let new = fleet.member("a").downstream.until_available(&downstream_path(WEB), 3).await?;
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    Ok(())
}

/// A mailbox object that someone deletes is created again.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_mailbox_object_is_created_again() -> Result<()> {
    let fleet = two_and_two().await?;
    let object = fleet.member("b").mailbox.until_exists(&downstream_path(WEB)).await?;
    fleet.member("b").mailbox.delete(&downstream_path(WEB)).await?;
    fleet
        .member("b")
        .mailbox
        .until(&downstream_path(WEB), |now| {
            !now.is_null() && now["metadata"]["uid"] != object["metadata"]["uid"]
        })
        .await?;
    fleet.member("b").downstream.until_available(&downstream_path(WEB), 2).await?;
    fleet.root.until_available(WEB, 4).await.map(drop)
}

/// The mailbox namespace was deleted because it was empty, just when the next app was sent there: the app was deleted
/// with the namespace, without a request to delete it. A Job that is deleted and created again runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_an_empty_mailbox_namespace_deletes_no_new_object() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    let history = History::of_deployments(&fleet).await?;
    let mailbox = &fleet.member("a").mailbox;
    for round in 0..10 {
        let name = format!("web-{round}");
        fleet.root.create(DEPLOYMENTS, deployment(&name, 1)).await?;
        let path = format!("{DEPLOYMENTS}/{name}");
        fleet.root.until_available(&path, 1).await?;
        fleet.root.delete(&path).await?;
        mailbox.until_deleted(&downstream_path(&path)).await?;
        // After varying delays, so that some objects arrive at the wrong moment.
        tokio::time::sleep(Duration::from_millis(round % 8)).await;
    }
    for round in 0..10 {
        check(&history.moments("shop", &format!("web-{round}")), |_, now| {
            now.user_object.is_null() || !now.mailbox_objects.values().any(is_being_deleted)
        });
    }
    Ok(())
}
