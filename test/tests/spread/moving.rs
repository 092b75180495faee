//! Changing the placement annotation moves an app without downtime.

use std::time::Duration;

use anyhow::Result;
use api::meta::is_being_deleted;
use controller::kind::ResourceKind;
use scenarios::client::{condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use scenarios::history::{History, check};
use scenarios::witness::Witness;
use serde_json::{Value, json};
use standin::{Delays, Options};

use crate::app::*;
use crate::kinds::autoscalers::{SCALERS, scale_downstream, scale_downstream_at, scaler};

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_app_is_ready_in_the_new_cluster_before_it_leaves_the_old() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let mut web = deployment("web", 4);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
    fleet.root.create(DEPLOYMENTS, web).await?;
    let maps = format!("{SHOP}/configmaps");
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "a": "1" } });
    fleet.root.create(&maps, map).await?;
    fleet.root.until_available(WEB, 4).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("west").mailbox.until_available(&downstream_path(WEB), 4).await?;
    // The pods of a stand-in are ready without their volumes, so the order of the two is not checked.
    fleet.member("west").downstream.until_exists(&downstream_path(&format!("{maps}/settings"))).await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(WEB)).await?;
    fleet.member("east").downstream.until_deleted(&downstream_path(SHOP)).await?;
    let record = fleet.root.until_exists(WEB_RECORD).await?;
    assert_eq!(targets(&record), ["west Steady 4"]);
    let web = fleet.root.until_available(WEB, 4).await?;
    history.until_observed(&web).await?;
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 4);
    check(&moments, |_, now| now.requested() <= 8 && now.requested() >= 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changing_the_number_of_targets_keeps_every_replica_available() -> Result<()> {
    let fleet = Fleet::of(&["a", "b", "c"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 6)).await?;
    fleet.root.until_available(WEB, 6).await?;
    let history = History::of_deployments(&fleet).await?;
    let steps: [(&str, [Option<u64>; 3]); 4] = [
        ("*", [Some(2), Some(2), Some(2)]),
        ("b,c", [None, Some(3), Some(3)]),
        ("a", [Some(6), None, None]),
        ("a,c", [Some(3), None, Some(3)]),
    ];
    for (placement, expected) in steps {
        fleet.root.place(SHOP, placement).await?;
        until(placement, async || Ok(shares(&fleet).await? == expected)).await?;
        let web = fleet.root.until_available(WEB, 6).await?;
        history.until_observed(&web).await?;
    }
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 6);
    check(&moments, |_, now| now.requested() >= 6 && now.requested() <= 12);
    Ok(())
}

/// Returns a fleet of two clusters with the four replicas of `web` on east.
async fn four_replicas_on_east(web: Value) -> Result<Fleet> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    Ok(fleet)
}

/// Pods at the target never become ready, so the source is kept and the condition says why.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_keeps_its_source_while_the_target_is_not_ready() -> Result<()> {
    let fleet = four_replicas_on_east(deployment("web", 4)).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.member("west").standin().freeze();
    fleet.root.place(SHOP, "west").await?;
    fleet.member("west").downstream.until_exists(&downstream_path(WEB)).await?;
    let record =
        fleet.root.until(WEB_RECORD, |record| condition(record, "Moving")["reason"] == "Waiting").await?;
    assert_eq!(targets(&record), ["east Leaving 4", "west Arriving 4"]);
    let message = condition(&record, "Moving")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("west"), "{message}");
    assert_eq!(requested_replicas(&fleet, "east").await?, Some(4));
    // The placement is changed back: the source is unchanged, and west is cleaned up.
    fleet.root.place(SHOP, "east").await?;
    fleet.member("west").mailbox.until_deleted(&downstream_path(WEB)).await?;
    fleet.root.until(WEB_RECORD, |record| targets(record) == ["east Steady 4"]).await?;
    fleet.member("west").standin().thaw();
    // Pods at the target become ready now, so the next move succeeds.
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(WEB)).await?;
    let web = fleet.root.until_available(WEB, 4).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 4 && now.requested() <= 8);
    Ok(())
}

/// An app moved back to a cluster where its previous mailbox object was still being deleted. The last status of that
/// object reported all pods as available, so the move was finished at once: the pods of both clusters were deleted, and
/// new ones were created later.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_back_ignores_the_mailbox_object_that_is_being_deleted() -> Result<()> {
    let mut fleet = four_replicas_on_east(deployment("web", 4)).await?;
    fleet.member("west").standin().freeze();
    fleet.root.place(SHOP, "west").await?;
    fleet.member("west").downstream.until_exists(&downstream_path(WEB)).await?;
    // Without a syncer, deleted objects stay in the mailbox of east with their finalizer.
    fleet.stop_syncer("east").await;
    fleet.member("west").standin().thaw();
    fleet.member("east").mailbox.until(&downstream_path(WEB), is_being_deleted).await?;
    fleet.root.until(WEB_RECORD, |record| targets(record) == ["west Steady 4"]).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "east").await?;
    let waits_for_deletion = |record: &Value| {
        let message = condition(record, "Moving")["message"].as_str().unwrap_or_default().to_owned();
        message.contains("east: the previous mailbox object is still being deleted")
    };
    let record = fleet.root.until(WEB_RECORD, waits_for_deletion).await?;
    assert_eq!(targets(&record), ["east Arriving 4", "west Leaving 4"]);
    let west = fleet.member("west").mailbox.until_exists(&downstream_path(WEB)).await?;
    assert!(!is_being_deleted(&west), "west keeps its pods");
    fleet.start_syncer("east");
    fleet.member("west").mailbox.until_deleted(&downstream_path(WEB)).await?;
    let web = fleet.root.until_available(WEB, 4).await?;
    history.until_observed(&web).await?;
    // Until the object of west is deleted, its pods are available; after that, those of east's new object are.
    check(&history.moments("shop", "web"), |_, now| {
        let is_not_deleted = |object: &&Value| !is_being_deleted(object);
        let available = |object: &Value| object["status"]["availableReplicas"].as_u64().unwrap_or_default();
        now.mailbox_objects.values().filter(is_not_deleted).map(available).sum::<u64>() >= 4
    });
    Ok(())
}

/// An autoscaler had scaled from 1 to 10. The target requested 1, and the source was deleted when that pod was ready.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_deployment_moves_with_all_its_replicas() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.create(SCALERS, scaler()).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    scale_downstream(fleet.member("east"), 10).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 10).await?;
    let history = History::of_deployments(&fleet).await?;
    let kind =
        ResourceKind::new("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true);
    let bounds = History::of(&fleet, kind).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(WEB)).await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(&format!("{SCALERS}/web"))).await?;
    let record = fleet.root.until(WEB_RECORD, |record| targets(record).len() == 1).await?;
    assert!(targets(&record)[0].starts_with("west Steady"), "{:?}", targets(&record));
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 10).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 10 && now.max_possible() <= 20);
    // The bounds of the autoscalers are not reduced for the other target during the move.
    check(&bounds.moments("shop", "web"), |_, now| {
        now.mailbox_objects.values().all(|object| object["spec"]["maxReplicas"] == 10)
    });
    // The autoscaler owns the replicas on the new target too.
    scale_downstream(fleet.member("west"), 4).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 4).await?;
    // A second target: the first keeps its replicas until the second has its share.
    fleet.root.place(SHOP, "*").await?;
    fleet
        .member("east")
        .downstream
        .until(&downstream_path(WEB), |web| web["status"]["availableReplicas"] == 2)
        .await?;
    let is_steady = |record: &Value| targets(record).iter().all(|target| target.contains("Steady"));
    fleet.root.until(WEB_RECORD, |record| targets(record).len() == 2 && is_steady(record)).await?;
    // Back to one target that has fewer than all replicas: it gets the others before the second target is removed.
    scale_downstream(fleet.member("east"), 5).await?;
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 9).await?;
    history.until_observed(&web).await?;
    let before = history.moments("shop", "web").len();
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(WEB)).await?;
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 9).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web")[before - 1..], |_, now| now.available() >= 9);
    Ok(())
}

/// An exclusive workload starts on the target only after all source pods have terminated. Terminating pods were not
/// counted, because their Deployment does not count them.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_with_recreate_never_runs_on_two_clusters() -> Result<()> {
    let (mut fleet, witness) = (Fleet::alone().await?, Witness::default());
    for name in ["east", "west"] {
        let delays = Delays { stop: Duration::from_millis(500), ..Delays::NONE };
        let store = Some(witness.store(name));
        fleet.join(Options { delays, store, ..Options::new(name) }, &[]).await?;
    }
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let mut web = deployment("web", 4);
    web["spec"]["strategy"] = json!({ "type": "Recreate" });
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(WEB)).await?;
    fleet.root.until_available(WEB, 4).await?;
    assert_eq!(shares(&fleet).await?, [None, Some(4)]);
    for (state, count) in witness.existing() {
        assert!(count <= 4, "{count} pods existed when {state}");
    }
    Ok(())
}

/// Autoscaling does not allow an exclusive workload to run on two targets. An autoscaler ignores a workload with zero
/// replicas.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_deployment_with_recreate_never_runs_on_two_clusters() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.create(SCALERS, scaler()).await?;
    let mut web = deployment("web", 1);
    web["spec"]["strategy"] = json!({ "type": "Recreate" });
    fleet.root.create(DEPLOYMENTS, web).await?;
    scale_downstream(fleet.member("east"), 6).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 6).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(WEB)).await?;
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 6).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.max_possible() <= 6);
    // The autoscaler owns the replicas on the new target too.
    scale_downstream(fleet.member("west"), 4).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 4).await?;
    // A second target starts with its share.
    let is_steady = |record: &Value| targets(record).iter().all(|target| target.contains("Steady"));
    fleet.root.until(WEB_RECORD, |record| targets(record).len() == 1 && is_steady(record)).await?;
    fleet.root.place(SHOP, "*").await?;
    fleet.root.until(WEB_RECORD, |record| targets(record).len() == 2 && is_steady(record)).await?;
    fleet
        .member("east")
        .downstream
        .until(&downstream_path(WEB), |web| web["status"]["availableReplicas"] == 2)
        .await
        .map(drop)
}

const SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
const SET: &str = "/apis/apps/v1/namespaces/shop/statefulsets/web";
const SET_RECORD: &str = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/statefulset-web";

fn set(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "replicas": replicas, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
            "template": template("web"),
        },
    })
}

/// Two autoscaled StatefulSets would create the same ordinals, so ranges are merged before the move ends: two pods on
/// each cluster become four on one. The target of the four counted as ready with its two while the pods of the other
/// cluster were still terminating. So the move ended, and two was written back as the number that the autoscaler had
/// set.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_stateful_set_runs_on_one_target() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut slow = set(4);
    slow["spec"]["template"]["metadata"]["annotations"] = json!({ "standin.holon.dev/stop": "300ms" });
    fleet.root.create(SETS, slow).await?;
    fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 4).await?;
    let record = fleet.root.until_exists(SET_RECORD).await?;
    assert_eq!(targets(&record).len(), 2, "{:?}", targets(&record));
    let kind = ResourceKind::new("apps", "v1", "statefulsets", "StatefulSet", true);
    let history = History::of(&fleet, kind).await?;
    let mut scaler = scaler();
    scaler["spec"]["scaleTargetRef"]["kind"] = json!("StatefulSet");
    fleet.root.create(SCALERS, scaler).await?;
    let is_on_one_target =
        |record: &Value| targets(record).len() == 1 && targets(record)[0].ends_with("Steady 4");
    let record = fleet.root.until(SET_RECORD, is_on_one_target).await?;
    let set = fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 4).await?;
    history.until_observed(&set).await?;
    check(&history.moments("shop", "web"), |_, now| now.max_possible() <= 4);
    let is_east = targets(&record)[0].starts_with("east");
    let (from, to) = if is_east { ("east", "west") } else { ("west", "east") };
    let downstream = fleet.member(from).downstream.until_exists(&downstream_path(SET)).await?;
    assert_eq!(downstream["spec"]["ordinals"]["start"].as_u64().unwrap_or_default(), 0);
    // It then moves with all its replicas.
    scale_downstream_at(fleet.member(from), &downstream_path(SET), 7).await?;
    let set = fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    history.until_observed(&set).await?;
    let before = history.moments("shop", "web").len();
    fleet.root.place(SHOP, to).await?;
    fleet.member(from).mailbox.until_deleted(&downstream_path(SET)).await?;
    let set = fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    history.until_observed(&set).await?;
    check(&history.moments("shop", "web")[before - 1..], |_, now| now.max_possible() <= 7);
    Ok(())
}

/// The same for a StatefulSet: each ordinal exists once.
#[tokio::test(flavor = "multi_thread")]
async fn no_ordinal_exists_twice_during_a_move() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.create(SETS, set(3)).await?;
    let is_ready = |set: &Value| set["status"]["readyReplicas"] == 3 && set["status"]["replicas"] == 3;
    fleet.root.until(SET, is_ready).await?;
    let kind = ResourceKind::new("apps", "v1", "statefulsets", "StatefulSet", true);
    let history = History::of(&fleet, kind).await?;
    for placement in ["west", "*", "east"] {
        fleet.root.place(SHOP, placement).await?;
        let has_moved = |record: &Value| {
            let targets = targets(record);
            let expected_targets = if placement == "*" { 2 } else { 1 };
            targets.len() == expected_targets
                && targets.iter().all(|target| {
                    target.contains("Steady") && (expected_targets == 2 || target.contains(placement))
                })
        };
        fleet.root.until(SET_RECORD, has_moved).await?;
        let set = fleet.root.until(SET, is_ready).await?;
        history.until_observed(&set).await?;
    }
    check(&history.moments("shop", "web"), |_, now| now.max_possible() <= 3);
    Ok(())
}

/// One of the three clusters of a StatefulSet is removed. Its ordinals go to one of the others, and no pod of the
/// others is stopped: with other ordinals they would have other volumes.
#[tokio::test(flavor = "multi_thread")]
async fn ordinals_of_a_forgotten_cluster_move_and_all_others_stay() -> Result<()> {
    let mut fleet = Fleet::of(&["a", "b", "c"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(SETS, set(7)).await?;
    fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    let mut forgotten = String::new();
    for (name, member) in fleet.members() {
        let downstream = member.downstream.until_exists(&downstream_path(SET)).await?;
        if downstream["spec"]["ordinals"]["start"].as_u64().unwrap_or_default() == 0 {
            name.clone_into(&mut forgotten);
        }
    }
    let uids_on_others = async |fleet: &Fleet| -> Result<Vec<String>> {
        let mut uids_on_others = Vec::new();
        for (_, member) in fleet.members().filter(|(name, _)| *name != forgotten) {
            let pods = member.downstream.list("/api/v1/pods").await?;
            uids_on_others
                .extend(pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)));
        }
        Ok(uids_on_others)
    };
    let before = uids_on_others(&fleet).await?;
    assert!(!before.is_empty() && before.len() < 7, "{before:?}");
    fleet.stop_syncer(&forgotten).await;
    fleet
        .change(&forgotten, json!({ "metadata": { "annotations": { "holon.dev/forget": "true" } } }))
        .await?;
    fleet.root.delete(&format!("{PHYSICAL_CLUSTERS}/{forgotten}")).await?;
    fleet.root.until(SET_RECORD, |record| targets(record).len() == 2).await?;
    until("all seven run on the other two", async || Ok(uids_on_others(&fleet).await?.len() == 7)).await?;
    fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    let after = uids_on_others(&fleet).await?;
    assert!(before.iter().all(|uid| after.contains(uid)), "{before:?} {after:?}");
    Ok(())
}

/// A workload that cannot move is held with a condition. The workers of a Job with another desired target were counted
/// on that target, so none were left for the current one: its pods were stopped, and never started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_is_not_moved() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    let mut template = template("sums");
    template["metadata"]["annotations"] = json!({ "standin.holon.dev/run": "1h" });
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" }, "spec": { "template": template },
    });
    fleet.root.create(jobs, job).await?;
    fleet.root.until(&format!("{jobs}/sums"), |job| job["status"]["active"] == 1).await?;
    fleet.root.place(SHOP, "west").await?;
    let record = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/job-sums";
    let record = fleet.root.until(record, |record| condition(record, "Placed")["reason"] == "Held").await?;
    let message = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("the object stays on east: the Job is running"), "{message}");
    assert_eq!(fleet.member("west").mailbox.get(&downstream_path(&format!("{jobs}/sums"))).await?, None);
    let downstream =
        fleet.member("east").downstream.until_exists(&downstream_path(&format!("{jobs}/sums"))).await?;
    assert_eq!((&downstream["spec"]["parallelism"], &downstream["status"]["active"]), (&json!(1), &json!(1)));
    Ok(())
}

/// Waits until all objects sent to a physical cluster are deleted, and acknowledges the uninstall as its pull syncer
/// would.
async fn until_emptied(fleet: &Fleet, name: &str) -> Result<()> {
    let path = format!("{PHYSICAL_CLUSTERS}/{name}");
    fleet.root.until(&path, |found| condition(found, "Leaving")["reason"] == "UninstallingSyncer").await?;
    let acknowledgement =
        json!({ "metadata": { "annotations": { api::names::UNINSTALL: api::names::ACKNOWLEDGED } } });
    fleet.member(name).mailbox.merge(&path, acknowledgement).await?;
    fleet.root.until_deleted(&path).await
}

/// A deleted physical cluster is drained first: its workloads are ready elsewhere before they are removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_cluster_is_drained_first() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 6)).await?;
    until("each has three", async || Ok(shares(&fleet).await? == [Some(3), Some(3)])).await?;
    fleet.root.until_available(WEB, 6).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.delete(&format!("{PHYSICAL_CLUSTERS}/east")).await?;
    until_emptied(&fleet, "east").await?;
    let downstream = &fleet.member("east").downstream;
    for path in [WEB, SHOP] {
        assert_eq!(
            downstream.get(&downstream_path(path)).await?,
            None,
            "the drained cluster still has {path}"
        );
    }
    let record = fleet.root.until(WEB_RECORD, |record| targets(record) == ["west Steady 6"]).await?;
    assert_eq!(condition(&record, "Placed")["status"], "True");
    let web = fleet.root.until_available(WEB, 6).await?;
    history.until_observed(&web).await?;
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 6);
    check(&moments, |_, now| now.requested() >= 6 && now.requested() <= 12);
    Ok(())
}

/// Without another target, the physical cluster keeps its workloads and reports why it cannot leave.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_cluster_is_not_drained() -> Result<()> {
    let mut fleet = Fleet::of(&["east"]).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    let history = History::of_deployments(&fleet).await?;
    let east = format!("{PHYSICAL_CLUSTERS}/east");
    fleet.root.until(&east, |east| east["metadata"]["finalizers"].to_string().contains("splitter")).await?;
    fleet.root.delete(&east).await?;
    let is_held = |record: &Value| condition(record, "Placed")["reason"] == "Held";
    let record = fleet.root.until(WEB_RECORD, is_held).await?;
    let message = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("east"), "{message}");
    let leaving = fleet.root.until(&east, |east| !condition(east, "Leaving").is_null()).await?;
    assert!(
        !condition(&leaving, "Leaving")["message"].as_str().unwrap_or_default().is_empty(),
        "{leaving:#}"
    );
    assert_eq!(requested_replicas(&fleet, "east").await?, Some(2));
    let web = fleet.root.until_available(WEB, 2).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web"), |_, now| {
        now.available() >= 2
            && now.mailbox_objects.len() == 1
            && !now.mailbox_objects.values().any(is_being_deleted)
    });
    // With another target it leaves.
    fleet.join(Options::new("west"), &[]).await?;
    until_emptied(&fleet, "east").await?;
    let web = fleet.root.until_available(WEB, 2).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 2);
    Ok(())
}

/// The nearest annotation wins: object, namespace, logical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_placement_annotation_wins() -> Result<()> {
    let fleet = Fleet::of(&["a", "b", "c"]).await?;
    let clusters = "/apis/holon.dev/v1alpha1/logicalclusters";
    let team = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "LogicalCluster",
        "metadata": { "name": "team", "annotations": { "holon.dev/placement": "a" } },
    });
    fleet.root.create(clusters, team).await?;
    let created =
        fleet.root.until(&format!("{clusters}/team"), |team| team["status"]["id"].is_string()).await?;
    let id = created["status"]["id"].as_str().unwrap_or_default().to_owned();
    let team = fleet.client("root:team")?;
    let downstream = splitter::transform::physical_namespace(&id, "shop");
    let web = format!("/apis/apps/v1/namespaces/{downstream}/deployments/web");
    team.create(NAMESPACES, namespace("shop")).await?;
    team.create(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.member("a").downstream.until_available(&web, 2).await?;
    team.place(SHOP, "b").await?;
    fleet.member("a").downstream.until_deleted(&web).await?;
    fleet.member("b").downstream.until_available(&web, 2).await?;
    team.place(WEB, "c").await?;
    fleet.member("b").downstream.until_deleted(&web).await?;
    fleet.member("c").downstream.until_available(&web, 2).await?;
    team.until_available(WEB, 2).await?;
    // The annotations are removed, one after the other.
    for (path, name) in [(WEB, "b"), (SHOP, "a")] {
        let without_placement = json!({ "metadata": { "annotations": { "holon.dev/placement": null } } });
        team.merge(path, without_placement).await?;
        fleet.member(name).downstream.until_available(&web, 2).await?;
    }
    team.until_available(WEB, 2).await.map(drop)
}
