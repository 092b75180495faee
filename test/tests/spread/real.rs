//! The same with real Kubernetes downstream: two API servers with their controllers, schedulers, and simulated nodes.
//! Only these tests of the suite need real clusters.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use scenarios::availability::Availability;
use scenarios::client::{condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use scenarios::history::{History, Moment, check};
use serde_json::{Value, json};
use testkit::peers::Cluster;

use crate::app::*;
use crate::kinds::autoscalers::check_bounds_on;
use crate::kinds::cron_jobs::{every_minute, until_on_one_cluster};
use crate::kinds::guestbook::check_guestbook_on;
use crate::kinds::jobs::{JOBS, check_hundred_completions_on};
use crate::replicas::{PLACEMENTS, check_maximums_on, check_weights_on, scale_through_totals_on};

async fn client(cluster: &Cluster) -> Result<Client> {
    let config = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Deletes all objects of the previous story.
async fn reset(fleet: &Fleet) -> Result<()> {
    fleet.root.delete(SHOP).await?;
    fleet.root.until_deleted(SHOP).await?;
    for (_, member) in fleet.members() {
        member.downstream.until_deleted(&downstream_path(SHOP)).await?;
    }
    for placement in fleet.root.list(PLACEMENTS).await? {
        let name = placement["metadata"]["name"].as_str().unwrap_or_default();
        fleet.root.delete(&format!("{PLACEMENTS}/{name}")).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two real Kubernetes clusters"]
async fn two_real_clusters_run_the_workloads_of_one_user() -> Result<()> {
    let (east, west) = (Cluster::start(&[]), Cluster::start(&[]));
    let mut fleet = Fleet::alone().await?;
    fleet.join_server("east", client(&east).await?, &[], None).await?;
    fleet.join_server("west", client(&west).await?, &[], None).await?;
    check_guestbook_on(&fleet).await?;
    move_on(&fleet).await?;
    reset(&fleet).await?;

    // Zero, one, few, many and few replicas again: the requested total is exact at every revision.
    scale_through_totals_on(&fleet).await?;
    reset(&fleet).await?;
    check_weights_on(&fleet, &[("east", 1), ("west", 3)], &[(2, &[1, 1]), (4, &[1, 3]), (9, &[2, 7])])
        .await?;
    reset(&fleet).await?;
    let bounds = json!([
        { "clusterSelector": { "names": ["east"] }, "max": 2 },
        { "clusterSelector": { "names": ["west"] }, "min": 1, "max": 5 },
    ]);
    check_maximums_on(&fleet, bounds, &[2, 5]).await?;
    reset(&fleet).await?;
    check_hundred_completions_on(&fleet, &[50]).await?;
    reset(&fleet).await?;
    check_bounds_on(&fleet).await?;
    reset(&fleet).await?;
    check_fires_once_on(&fleet).await?;
    assert!(east.down() && west.down(), "the cluster could not be removed completely");
    Ok(())
}

/// Scales, updates and moves an app, as on stand-ins.
async fn move_on(fleet: &Fleet) -> Result<()> {
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 3)).await?;
    fleet.root.until_available(WEB, 3).await?;
    let history = History::of_deployments(fleet).await?;
    // Moments completed since the last call.
    let new_moments = async |web: &Value, seen: &mut usize| -> Result<Vec<Moment>> {
        history.until_observed(web).await?;
        let moments = history.moments("shop", "web").split_off(*seen);
        *seen += moments.len().saturating_sub(1);
        Ok(moments)
    };
    let mut seen = 0;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 8 } })).await?;
    let web = fleet.root.until_available(WEB, 8).await?;
    assert_eq!(shares(fleet).await?, [Some(4), Some(4)]);
    let scaled = new_moments(&web, &mut seen).await?;
    check(&scaled, |before, now| now.requested() <= 8 && now.available() >= before.available());

    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, image).await?;
    let web = fleet.root.until_available(WEB, 8).await?;
    let updated = new_moments(&web, &mut seen).await?;
    // A quarter of eight may be unavailable, and as many may exist as surge.
    check(&updated, |_, now| now.requested() == 8 && now.available() >= 6);
    check(&updated, |_, now| now.sum("/status/replicas") <= 10);

    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").downstream.until_deleted(&downstream_path(WEB)).await?;
    let web = fleet.root.until_available(WEB, 8).await?;
    let moved = new_moments(&web, &mut seen).await?;
    // All replicas are available on the target before any is deleted on the source.
    check(&moved, |_, now| now.available() >= 8 && (8..=16).contains(&now.requested()));
    Ok(())
}

/// A CronJob runs on one cluster, so each minute has one Job, not one per cluster.
async fn check_fires_once_on(fleet: &Fleet) -> Result<()> {
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let crons = "/apis/batch/v1/namespaces/shop/cronjobs";
    fleet.root.create(crons, every_minute()).await?;
    until_on_one_cluster(fleet, &format!("{crons}/nightly")).await?;
    let mut names = Vec::new();
    // One retry, because a CronJob needs up to a minute.
    for _ in 0..2 {
        let fired = until("the CronJob fires", async || {
            names.clear();
            for (_, member) in fleet.members() {
                for job in member.downstream.list(&downstream_path(JOBS)).await? {
                    names.push(job["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                }
            }
            Ok(!names.is_empty())
        });
        if fired.await.is_ok() {
            break;
        }
    }
    // The name of a Job contains its scheduled minute.
    let minutes: BTreeSet<&String> = names.iter().collect();
    assert!(!names.is_empty() && minutes.len() == names.len(), "{names:?}");
    let is_reported = |cron: &Value| cron["status"]["lastScheduleTime"].is_string();
    fleet.root.until(&format!("{crons}/nightly"), is_reported).await?;
    Ok(())
}

/// How often an app is moved; `hack/moves` sets a larger number.
const MOVES: usize = 3;
/// How long the test waits with a target that cannot run the pods.
const UNSCHEDULABLE_WAIT: Duration = Duration::from_secs(15);

/// Every move between real clusters deleted the source too early. kube-controller-manager's first status of a
/// Deployment has conditions only: no counters and no observedGeneration. It counted as observed and available, so the
/// source was deleted within 20 ms, and ready pods went from 6 to 0 to 6. With a target that could never run the pods,
/// the app stayed down.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two real Kubernetes clusters"]
async fn a_move_between_real_clusters_keeps_every_pod_ready() -> Result<()> {
    let (east, west) = (Cluster::start(&[]), Cluster::start(&[]));
    let mut fleet = Fleet::alone().await?;
    fleet.join_server("east", client(&east).await?, &[], None).await?;
    fleet.join_server("west", client(&west).await?, &[], None).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let mut web = deployment("web", 6);
    // Kubernetes counts from the whole second in which a pod became ready, so one second may be over at once.
    web["spec"]["minReadySeconds"] = 3.into();
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 6).await?;
    let availability = Availability::watch(&fleet, "shop", "web").await?;
    let rounds: usize = std::env::var("HOLON_MOVES").ok().and_then(|text| text.parse().ok()).unwrap_or(MOVES);
    for round in 0..rounds {
        let (from, to) = if round.is_multiple_of(2) { ("east", "west") } else { ("west", "east") };
        let begun = Instant::now();
        fleet.root.place(SHOP, to).await?;
        fleet.member(from).downstream.until_deleted(&downstream_path(WEB)).await?;
        fleet.root.until_available(WEB, 6).await?;
        let lowest = availability.lowest(begun);
        eprintln!("move {} to {to}: at least {lowest} of 6 ready, {:.1?}", round + 1, begun.elapsed());
        let timeline = || availability.timeline(begun);
        assert!(lowest >= 6, "{lowest} of 6 pods ready at an event of the move to {to}:\n{}", timeline());
    }

    let (from, to, cordoned) =
        if rounds.is_multiple_of(2) { ("east", "west", &west) } else { ("west", "east", &east) };
    for node in fleet.member(to).downstream.list("/api/v1/nodes").await? {
        cordoned.run(&["cordon", node["metadata"]["name"].as_str().unwrap_or_default()], "");
    }
    let begun = Instant::now();
    fleet.root.place(SHOP, to).await?;
    let is_observed = |object: &Value| object["status"]["observedGeneration"].is_i64();
    fleet.member(to).downstream.until(&downstream_path(WEB), is_observed).await?;
    tokio::time::sleep(UNSCHEDULABLE_WAIT).await;
    assert!(availability.lowest(begun) >= 6, "the source was deleted for a target that cannot run the pods");
    let source = fleet.member(from).downstream.get(&downstream_path(WEB)).await?.unwrap_or_default();
    assert_eq!(source["status"]["availableReplicas"], 6);
    // Once the target can run them, the move ends.
    for node in fleet.member(to).downstream.list("/api/v1/nodes").await? {
        cordoned.run(&["uncordon", node["metadata"]["name"].as_str().unwrap_or_default()], "");
    }
    fleet.member(from).downstream.until_deleted(&downstream_path(WEB)).await?;
    assert!(availability.lowest(begun) >= 6);
    assert!(east.down() && west.down(), "the cluster could not be removed completely");
    Ok(())
}

/// A Deployment named a PriorityClass of its logical cluster. The physical cluster had no class of that name and
/// rejected every pod; the user saw a Deployment without pods and without a reason.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn a_missing_class_is_reported_and_can_be_mapped() -> Result<()> {
    let east = Cluster::start(&[]);
    east.run(&["create", "priorityclass", "tenant-high", "--value=1000"], "");
    let mut fleet = Fleet::alone().await?;
    fleet.join_server("east", client(&east).await?, &[], None).await?;
    let has_class = |found: &Value| found["status"]["classes"].to_string().contains("tenant-high");
    fleet.root.until(&format!("{PHYSICAL_CLUSTERS}/east"), has_class).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["priorityClassName"] = "high".into();
    fleet.root.create(DEPLOYMENTS, web).await?;
    let is_reported = |web: &Value| condition(web, "ClassesFound")["status"] == "False";
    let held_web = fleet.root.until(WEB, is_reported).await?;
    let message = condition(&held_web, "ClassesFound")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("east has no PriorityClass high; an admin can"), "{message}");
    until("an Event reports the class", async || {
        let events = fleet.root.list("/api/v1/namespaces/shop/events").await?;
        Ok(events.iter().any(|event| event["reason"] == "ClassNotFound" && event["message"] == *message))
    })
    .await?;
    let mapping = json!([{ "kind": "PriorityClass", "from": "high", "to": "tenant-high" }]);
    fleet.change("east", json!({ "spec": { "classMappings": mapping } })).await?;
    let web = fleet.root.until_available(WEB, 2).await?;
    assert!(condition(&web, "ClassesFound").is_null(), "{web:#}");
    assert_eq!(web["spec"]["template"]["spec"]["priorityClassName"], "high");
    let pods = fleet.member("east").downstream.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
    assert!(pods.iter().all(|pod| pod["spec"]["priority"] == 1000), "{pods:#?}");
    assert!(east.down(), "the cluster could not be removed completely");
    Ok(())
}
