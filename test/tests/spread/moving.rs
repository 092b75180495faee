//! One annotation moves an app, and nobody who uses it notices.

use std::time::Duration;

use anyhow::Result;
use controller::kind::Kind;
use scenarios::client::{condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use scenarios::history::{History, check};
use scenarios::witness::Witness;
use serde_json::{Value, json};
use standin::{Delays, Options};

use crate::app::*;
use crate::kinds::{SCALERS, scale_below, scale_below_at, scaler};

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_app_is_ready_in_the_new_cluster_before_it_leaves_the_old() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let mut web = deployment("web", 4);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
    fleet.root.make(DEPLOYMENTS, web).await?;
    let maps = format!("{SHOP}/configmaps");
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "a": "1" } });
    fleet.root.make(&maps, map).await?;
    fleet.root.until_available(WEB, 4).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("west").mailbox.until_available(&there(WEB), 4).await?;
    // A stand-in's pods are ready without what they mount, so which came first says nothing.
    fleet.member("west").below.until_there(&there(&format!("{maps}/settings"))).await?;
    fleet.member("east").mailbox.until_gone(&there(WEB)).await?;
    fleet.member("east").below.until_gone(&there(SHOP)).await?;
    let record = fleet.root.until_there(WEB_RECORD).await?;
    assert_eq!(targets(&record), ["west Steady 4"]);
    let web = fleet.root.until_available(WEB, 4).await?;
    history.hears(&web).await?;
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 4);
    check(&moments, |_, now| now.asked() <= 8 && now.asked() >= 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn divided_gathered_and_divided_otherwise_without_a_replica_missing() -> Result<()> {
    let fleet = Fleet::of(&["a", "b", "c"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "a")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 6)).await?;
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
        history.hears(&web).await?;
    }
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 6);
    check(&moments, |_, now| now.asked() >= 6 && now.asked() <= 12);
    Ok(())
}

/// A web on one of two that is to go to the other.
async fn on_east(web: Value) -> Result<Fleet> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    Ok(fleet)
}

/// Where it is to go nothing becomes ready. It stays where it is, and says what it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_does_not_leave_for_a_place_where_it_is_not_ready() -> Result<()> {
    let fleet = on_east(deployment("web", 4)).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.member("west").standin().freeze();
    fleet.root.place(SHOP, "west").await?;
    fleet.member("west").below.until_there(&there(WEB)).await?;
    let record =
        fleet.root.until(WEB_RECORD, |record| condition(record, "Moving")["reason"] == "Waiting").await?;
    assert_eq!(targets(&record), ["east Leaving 4", "west Arriving 4"]);
    let why = condition(&record, "Moving")["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("west"), "{why}");
    assert_eq!(asked(&fleet, "east").await?, Some(4));
    // Back again: nothing was broken, and west is cleaned up.
    fleet.root.place(SHOP, "east").await?;
    fleet.member("west").mailbox.until_gone(&there(WEB)).await?;
    fleet.root.until(WEB_RECORD, |record| targets(record) == ["east Steady 4"]).await?;
    fleet.member("west").standin().thaw();
    // And once more, now that it works there.
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_gone(&there(WEB)).await?;
    let web = fleet.root.until_available(WEB, 4).await?;
    history.hears(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 4 && now.asked() <= 8);
    Ok(())
}

/// An app moved back to a cluster where its former copy was still being deleted. That copy's last status said that all
/// pods are available, so the move was finished at once: the pods of both clusters were deleted, and new ones came later.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_back_does_not_count_the_copy_that_is_being_deleted() -> Result<()> {
    let mut fleet = on_east(deployment("web", 4)).await?;
    fleet.member("west").standin().freeze();
    fleet.root.place(SHOP, "west").await?;
    fleet.member("west").below.until_there(&there(WEB)).await?;
    // Without a syncer, what is deleted from the mailbox of east stays there.
    fleet.stop_syncing("east").await;
    fleet.member("west").standin().thaw();
    let is_deleted = |web: &Value| web["metadata"]["deletionTimestamp"].is_string();
    fleet.member("east").mailbox.until(&there(WEB), is_deleted).await?;
    fleet.root.until(WEB_RECORD, |record| targets(record) == ["west Steady 4"]).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "east").await?;
    let waits_for_deletion = |record: &Value| {
        let message = condition(record, "Moving")["message"].as_str().unwrap_or_default().to_owned();
        message.contains("east: the previous mailbox object is still being deleted")
    };
    let record = fleet.root.until(WEB_RECORD, waits_for_deletion).await?;
    assert_eq!(targets(&record), ["east Arriving 4", "west Leaving 4"]);
    let west = fleet.member("west").mailbox.until_there(&there(WEB)).await?;
    assert!(!is_deleted(&west), "west keeps its pods");
    fleet.sync("east");
    fleet.member("west").mailbox.until_gone(&there(WEB)).await?;
    let web = fleet.root.until_available(WEB, 4).await?;
    history.hears(&web).await?;
    // While west is there and is not being deleted, its pods are available; when it is deleted, those of east's new copy are.
    check(&history.moments("shop", "web"), |_, now| {
        let is_kept = |copy: &&Value| !is_deleted(copy);
        let available = |copy: &Value| copy["status"]["availableReplicas"].as_u64().unwrap_or_default();
        now.copies.values().filter(is_kept).map(available).sum::<u64>() >= 4
    });
    Ok(())
}

/// An autoscaler had made ten of one. Where they were to go one was asked for, and as soon as that was ready the ten were
/// taken away.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_deployment_moves_with_all_its_replicas() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.make(SCALERS, scaler()).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 1)).await?;
    scale_below(fleet.member("east"), 10).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 10).await?;
    let history = History::of_deployments(&fleet).await?;
    let kind = Kind::new("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true);
    let bounds = History::of(&fleet, kind).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_gone(&there(WEB)).await?;
    fleet.member("east").mailbox.until_gone(&there(&format!("{SCALERS}/web"))).await?;
    let record = fleet.root.until(WEB_RECORD, |record| targets(record).len() == 1).await?;
    assert!(targets(&record)[0].starts_with("west Steady"), "{:?}", targets(&record));
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 10).await?;
    history.hears(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 10 && now.most() <= 20);
    // Neither is anything taken from it by bounds that leave room for what is still to come.
    check(&bounds.moments("shop", "web"), |_, now| {
        now.copies.values().all(|copy| copy["spec"]["maxReplicas"] == 10)
    });
    // It is the autoscaler's there, too.
    scale_below(fleet.member("west"), 4).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 4).await?;
    // On to one more: what it has stays until the other has its part.
    fleet.root.place(SHOP, "*").await?;
    fleet.member("east").below.until(&there(WEB), |web| web["status"]["availableReplicas"] == 2).await?;
    let steady = |record: &Value| targets(record).iter().all(|target| target.contains("Steady"));
    fleet.root.until(WEB_RECORD, |record| targets(record).len() == 2 && steady(record)).await?;
    // And back to one that has less than all: it gets the rest before the other leaves.
    scale_below(fleet.member("east"), 5).await?;
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 9).await?;
    history.hears(&web).await?;
    let before = history.moments("shop", "web").len();
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_gone(&there(WEB)).await?;
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 9).await?;
    history.hears(&web).await?;
    check(&history.moments("shop", "web")[before - 1..], |_, now| now.available() >= 9);
    Ok(())
}

/// What must not run twice is gone in the old place before it begins in the new one. Pods that were told to stop and had not
/// yet were not counted, because their Deployment does not count them.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_with_recreate_never_runs_in_two_places() -> Result<()> {
    let (mut fleet, witness) = (Fleet::alone().await?, Witness::default());
    for name in ["east", "west"] {
        let delays = Delays { stop: Duration::from_millis(500), ..Delays::NONE };
        let store = Some(witness.store(name));
        fleet.join(Options { delays, store, ..Options::new(name) }, &[]).await?;
    }
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let mut web = deployment("web", 4);
    web["spec"]["strategy"] = json!({ "type": "Recreate" });
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_gone(&there(WEB)).await?;
    fleet.root.until_available(WEB, 4).await?;
    assert_eq!(shares(&fleet).await?, [None, Some(4)]);
    for (sight, count) in witness.there() {
        assert!(count <= 4, "{count} were there when {sight}");
    }
    Ok(())
}

/// An autoscaler decides how many there are, but not whether they may be in two places. It leaves alone what has none.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_deployment_with_recreate_never_runs_in_two_places() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.make(SCALERS, scaler()).await?;
    let mut web = deployment("web", 1);
    web["spec"]["strategy"] = json!({ "type": "Recreate" });
    fleet.root.make(DEPLOYMENTS, web).await?;
    scale_below(fleet.member("east"), 6).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 6).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_gone(&there(WEB)).await?;
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 6).await?;
    history.hears(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.most() <= 6);
    // It is the autoscaler's there, too.
    scale_below(fleet.member("west"), 4).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 4).await?;
    // On to one more, which begins with its part.
    let steady = |record: &Value| targets(record).iter().all(|target| target.contains("Steady"));
    fleet.root.until(WEB_RECORD, |record| targets(record).len() == 1 && steady(record)).await?;
    fleet.root.place(SHOP, "*").await?;
    fleet.root.until(WEB_RECORD, |record| targets(record).len() == 2 && steady(record)).await?;
    fleet
        .member("east")
        .below
        .until(&there(WEB), |web| web["status"]["availableReplicas"] == 2)
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

/// Two autoscalers would have made a pod of the same name each. What had been spread comes together first: two pods on each
/// cluster become four on one. The cluster that was to have four was taken for ready with its two while the pods of the other
/// still stopped, so the move ended there, and two was written back as the number the autoscaler had made of it.
#[tokio::test(flavor = "multi_thread")]
async fn ordinals_that_are_scaled_are_in_one_place() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut slow = set(4);
    slow["spec"]["template"]["metadata"]["annotations"] = json!({ "standin.holon.dev/stop": "300ms" });
    fleet.root.make(SETS, slow).await?;
    fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 4).await?;
    let record = fleet.root.until_there(SET_RECORD).await?;
    assert_eq!(targets(&record).len(), 2, "{:?}", targets(&record));
    let kind = Kind::new("apps", "v1", "statefulsets", "StatefulSet", true);
    let history = History::of(&fleet, kind).await?;
    let mut scaler = scaler();
    scaler["spec"]["scaleTargetRef"]["kind"] = json!("StatefulSet");
    fleet.root.make(SCALERS, scaler).await?;
    let is_whole = |record: &Value| targets(record).len() == 1 && targets(record)[0].ends_with("Steady 4");
    let record = fleet.root.until(SET_RECORD, is_whole).await?;
    let set = fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 4).await?;
    history.hears(&set).await?;
    check(&history.moments("shop", "web"), |_, now| now.most() <= 4);
    let is_east = targets(&record)[0].starts_with("east");
    let (from, to) = if is_east { ("east", "west") } else { ("west", "east") };
    let below = fleet.member(from).below.until_there(&there(SET)).await?;
    assert_eq!(below["spec"]["ordinals"]["start"].as_u64().unwrap_or_default(), 0);
    // And it moves with all it has by then.
    scale_below_at(fleet.member(from), &there(SET), 7).await?;
    let set = fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    history.hears(&set).await?;
    let before = history.moments("shop", "web").len();
    fleet.root.place(SHOP, to).await?;
    fleet.member(from).mailbox.until_gone(&there(SET)).await?;
    let set = fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    history.hears(&set).await?;
    check(&history.moments("shop", "web")[before - 1..], |_, now| now.most() <= 7);
    Ok(())
}

/// The same for what has numbers: each exists once.
#[tokio::test(flavor = "multi_thread")]
async fn ordinals_move_without_ever_being_twice() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.make(SETS, set(3)).await?;
    let is_ready = |set: &Value| set["status"]["readyReplicas"] == 3 && set["status"]["replicas"] == 3;
    fleet.root.until(SET, is_ready).await?;
    let kind = Kind::new("apps", "v1", "statefulsets", "StatefulSet", true);
    let history = History::of(&fleet, kind).await?;
    for placement in ["west", "*", "east"] {
        fleet.root.place(SHOP, placement).await?;
        let is_there = |record: &Value| {
            let targets = targets(record);
            let wanted = if placement == "*" { 2 } else { 1 };
            targets.len() == wanted
                && targets
                    .iter()
                    .all(|target| target.contains("Steady") && (wanted == 2 || target.contains(placement)))
        };
        fleet.root.until(SET_RECORD, is_there).await?;
        let set = fleet.root.until(SET, is_ready).await?;
        history.hears(&set).await?;
    }
    check(&history.moments("shop", "web"), |_, now| now.most() <= 3);
    Ok(())
}

/// Of a StatefulSet over three clusters one cluster is removed. The ordinals that were there go to one of the others, and no
/// pod of the others is stopped: with other ordinals they would have other volumes.
#[tokio::test(flavor = "multi_thread")]
async fn ordinals_of_a_forgotten_cluster_go_to_another_and_the_others_stay() -> Result<()> {
    let mut fleet = Fleet::of(&["a", "b", "c"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(SETS, set(7)).await?;
    fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    let mut first = String::new();
    for (name, member) in fleet.members() {
        let below = member.below.until_there(&there(SET)).await?;
        if below["spec"]["ordinals"]["start"].as_u64().unwrap_or_default() == 0 {
            name.clone_into(&mut first);
        }
    }
    let uids = async |fleet: &Fleet| -> Result<Vec<String>> {
        let mut uids = Vec::new();
        for (_, member) in fleet.members().filter(|(name, _)| *name != first) {
            let pods = member.below.list("/api/v1/pods").await?;
            uids.extend(pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)));
        }
        Ok(uids)
    };
    let before = uids(&fleet).await?;
    assert!(!before.is_empty() && before.len() < 7, "{before:?}");
    fleet.stop_syncing(&first).await;
    fleet.change(&first, json!({ "metadata": { "annotations": { "holon.dev/forget": "true" } } })).await?;
    fleet.root.delete(&format!("{PHYSICAL_CLUSTERS}/{first}")).await?;
    fleet.root.until(SET_RECORD, |record| targets(record).len() == 2).await?;
    until("all seven run on the other two", async || Ok(uids(&fleet).await?.len() == 7)).await?;
    fleet.root.until(SET, |set| set["status"]["readyReplicas"] == 7).await?;
    let after = uids(&fleet).await?;
    assert!(before.iter().all(|uid| after.contains(uid)), "{before:?} {after:?}");
    Ok(())
}

/// What cannot be moved says so, and stays. A Job that was wanted elsewhere had its workers counted there, and so had none
/// left where it ran: its pods were stopped, and none ever began again.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_stays_where_it_is() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    let mut template = template("sums");
    template["metadata"]["annotations"] = json!({ "standin.holon.dev/run": "1h" });
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" }, "spec": { "template": template },
    });
    fleet.root.make(jobs, job).await?;
    fleet.root.until(&format!("{jobs}/sums"), |job| job["status"]["active"] == 1).await?;
    fleet.root.place(SHOP, "west").await?;
    let record = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/job-sums";
    let record = fleet.root.until(record, |record| condition(record, "Placed")["reason"] == "Held").await?;
    let why = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("the object stays on east: the Job is running"), "{why}");
    assert_eq!(fleet.member("west").mailbox.get(&there(&format!("{jobs}/sums"))).await?, None);
    let below = fleet.member("east").below.until_there(&there(&format!("{jobs}/sums"))).await?;
    assert_eq!((&below["spec"]["parallelism"], &below["status"]["active"]), (&json!(1), &json!(1)));
    Ok(())
}

/// Waits until a physical cluster has nothing left that it was sent, and lets its syncer, which dialled in, go.
async fn until_emptied(fleet: &Fleet, name: &str) -> Result<()> {
    let path = format!("{PHYSICAL_CLUSTERS}/{name}");
    fleet.root.until(&path, |found| condition(found, "Leaving")["reason"] == "UninstallingSyncer").await?;
    let heard = json!({ "metadata": { "annotations": { api::names::UNINSTALL: api::names::ACKNOWLEDGED } } });
    fleet.member(name).mailbox.merge(&path, heard).await?;
    fleet.root.until_gone(&path).await
}

/// Deleting a physical cluster is draining it first: what runs there is ready elsewhere before it goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_leaves_is_emptied_first() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 6)).await?;
    until("each has three", async || Ok(shares(&fleet).await? == [Some(3), Some(3)])).await?;
    fleet.root.until_available(WEB, 6).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.delete(&format!("{PHYSICAL_CLUSTERS}/east")).await?;
    until_emptied(&fleet, "east").await?;
    let below = &fleet.member("east").below;
    for path in [WEB, SHOP] {
        assert_eq!(below.get(&there(path)).await?, None, "nothing of it is left there");
    }
    let record = fleet.root.until(WEB_RECORD, |record| targets(record) == ["west Steady 6"]).await?;
    assert_eq!(condition(&record, "Placed")["status"], "True");
    let web = fleet.root.until_available(WEB, 6).await?;
    history.hears(&web).await?;
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 6);
    check(&moments, |_, now| now.asked() >= 6 && now.asked() <= 12);
    Ok(())
}

/// There is no other place: it stays, with all that runs there, and says what it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_cluster_does_not_leave() -> Result<()> {
    let mut fleet = Fleet::of(&["east"]).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    let history = History::of_deployments(&fleet).await?;
    let east = format!("{PHYSICAL_CLUSTERS}/east");
    fleet.root.until(&east, |east| east["metadata"]["finalizers"].to_string().contains("splitter")).await?;
    fleet.root.delete(&east).await?;
    let held = |record: &Value| condition(record, "Placed")["reason"] == "Held";
    let record = fleet.root.until(WEB_RECORD, held).await?;
    let why = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("east"), "{why}");
    let leaving = fleet.root.until(&east, |east| !condition(east, "Leaving").is_null()).await?;
    assert!(
        !condition(&leaving, "Leaving")["message"].as_str().unwrap_or_default().is_empty(),
        "{leaving:#}"
    );
    assert_eq!(asked(&fleet, "east").await?, Some(2));
    let web = fleet.root.until_available(WEB, 2).await?;
    history.hears(&web).await?;
    check(&history.moments("shop", "web"), |_, now| {
        now.available() >= 2
            && now.copies.len() == 1
            && now.copies.values().all(|copy| copy["metadata"]["deletionTimestamp"].is_null())
    });
    // With another place it goes.
    fleet.join(Options::new("west"), &[]).await?;
    until_emptied(&fleet, "east").await?;
    let web = fleet.root.until_available(WEB, 2).await?;
    history.hears(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 2);
    Ok(())
}

/// The nearest word counts: on the object, on its namespace, on its logical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_word_counts() -> Result<()> {
    let fleet = Fleet::of(&["a", "b", "c"]).await?;
    let clusters = "/apis/holon.dev/v1alpha1/logicalclusters";
    let team = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "LogicalCluster",
        "metadata": { "name": "team", "annotations": { "holon.dev/placement": "a" } },
    });
    fleet.root.make(clusters, team).await?;
    let made = fleet.root.until(&format!("{clusters}/team"), |team| team["status"]["id"].is_string()).await?;
    let id = made["status"]["id"].as_str().unwrap_or_default().to_owned();
    let team = fleet.client("root:team")?;
    let below = splitter::transform::physical_namespace(&id, "shop");
    let web = format!("/apis/apps/v1/namespaces/{below}/deployments/web");
    team.make(NAMESPACES, namespace("shop")).await?;
    team.make(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.member("a").below.until_available(&web, 2).await?;
    team.place(SHOP, "b").await?;
    fleet.member("a").below.until_gone(&web).await?;
    fleet.member("b").below.until_available(&web, 2).await?;
    team.place(WEB, "c").await?;
    fleet.member("b").below.until_gone(&web).await?;
    fleet.member("c").below.until_available(&web, 2).await?;
    team.until_available(WEB, 2).await?;
    // Taken back, one after the other.
    for (path, name) in [(WEB, "b"), (SHOP, "a")] {
        let nothing = json!({ "metadata": { "annotations": { "holon.dev/placement": null } } });
        team.merge(path, nothing).await?;
        fleet.member(name).below.until_available(&web, 2).await?;
    }
    team.until_available(WEB, 2).await.map(drop)
}
