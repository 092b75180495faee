//! Replicas that do not fit are placed elsewhere or stay pending with a reason.

use anyhow::Result;
use scenarios::client::{TestClient, condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use scenarios::history::{History, check};
use serde_json::{Value, json};
use standin::{NodeShape, Options};

use crate::app::*;
use crate::replicas::stays_within_total;

/// Returns a Deployment `web` of which each replica requests one CPU.
fn one_cpu_web(replicas: u32) -> Value {
    let mut web = deployment("web", replicas);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "1" } });
    web
}

/// Checks every revision up to this response.
async fn check_total_so_far(history: &History, web: &Value) -> Result<()> {
    history.until_observed(web).await?;
    check(&history.moments("shop", "web"), stays_within_total);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_beyond_the_bounds_of_one_cluster_are_placed_on_the_other_or_stay_pending() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "2" } } })).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(6)).await?;
    fleet.root.until_available(WEB, 6).await?;
    until("a has its maximum", async || Ok(shares(&fleet).await? == [Some(2), Some(4)])).await?;
    // Additional replicas go to the other cluster.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 9 } })).await?;
    fleet.root.until_available(WEB, 9).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), Some(7)]);
    fleet.change("b", json!({ "spec": { "bounds": { "cpu": "7" } } })).await?;
    // Cluster and workload events may arrive in either order.
    let is_bounded = |record: &Value| record["status"]["verdicts"].to_string().contains("b takes at most 7");
    fleet.root.until(WEB_RECORD, is_bounded).await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 12 } })).await?;
    let record = fleet.root.until(WEB_RECORD, |record| record["spec"]["pending"] == 3).await?;
    let record = match condition(&record, "Complete").is_null() {
        true => fleet.root.until(WEB_RECORD, |record| !condition(record, "Complete").is_null()).await?,
        false => record,
    };
    let message = "3 of 12 are pending: no target has capacity for them; a takes at most 2: spec.bounds of the PhysicalCluster; b takes at most 7: spec.bounds of the PhysicalCluster";
    assert_eq!(condition(&record, "Complete")["message"], message);
    assert_eq!(shares(&fleet).await?, [Some(2), Some(7)]);
    // After capacity is added, no further event is needed.
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "20" } } })).await?;
    let web = fleet.root.until_available(WEB, 12).await?;
    let record = fleet.root.until(WEB_RECORD, |record| condition(record, "Complete").is_null()).await?;
    assert_eq!(record["spec"]["pending"], 0);
    check_total_so_far(&history, &web).await
}

/// Concurrent decisions do not reserve the same capacity.
#[tokio::test(flavor = "multi_thread")]
async fn capacity_is_reserved_once() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    for name in ["a", "b"] {
        fleet.change(name, json!({ "spec": { "bounds": { "cpu": "4" } } })).await?;
    }
    for number in 0..4 {
        let name = format!("team-{number}");
        fleet.root.create(NAMESPACES, namespace(&name)).await?;
    }
    let paths: Vec<String> =
        (0..4).map(|number| format!("/apis/apps/v1/namespaces/team-{number}/deployments")).collect();
    let app = |number: usize| {
        let mut app = one_cpu_web(2);
        app["metadata"]["namespace"] = json!(format!("team-{number}"));
        app
    };
    let created = [
        fleet.root.create(&paths[0], app(0)),
        fleet.root.create(&paths[1], app(1)),
        fleet.root.create(&paths[2], app(2)),
        fleet.root.create(&paths[3], app(3)),
    ];
    for created in futures::future::join_all(created).await {
        created?;
    }
    for path in &paths {
        fleet.root.until_available(&format!("{path}/web"), 2).await?;
    }
    for (name, member) in fleet.members() {
        let mailbox_objects = member.mailbox.list("/apis/apps/v1/deployments").await?;
        let requested: u64 =
            mailbox_objects.iter().filter_map(|object| object["spec"]["replicas"].as_u64()).sum();
        assert_eq!(requested, 4, "{name}");
    }
    Ok(())
}

/// Sets the time since which pods are unschedulable back by an hour. Returns the number of these pods.
async fn backdate_unschedulable_pods(mailbox: &TestClient) -> Result<usize> {
    let pods = mailbox.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
    let mut unschedulable = 0;
    for pod in pods {
        let scheduled = condition(&pod, "PodScheduled");
        if scheduled["reason"] != "Unschedulable" {
            continue;
        }
        let mut conditions = pod["status"]["conditions"].clone();
        let begun = jiff::Timestamp::now() - std::time::Duration::from_secs(3600);
        for condition in conditions.as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = begun.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        }
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let path = downstream_path(&format!("/api/v1/namespaces/shop/pods/{name}/status"));
        mailbox.merge(&path, json!({ "status": { "conditions": conditions } })).await?;
        unschedulable += 1;
    }
    Ok(unschedulable)
}

/// The free capacity of a cluster is enough in total, but not on any node. Pods that are unschedulable for a minute
/// move to another cluster, and do not return as soon as no pod is unschedulable.
#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pods_move_to_a_cluster_with_a_free_node() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let nodes = vec![NodeShape::new("a-1", "3500m", "32Gi", 110)];
    fleet.join(Options { nodes, ..Options::new("a") }, &[]).await?;
    fleet.join(Options::new("b"), &[]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(10)).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 8).await?;
    assert_eq!(shares(&fleet).await?, [Some(5), Some(5)]);
    let mailbox = fleet.member("a").mailbox.clone();
    until("two unschedulable pods are projected", async || {
        let pods = mailbox.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
        Ok(pods.iter().filter(|pod| condition(pod, "PodScheduled")["reason"] == "Unschedulable").count() == 2)
    })
    .await?;
    let history = History::of_deployments(&fleet).await?;
    // The pods' timestamps make them long unschedulable.
    fleet.stop_syncer("a").await;
    assert_eq!(backdate_unschedulable_pods(&mailbox).await?, 2);
    fleet.root.merge(WEB, json!({ "metadata": { "labels": { "touched": "yes" } } })).await?;
    until(
        "the other cluster's share includes them",
        async || Ok(shares(&fleet).await? == [Some(3), Some(7)]),
    )
    .await?;
    fleet.start_syncer("a");
    fleet.root.until_available(WEB, 10).await?;
    let record = fleet.root.until_exists(WEB_RECORD).await?;
    let estimates = record["metadata"]["annotations"]["holon.dev/estimates"].as_str().unwrap_or_default();
    assert!(estimates.contains("\"fits\":3"), "{estimates}");
    // Additional replicas go to the cluster with capacity too.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 12 } })).await?;
    let web = fleet.root.until_available(WEB, 12).await?;
    assert_eq!(shares(&fleet).await?, [Some(3), Some(9)]);
    check_total_so_far(&history, &web).await
}

/// The same for an app with one target and a fallback group. Unschedulable pods were considered only if there was more
/// than one target.
#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pods_on_the_only_target_fall_back() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    // The nodes have capacity for three replicas in total, but each node fits only one.
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
    fleet.root.create("/apis/holon.dev/v1alpha1/placements", spill).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(3)).await?;
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 2).await?;
    assert_eq!(shares(&fleet).await?, [Some(3), None]);
    let mailbox = fleet.member("a").mailbox.clone();
    until("an unschedulable pod is projected", async || {
        let pods = mailbox.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
        Ok(pods.iter().any(|pod| condition(pod, "PodScheduled")["reason"] == "Unschedulable"))
    })
    .await?;
    fleet.stop_syncer("a").await;
    assert_eq!(backdate_unschedulable_pods(&mailbox).await?, 1);
    fleet.root.merge(WEB, json!({ "metadata": { "labels": { "touched": "yes" } } })).await?;
    until("the fallback's share includes it", async || Ok(shares(&fleet).await?[1] == Some(1))).await?;
    fleet.start_syncer("a");
    let web = fleet.root.until_available(WEB, 3).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), Some(1)]);
    check_total_so_far(&history, &web).await
}

/// With `weights: Capacity`, shares are in proportion to the free capacity that syncers report, even if the workload is
/// as large as that capacity.
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
    fleet.root.create("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(12)).await?;
    fleet.root.until_available(WEB, 12).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), Some(4), Some(6)]);
    Ok(())
}

/// A ResourceQuota of the downstream namespace is a bound. Running replicas count as used.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_beyond_a_downstream_quota_are_placed_on_another_cluster() -> Result<()> {
    let mut fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    let quotas = downstream_path("/api/v1/namespaces/shop/resourcequotas");
    let hard = json!({ "requests.cpu": "2" });
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "small" }, "spec": { "hard": hard },
    });
    let downstream = fleet.member("a").downstream.clone();
    downstream.create(&quotas, quota).await?;
    // The stand-in does not count used quota; one of the two pods is ours.
    let counted = json!({ "status": { "hard": hard, "used": { "requests.cpu": "2" } } });
    downstream.merge(&format!("{quotas}/small/status"), counted).await?;
    // The syncer reads quotas once a minute, and when it starts.
    fleet.start_syncer("a");
    let path = format!("{PHYSICAL_CLUSTERS}/a");
    fleet.root.until(&path, |found| found["status"]["quotas"][0]["hard"]["requests.cpu"] == "2").await?;
    let is_counted = |record: &Value| {
        record["status"]["verdicts"].to_string().contains("a takes at most 1: a ResourceQuota")
    };
    let mut touches = 0;
    until("the verdict includes the quota", async || {
        touches += 1;
        fleet
            .root
            .merge(WEB, json!({ "metadata": { "labels": { "touches": touches.to_string() } } }))
            .await?;
        Ok(is_counted(&fleet.root.until_exists(WEB_RECORD).await?))
    })
    .await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 6 } })).await?;
    fleet.root.until_available(WEB, 6).await?;
    assert_eq!(shares(&fleet).await?, [Some(1), Some(5)]);
    Ok(())
}

/// The new target has capacity for four of six replicas. The other two stay on the old target until the new one has
/// capacity for all, and none is missing meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_do_not_fit_the_new_target_stay_on_the_old() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.change("b", json!({ "spec": { "bounds": { "cpu": "4" } } })).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(6)).await?;
    fleet.root.until_available(WEB, 6).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.place(SHOP, "b").await?;
    let is_waiting = |record: &Value| {
        let moving = condition(record, "Moving");
        moving["message"]
            .as_str()
            .is_some_and(|message| message.contains("2 of 6 are pending: no target has capacity for them"))
    };
    fleet.root.until(WEB_RECORD, is_waiting).await?;
    until("the replicas that fit have moved", async || Ok(shares(&fleet).await? == [Some(2), Some(4)]))
        .await?;
    fleet.change("b", json!({ "spec": { "bounds": { "cpu": "10" } } })).await?;
    until("all replicas have moved", async || Ok(shares(&fleet).await? == [None, Some(6)])).await?;
    let web = fleet.root.until_available(WEB, 6).await?;
    history.until_observed(&web).await?;
    check(&history.moments("shop", "web"), |_, now| now.available() >= 6);
    Ok(())
}

/// Returns a fleet with a fallback group: three replicas fit on the first cluster, more go to the second.
async fn fleet_with_fallback() -> Result<Fleet> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "3" } } })).await?;
    let placement = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "spill" },
        "spec": {
            "clusterSelector": { "names": ["a"] },
            "fallbackGroups": [{ "name": "second", "clusterSelector": { "names": ["b"] } }],
        },
    });
    fleet.root.create("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    Ok(fleet)
}

/// Replicas that do not fit the first group go to the next, and return when they fit.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_do_not_fit_use_the_fallback_group_and_return() -> Result<()> {
    let fleet = fleet_with_fallback().await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(shares(&fleet).await?, [Some(2), None]);
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 5 } })).await?;
    fleet.root.until_available(WEB, 5).await?;
    assert_eq!(shares(&fleet).await?, [Some(3), Some(2)]);
    fleet.change("a", json!({ "spec": { "bounds": { "cpu": "10" } } })).await?;
    until("all replicas have returned", async || {
        let shares = shares(&fleet).await?;
        Ok(shares[0] == Some(5) && shares[1].is_none_or(|share| share == 0))
    })
    .await?;
    let web = fleet.root.until_available(WEB, 5).await?;
    check_total_so_far(&history, &web).await
}

/// A workload on a fallback returned only after spec.bounds changed; deleting the blocking object queued nothing.
#[tokio::test(flavor = "multi_thread")]
async fn freed_capacity_returns_replicas_from_the_fallback() -> Result<()> {
    let fleet = fleet_with_fallback().await?;
    let mut other = one_cpu_web(2);
    other["metadata"]["name"] = json!("other");
    fleet.root.create(DEPLOYMENTS, other).await?;
    fleet.root.until_available(&format!("{DEPLOYMENTS}/other"), 2).await?;
    fleet.root.create(DEPLOYMENTS, one_cpu_web(2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(shares(&fleet).await?, [Some(1), Some(1)]);
    fleet.root.delete(&format!("{DEPLOYMENTS}/other")).await?;
    until("all replicas have returned", async || Ok(shares(&fleet).await? == [Some(2), None])).await
}

/// A Job reserved its completions; an undivided object reserved one replica.
#[tokio::test(flavor = "multi_thread")]
async fn used_capacity_counts_the_pods_that_run() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    for name in ["a", "b"] {
        fleet.change(name, json!({ "spec": { "bounds": { "cpu": "4" } } })).await?;
    }
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let pod = &one_cpu_web(1)["spec"]["template"]["spec"]["containers"];
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 50, "parallelism": 2, "template": {
            "metadata": { "annotations": { "standin.holon.dev/run": "1h" } },
            "spec": { "restartPolicy": "Never", "containers": pod },
        } },
    });
    fleet.root.create("/apis/batch/v1/namespaces/shop/jobs", job).await?;
    fleet.root.until("/apis/batch/v1/namespaces/shop/jobs/sums", |job| job["status"]["active"] == 2).await?;
    // One worker runs on each cluster, so each has capacity for three more.
    let placement = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "everywhere" },
        "spec": { "division": "Duplicate", "objectSelector": { "matchLabels": { "whole": "yes" } } },
    });
    fleet.root.create("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.merge(SHOP, json!({ "metadata": { "annotations": { "holon.dev/placement": null } } })).await?;
    let mut duplicated = one_cpu_web(2);
    duplicated["metadata"] = json!({ "name": "whole", "labels": { "whole": "yes" } });
    fleet.root.create(DEPLOYMENTS, duplicated).await?;
    for (_, member) in fleet.members() {
        let path = downstream_path(&format!("{DEPLOYMENTS}/whole"));
        member.downstream.until(&path, |duplicated| duplicated["status"]["availableReplicas"] == 2).await?;
    }
    let mut web = one_cpu_web(3);
    web["metadata"]["annotations"]["holon.dev/placement"] = json!("*");
    fleet.root.create(DEPLOYMENTS, web).await?;
    let record = fleet.root.until(WEB_RECORD, |record| record["spec"]["pending"] == 1).await?;
    assert_eq!(targets(&record), ["a Steady 1", "b Steady 1"]);
    Ok(())
}
