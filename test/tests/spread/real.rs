//! The same with real Kubernetes below: two API servers with their controllers, schedulers, and nodes on which pods seem to
//! run. Only these tests of the suite need them.

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
use crate::kinds::{JOBS, autoscaled_in, every_minute, guestbook_in, hundred_in, in_one_place};
use crate::numbers::{PLACEMENTS, capped_in, scaled_in, weighted_in};

async fn client(cluster: &Cluster) -> Result<Client> {
    let config = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Nothing of a story is in the way of the next.
async fn emptied(fleet: &Fleet) -> Result<()> {
    fleet.root.delete(SHOP).await?;
    fleet.root.until_gone(SHOP).await?;
    for (_, member) in fleet.members() {
        member.below.until_gone(&there(SHOP)).await?;
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
    guestbook_in(&fleet).await?;
    moved_in(&fleet).await?;
    emptied(&fleet).await?;

    // Nothing, one, few, many and few again: asked for exactly, at every instant.
    scaled_in(&fleet).await?;
    emptied(&fleet).await?;
    weighted_in(&fleet, &[("east", 1), ("west", 3)], &[(2, &[1, 1]), (4, &[1, 3]), (9, &[2, 7])]).await?;
    emptied(&fleet).await?;
    let bounds = json!([
        { "clusterSelector": { "names": ["east"] }, "max": 2 },
        { "clusterSelector": { "names": ["west"] }, "min": 1, "max": 5 },
    ]);
    capped_in(&fleet, bounds, &[2, 5]).await?;
    emptied(&fleet).await?;
    hundred_in(&fleet, &[50]).await?;
    emptied(&fleet).await?;
    autoscaled_in(&fleet).await?;
    emptied(&fleet).await?;
    fired_once_in(&fleet).await?;
    assert!(east.down() && west.down(), "nothing is left behind");
    Ok(())
}

/// Scaled, updated and moved, as on stand-ins.
async fn moved_in(fleet: &Fleet) -> Result<()> {
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 3)).await?;
    fleet.root.until_available(WEB, 3).await?;
    let history = History::of_deployments(fleet).await?;
    // What has happened since the last time this was asked, as far as it is over.
    let stretch = async |web: &Value, seen: &mut usize| -> Result<Vec<Moment>> {
        history.hears(web).await?;
        let moments = history.moments("shop", "web").split_off(*seen);
        *seen += moments.len().saturating_sub(1);
        Ok(moments)
    };
    let mut seen = 0;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 8 } })).await?;
    let web = fleet.root.until_available(WEB, 8).await?;
    assert_eq!(shares(fleet).await?, [Some(4), Some(4)]);
    let scaled = stretch(&web, &mut seen).await?;
    check(&scaled, |before, now| now.asked() <= 8 && now.available() >= before.available());

    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, image).await?;
    let web = fleet.root.until_available(WEB, 8).await?;
    let updated = stretch(&web, &mut seen).await?;
    // A quarter of eight may be missing, and as many may be there besides.
    check(&updated, |_, now| now.asked() == 8 && now.available() >= 6);
    check(&updated, |_, now| now.sum("/status/replicas") <= 10);

    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").below.until_gone(&there(WEB)).await?;
    let web = fleet.root.until_available(WEB, 8).await?;
    let moved = stretch(&web, &mut seen).await?;
    // There in full before anything goes.
    check(&moved, |_, now| now.available() >= 8 && (8..=16).contains(&now.asked()));
    Ok(())
}

/// A CronJob is in one place, so each minute has one Job and not one of each cluster.
async fn fired_once_in(fleet: &Fleet) -> Result<()> {
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let crons = "/apis/batch/v1/namespaces/shop/cronjobs";
    fleet.root.make(crons, every_minute()).await?;
    in_one_place(fleet, &format!("{crons}/nightly")).await?;
    let mut names = Vec::new();
    // A minute may have to pass, which is as long as anybody here is patient: so again.
    for _ in 0..2 {
        let fired = until("it fires", async || {
            names.clear();
            for (_, member) in fleet.members() {
                for job in member.below.list(&there(JOBS)).await? {
                    names.push(job["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                }
            }
            Ok(!names.is_empty())
        });
        if fired.await.is_ok() {
            break;
        }
    }
    // Jobs are named after the minute they are for.
    let minutes: BTreeSet<&String> = names.iter().collect();
    assert!(!names.is_empty() && minutes.len() == names.len(), "{names:?}");
    let is_told = |cron: &Value| cron["status"]["lastScheduleTime"].is_string();
    fleet.root.until(&format!("{crons}/nightly"), is_told).await?;
    Ok(())
}

/// How often an app is moved there and back; `hack/moves` asks for more.
const MOVES: usize = 3;
/// How long a target that cannot run the pods is tried.
const HOPELESS: Duration = Duration::from_secs(15);

/// Every move between real clusters broke before it made. kube-controller-manager's first status of a Deployment has
/// conditions only: no counters and no observedGeneration. It counted as observed and available, so the source was deleted
/// within 20 ms, and ready pods went from 6 to 0 to 6. With a target that could never run the pods the app was gone for good.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two real Kubernetes clusters"]
async fn a_move_between_real_clusters_keeps_every_pod_ready() -> Result<()> {
    let (east, west) = (Cluster::start(&[]), Cluster::start(&[]));
    let mut fleet = Fleet::alone().await?;
    fleet.join_server("east", client(&east).await?, &[], None).await?;
    fleet.join_server("west", client(&west).await?, &[], None).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let mut web = deployment("web", 6);
    // Kubernetes counts from the whole second in which a pod became ready, so one second may be over at once.
    web["spec"]["minReadySeconds"] = 3.into();
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 6).await?;
    let availability = Availability::watch(&fleet, "shop", "web").await?;
    let rounds: usize = std::env::var("HOLON_MOVES").ok().and_then(|text| text.parse().ok()).unwrap_or(MOVES);
    for round in 0..rounds {
        let (from, to) = if round.is_multiple_of(2) { ("east", "west") } else { ("west", "east") };
        let begun = Instant::now();
        fleet.root.place(SHOP, to).await?;
        fleet.member(from).below.until_gone(&there(WEB)).await?;
        fleet.root.until_available(WEB, 6).await?;
        let lowest = availability.lowest(begun);
        eprintln!("move {} to {to}: at least {lowest} of 6 ready, {:.1?}", round + 1, begun.elapsed());
        let timeline = || availability.timeline(begun);
        assert!(lowest >= 6, "{lowest} of 6 pods ready at an event of the move to {to}:\n{}", timeline());
    }

    let (from, to, hopeless) =
        if rounds.is_multiple_of(2) { ("east", "west", &west) } else { ("west", "east", &east) };
    for node in fleet.member(to).below.list("/api/v1/nodes").await? {
        hopeless.run(&["cordon", node["metadata"]["name"].as_str().unwrap_or_default()], "");
    }
    let begun = Instant::now();
    fleet.root.place(SHOP, to).await?;
    let arrived = |object: &Value| object["status"]["observedGeneration"].is_i64();
    fleet.member(to).below.until(&there(WEB), arrived).await?;
    tokio::time::sleep(HOPELESS).await;
    assert!(availability.lowest(begun) >= 6, "the source is left for a target that cannot run the pods");
    let source = fleet.member(from).below.get(&there(WEB)).await?.unwrap_or_default();
    assert_eq!(source["status"]["availableReplicas"], 6);
    // Once the target can run them, the move ends.
    for node in fleet.member(to).below.list("/api/v1/nodes").await? {
        hopeless.run(&["uncordon", node["metadata"]["name"].as_str().unwrap_or_default()], "");
    }
    fleet.member(from).below.until_gone(&there(WEB)).await?;
    assert!(availability.lowest(begun) >= 6);
    assert!(east.down() && west.down(), "nothing is left behind");
    Ok(())
}

/// A Deployment named a PriorityClass of its logical cluster. The physical cluster had none of that name and refused every
/// pod; the user saw a Deployment without pods and nothing that said why.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn a_class_that_a_real_cluster_lacks_is_named_and_an_admin_maps_it() -> Result<()> {
    let east = Cluster::start(&[]);
    east.run(&["create", "priorityclass", "tenant-high", "--value=1000"], "");
    let mut fleet = Fleet::alone().await?;
    fleet.join_server("east", client(&east).await?, &[], None).await?;
    let counted = |found: &Value| found["status"]["classes"].to_string().contains("tenant-high");
    fleet.root.until(&format!("{PHYSICAL_CLUSTERS}/east"), counted).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["priorityClassName"] = "high".into();
    fleet.root.make(DEPLOYMENTS, web).await?;
    let is_told = |web: &Value| condition(web, "ClassesFound")["status"] == "False";
    let told = fleet.root.until(WEB, is_told).await?;
    let message = condition(&told, "ClassesFound")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("east has no PriorityClass high; an admin can"), "{message}");
    until("an Event says so", async || {
        let events = fleet.root.list("/api/v1/namespaces/shop/events").await?;
        Ok(events.iter().any(|event| event["reason"] == "ClassNotFound" && event["message"] == *message))
    })
    .await?;
    let mapping = json!([{ "kind": "PriorityClass", "from": "high", "to": "tenant-high" }]);
    fleet.change("east", json!({ "spec": { "classMappings": mapping } })).await?;
    let web = fleet.root.until_available(WEB, 2).await?;
    assert!(condition(&web, "ClassesFound").is_null(), "{web:#}");
    assert_eq!(web["spec"]["template"]["spec"]["priorityClassName"], "high");
    let pods = fleet.member("east").below.list(&there("/api/v1/namespaces/shop/pods")).await?;
    assert!(pods.iter().all(|pod| pod["spec"]["priority"] == 1000), "{pods:#?}");
    assert!(east.down(), "nothing is left behind");
    Ok(())
}
