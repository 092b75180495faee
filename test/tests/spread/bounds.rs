//! No room: it goes elsewhere, or it waits and says why.

use anyhow::Result;
use scenarios::client::{TestClient, condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use scenarios::history::{History, check};
use serde_json::{Value, json};
use standin::{NodeShape, Options};

use crate::app::*;
use crate::numbers::keeps_to_the_total;

/// A web of which each replica asks for a whole processor.
fn hungry(replicas: u32) -> Value {
    let mut web = deployment("web", replicas);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "1" } });
    web
}

/// At every instant up to this answer.
async fn kept_to_the_total(history: &History, web: &Value) -> Result<()> {
    history.hears(web).await?;
    check(&history.moments("shop", "web"), keeps_to_the_total);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_beyond_the_bounds_of_one_cluster_go_to_the_other_and_then_wait() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "2" } } })).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.make(DEPLOYMENTS, hungry(6)).await?;
    fleet.root.until_available(WEB, 6).await?;
    until("one is full", async || Ok(shares(&fleet).await? == [Some(2), Some(4)])).await?;
    // Growth spills over.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 9 } })).await?;
    fleet.root.until_available(WEB, 9).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), Some(7)]);
    fleet.change("b", json!({ "spec": { "bounds": { "cpu": "7" } } })).await?;
    // What is said of a cluster and of an app is heard in either order.
    let is_bounded = |record: &Value| record["status"]["verdicts"].to_string().contains("b takes at most 7");
    fleet.root.until(WEB_RECORD, is_bounded).await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 12 } })).await?;
    let record = fleet.root.until(WEB_RECORD, |record| record["spec"]["pending"] == 3).await?;
    let record = match condition(&record, "Complete").is_null() {
        true => fleet.root.until(WEB_RECORD, |record| !condition(record, "Complete").is_null()).await?,
        false => record,
    };
    let why = "3 of 12 are pending: no target has capacity for them; a takes at most 2: spec.bounds of the PhysicalCluster; b takes at most 7: spec.bounds of the PhysicalCluster";
    assert_eq!(condition(&record, "Complete")["message"], why);
    assert_eq!(shares(&fleet).await?, [Some(2), Some(7)]);
    // There is room now, and nobody has to say anything.
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "20" } } })).await?;
    let web = fleet.root.until_available(WEB, 12).await?;
    let record = fleet.root.until(WEB_RECORD, |record| condition(record, "Complete").is_null()).await?;
    assert_eq!(record["spec"]["pending"], 0);
    kept_to_the_total(&history, &web).await
}

/// Two apps at the same moment do not both count on the same room.
#[tokio::test(flavor = "multi_thread")]
async fn room_is_promised_once() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    for name in ["a", "b"] {
        fleet.change(name, json!({ "spec": { "bounds": { "cpu": "4" } } })).await?;
    }
    for number in 0..4 {
        let name = format!("team-{number}");
        fleet.root.make(NAMESPACES, namespace(&name)).await?;
    }
    let paths: Vec<String> =
        (0..4).map(|number| format!("/apis/apps/v1/namespaces/team-{number}/deployments")).collect();
    let app = |number: usize| {
        let mut app = hungry(2);
        app["metadata"]["namespace"] = json!(format!("team-{number}"));
        app
    };
    let made = [
        fleet.root.make(&paths[0], app(0)),
        fleet.root.make(&paths[1], app(1)),
        fleet.root.make(&paths[2], app(2)),
        fleet.root.make(&paths[3], app(3)),
    ];
    for made in futures::future::join_all(made).await {
        made?;
    }
    for path in &paths {
        fleet.root.until_available(&format!("{path}/web"), 2).await?;
    }
    for (name, member) in fleet.members() {
        let copies = member.mailbox.list("/apis/apps/v1/deployments").await?;
        let asked: u64 = copies.iter().filter_map(|copy| copy["spec"]["replicas"].as_u64()).sum();
        assert_eq!(asked, 4, "{name}");
    }
    Ok(())
}

/// The pods a physical cluster shows that have no node, with when that began set back by an hour.
async fn an_hour_ago(mailbox: &TestClient) -> Result<usize> {
    let pods = mailbox.list(&there("/api/v1/namespaces/shop/pods")).await?;
    let mut waiting = 0;
    for pod in pods {
        let said = condition(&pod, "PodScheduled");
        if said["reason"] != "Unschedulable" {
            continue;
        }
        let mut conditions = pod["status"]["conditions"].clone();
        let begun = jiff::Timestamp::now() - std::time::Duration::from_secs(3600);
        for condition in conditions.as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = begun.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        }
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let path = there(&format!("/api/v1/namespaces/shop/pods/{name}/status"));
        mailbox.merge(&path, json!({ "status": { "conditions": conditions } })).await?;
        waiting += 1;
    }
    Ok(waiting)
}

/// A cluster has room on the whole, and none on any node. What waits there for a minute goes elsewhere, and does not come
/// back as soon as nothing waits any more.
#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pods_move_to_a_cluster_with_a_free_node() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let nodes = vec![NodeShape::new("a-1", "3500m", "32Gi", 110)];
    fleet.join(Options { nodes, ..Options::new("a") }, &[]).await?;
    fleet.join(Options::new("b"), &[]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(DEPLOYMENTS, hungry(10)).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 8).await?;
    assert_eq!(shares(&fleet).await?, [Some(5), Some(5)]);
    let mailbox = fleet.member("a").mailbox.clone();
    until("two pods are shown to wait", async || {
        let pods = mailbox.list(&there("/api/v1/namespaces/shop/pods")).await?;
        Ok(pods.iter().filter(|pod| condition(pod, "PodScheduled")["reason"] == "Unschedulable").count() == 2)
    })
    .await?;
    let history = History::of_deployments(&fleet).await?;
    // They have waited for long, as far as anybody can tell.
    fleet.stop_syncing("a").await;
    assert_eq!(an_hour_ago(&mailbox).await?, 2);
    fleet.root.merge(WEB, json!({ "metadata": { "labels": { "looked": "at" } } })).await?;
    until("they are asked for elsewhere", async || Ok(shares(&fleet).await? == [Some(3), Some(7)])).await?;
    fleet.sync("a");
    fleet.root.until_available(WEB, 10).await?;
    let record = fleet.root.until_there(WEB_RECORD).await?;
    let noted = record["metadata"]["annotations"]["holon.dev/estimates"].as_str().unwrap_or_default();
    assert!(noted.contains("\"fits\":3"), "{noted}");
    // Growth goes where there is room, too.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 12 } })).await?;
    let web = fleet.root.until_available(WEB, 12).await?;
    assert_eq!(shares(&fleet).await?, [Some(3), Some(9)]);
    kept_to_the_total(&history, &web).await
}

/// The same for an app that is in one place and has another to fall back on: it was looked for pods that wait only where
/// there was more than one target already.
#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pods_on_the_only_target_fall_back() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    // Room for three in sum, and on no node for a second one.
    let node = |number: u32| NodeShape::new(format!("a-{number}"), "1500m", "32Gi", 110);
    fleet.join(Options { nodes: vec![node(1), node(2)], ..Options::new("a") }, &[]).await?;
    fleet.join(Options::new("b"), &[]).await?;
    let spill = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "spill" },
        "spec": {
            "clusterSelector": { "names": ["a"] },
            "fallbackGroups": [{ "name": "second", "clusterSelector": { "names": ["b"] } }],
        },
    });
    fleet.root.make("/apis/holon.dev/v1alpha1/placements", spill).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.make(DEPLOYMENTS, hungry(3)).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 2).await?;
    assert_eq!(shares(&fleet).await?, [Some(3), None]);
    let mailbox = fleet.member("a").mailbox.clone();
    until("a pod is shown to wait", async || {
        let pods = mailbox.list(&there("/api/v1/namespaces/shop/pods")).await?;
        Ok(pods.iter().any(|pod| condition(pod, "PodScheduled")["reason"] == "Unschedulable"))
    })
    .await?;
    fleet.stop_syncing("a").await;
    assert_eq!(an_hour_ago(&mailbox).await?, 1);
    fleet.root.merge(WEB, json!({ "metadata": { "labels": { "looked": "at" } } })).await?;
    until("it is asked for elsewhere", async || Ok(shares(&fleet).await?[1] == Some(1))).await?;
    fleet.sync("a");
    let web = fleet.root.until_available(WEB, 3).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), Some(1)]);
    kept_to_the_total(&history, &web).await
}

/// Who is as big as what is free has shares as big, as syncers report it.
#[tokio::test(flavor = "multi_thread")]
async fn shares_follow_the_free_capacity() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    for (name, nodes) in [("a", 1), ("b", 2), ("c", 3)] {
        let node = |number: u32| NodeShape::new(format!("{name}-{number}"), "6", "32Gi", 110);
        fleet.join(Options { nodes: (1..=nodes).map(node).collect(), ..Options::new(name) }, &[]).await?;
    }
    let placement = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "free" },
        "spec": { "weights": "Capacity" },
    });
    fleet.root.make("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    fleet.root.make(DEPLOYMENTS, hungry(12)).await?;
    fleet.root.until_available(WEB, 12).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), Some(4), Some(6)]);
    Ok(())
}

/// A quota of the namespace there is a bound like any other. What runs already is within it.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_beyond_a_downstream_quota_go_elsewhere() -> Result<()> {
    let mut fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(DEPLOYMENTS, hungry(2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    let quotas = there("/api/v1/namespaces/shop/resourcequotas");
    let hard = json!({ "requests.cpu": "2" });
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "small" }, "spec": { "hard": hard },
    });
    let below = fleet.member("a").below.clone();
    below.make(&quotas, quota).await?;
    // A stand-in does not count for it. One of the two is ours, so there is room for none besides.
    let counted = json!({ "status": { "hard": hard, "used": { "requests.cpu": "2" } } });
    below.merge(&format!("{quotas}/small/status"), counted).await?;
    // Quotas are counted now and then, and when a syncer begins.
    fleet.sync("a");
    let path = format!("{PHYSICAL_CLUSTERS}/a");
    fleet.root.until(&path, |found| found["status"]["quotas"][0]["hard"]["requests.cpu"] == "2").await?;
    let is_counted = |record: &Value| {
        record["status"]["verdicts"].to_string().contains("a takes at most 1: a ResourceQuota")
    };
    let mut looks = 0;
    until("it counts where it is decided", async || {
        looks += 1;
        fleet.root.merge(WEB, json!({ "metadata": { "labels": { "look": looks.to_string() } } })).await?;
        Ok(is_counted(&fleet.root.until_there(WEB_RECORD).await?))
    })
    .await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 6 } })).await?;
    fleet.root.until_available(WEB, 6).await?;
    assert_eq!(shares(&fleet).await?, [Some(1), Some(5)]);
    Ok(())
}

/// The new place has room for four of six. The other two stay in the old one until there is room for all, and none is missing.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_do_not_fit_the_new_target_stay_on_the_old() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.change("b", json!({ "spec": { "bounds": { "cpu": "4" } } })).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "a")).await?;
    fleet.root.make(DEPLOYMENTS, hungry(6)).await?;
    fleet.root.until_available(WEB, 6).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "b").await?;
    let waits = |record: &Value| {
        let moving = condition(record, "Moving");
        moving["message"]
            .as_str()
            .is_some_and(|why| why.contains("2 of 6 are pending: no target has capacity for them"))
    };
    fleet.root.until(WEB_RECORD, waits).await?;
    until("what fits is there", async || Ok(shares(&fleet).await? == [Some(2), Some(4)])).await?;
    fleet.change("b", json!({ "spec": { "bounds": { "cpu": "10" } } })).await?;
    until("all of it has moved", async || Ok(shares(&fleet).await? == [None, Some(6)])).await?;
    let web = fleet.root.until_available(WEB, 6).await?;
    history.hears(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 6);
    Ok(())
}

/// Three replicas fit on the first; what does not goes to the second.
async fn spilling() -> Result<Fleet> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "3" } } })).await?;
    let placement = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "spill" },
        "spec": {
            "clusterSelector": { "names": ["a"] },
            "fallbackGroups": [{ "name": "second", "clusterSelector": { "names": ["b"] } }],
        },
    });
    fleet.root.make("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    Ok(fleet)
}

/// What the first group cannot hold goes to the next, and comes back as soon as it can.
#[tokio::test(flavor = "multi_thread")]
async fn growth_spills_over_into_the_next_group_and_back() -> Result<()> {
    let fleet = spilling().await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.make(DEPLOYMENTS, hungry(2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), None]);
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 5 } })).await?;
    fleet.root.until_available(WEB, 5).await?;
    assert_eq!(shares(&fleet).await?, [Some(3), Some(2)]);
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "10" } } })).await?;
    until("all of it is back", async || {
        let shares = shares(&fleet).await?;
        Ok(shares[0] == Some(5) && shares[1].is_none_or(|left| left == 0))
    })
    .await?;
    let web = fleet.root.until_available(WEB, 5).await?;
    kept_to_the_total(&history, &web).await
}

/// What fell back came home only when somebody touched the bounds. That what had been in its way was deleted nobody told it.
#[tokio::test(flavor = "multi_thread")]
async fn freed_capacity_brings_fallen_back_replicas_home() -> Result<()> {
    let fleet = spilling().await?;
    let mut other = hungry(2);
    other["metadata"]["name"] = json!("other");
    fleet.root.make(DEPLOYMENTS, other).await?;
    fleet.root.until_available(&format!("{DEPLOYMENTS}/other"), 2).await?;
    fleet.root.make(DEPLOYMENTS, hungry(2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(shares(&fleet).await?, [Some(1), Some(1)]);
    fleet.root.delete(&format!("{DEPLOYMENTS}/other")).await?;
    until("all of it is back", async || Ok(shares(&fleet).await? == [Some(2), None])).await
}

/// A Job took as much as it had completions, and something that was whole everywhere as much as one replica.
#[tokio::test(flavor = "multi_thread")]
async fn used_capacity_counts_the_pods_that_run() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    for name in ["a", "b"] {
        fleet.change(name, json!({ "spec": { "bounds": { "cpu": "4" } } })).await?;
    }
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let pod = &hungry(1)["spec"]["template"]["spec"]["containers"];
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 50, "parallelism": 2, "template": {
            "metadata": { "annotations": { "standin.holon.dev/run": "1h" } },
            "spec": { "restartPolicy": "Never", "containers": pod },
        } },
    });
    fleet.root.make("/apis/batch/v1/namespaces/shop/jobs", job).await?;
    fleet.root.until("/apis/batch/v1/namespaces/shop/jobs/sums", |job| job["status"]["active"] == 2).await?;
    // One worker on each, so each has room for three more.
    let placement = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "everywhere" },
        "spec": { "division": "Duplicate", "objectSelector": { "matchLabels": { "whole": "yes" } } },
    });
    fleet.root.make("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.merge(SHOP, json!({ "metadata": { "annotations": { "holon.dev/placement": null } } })).await?;
    let mut whole = hungry(2);
    whole["metadata"] = json!({ "name": "whole", "labels": { "whole": "yes" } });
    fleet.root.make(DEPLOYMENTS, whole).await?;
    for (_, member) in fleet.members() {
        let path = there(&format!("{DEPLOYMENTS}/whole"));
        member.below.until(&path, |whole| whole["status"]["availableReplicas"] == 2).await?;
    }
    let mut web = hungry(3);
    web["metadata"]["annotations"]["holon.dev/placement"] = json!("*");
    fleet.root.make(DEPLOYMENTS, web).await?;
    let record = fleet.root.until(WEB_RECORD, |record| record["spec"]["pending"] == 1).await?;
    assert_eq!(targets(&record), ["a Steady 1", "b Steady 1"]);
    Ok(())
}
