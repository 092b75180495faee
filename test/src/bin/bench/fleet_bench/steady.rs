//! Many physical clusters that are idle.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use standin::{Options, RequestCounts, Standin};
use testkit::Server;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::members::{deployment, join, mailbox, map, namespace, post, read, service, until};
use crate::api_bench::client::BenchConnection;
use crate::api_bench::target::BenchTarget;
use crate::measure::{Measurement, cpu_seconds_of, rss_bytes};

/// How many objects of each cluster are Deployments with two pods; as many are Services. One is the namespace; the rest
/// are ConfigMaps of a kilobyte.
const APPS: usize = 4;
/// A server is steady when nothing was written for so long.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
pub(super) struct FleetSize {
    pub(super) clusters: usize,
    pub(super) objects: usize,
}

pub(super) async fn measure(program: &Path, size: FleetSize, time: Duration) -> Result<Vec<Measurement>> {
    let FleetSize { clusters, objects } = size;
    ensure!(
        objects > 2 * APPS,
        "{objects} objects are too few to have {APPS} Deployments and Services among them"
    );
    println!("{clusters} stand-ins with {objects} objects each");
    let server = Server::start_with(program.to_owned(), &[]);
    let mut target = BenchTarget::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
    target.prefix.clear();
    let mut root = BenchConnection::open(&target).await?;
    let mut standins = Vec::new();
    for number in 0..clusters {
        standins.push(Standin::start(Options::new(format!("c{number}"))).await?);
    }
    let (before, begun) = (target.rss_bytes()?, Instant::now());
    let mut placing = JoinSet::new();
    for standin in &standins {
        let (mut root, name, kubeconfig) = (root.clone(), standin.name().to_owned(), standin.kubeconfig()?);
        placing.spawn(async move {
            join(&mut root, &name, &kubeconfig).await?;
            create_objects(&mut root, &name, objects).await
        });
    }
    while let Some(placed) = placing.join_next().await {
        placed??;
    }
    for standin in &standins {
        until("all objects run and are reported", async || ready(&mut root, standin.name()).await).await?;
    }
    let settled = begun.elapsed();
    until("no stand-in receives a write", async || {
        let before_counts = counts(&standins);
        sleep(QUIET).await;
        Ok(since(&standins, &before_counts).0 == 0)
    })
    .await?;
    println!("  all objects run after {settled:.1?}; no change for {time:?}");
    let (before_counts, cpu, bench_cpu) = (counts(&standins), target.cpu_seconds()?, cpu_seconds_of("self")?);
    sleep(time).await;
    let (writes, requests) = since(&standins, &before_counts);
    let (cpu, bench_cpu) = (target.cpu_seconds()? - cpu, cpu_seconds_of("self")? - bench_cpu);
    let percent = |seconds: f64| 100.0 * seconds / time.as_secs_f64();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let of = format!("{clusters} stand-ins with {objects} objects each");
    let grown = target.rss_bytes()?.saturating_sub(before) as f64;
    Ok(vec![
        Measurement::alone(format!("{of}: all objects run after"), "s", settled.as_secs_f64(), None),
        Measurement::alone("idle: writes to them", "1/min", per_minute(writes, time), Some("0")),
        Measurement::alone("idle: requests to them", "1/min", per_minute(requests, time), None),
        Measurement::alone("idle: Holon's processor time, of one core", "%", percent(cpu), None),
        Measurement::alone(
            "idle: processor time of all stand-ins, of one core",
            "%",
            percent(bench_cpu),
            None,
        ),
        Measurement::alone("memory of Holon", "MB", megabytes(target.rss_bytes()?), None),
        Measurement::alone("memory of Holon for each of them", "MB", grown / 1e6 / clusters as f64, None),
        Measurement::alone("memory of all stand-ins and the benchmark", "MB", megabytes(rss_bytes()?), None),
    ])
}

async fn create_objects(root: &mut BenchConnection, name: &str, objects: usize) -> Result<()> {
    let mailbox = mailbox(name);
    post(root, &format!("{mailbox}/api/v1/namespaces"), &namespace()).await?;
    for number in 0..APPS {
        let app = format!("app-{number}");
        post(root, &format!("{mailbox}{DEPLOYMENTS}"), &deployment(&app, 2)).await?;
        post(root, &format!("{mailbox}/api/v1/namespaces/shop/services"), &service(&app)).await?;
    }
    for number in 2 * APPS + 1..objects {
        let path = format!("{mailbox}/api/v1/namespaces/shop/configmaps");
        post(root, &path, &map(&format!("map-{number}"))).await?;
    }
    Ok(())
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

/// Returns whether all objects of a physical cluster run and are reported in its mailbox.
async fn ready(root: &mut BenchConnection, name: &str) -> Result<bool> {
    let mailbox = mailbox(name);
    let list = read(root, &format!("{mailbox}{DEPLOYMENTS}")).await?;
    let apps = list["items"].as_array().into_iter().flatten();
    let running = apps.filter(|app| app["status"]["readyReplicas"] == 2).count();
    let list =
        read(root, &format!("{mailbox}/api/v1/namespaces/shop/configmaps?labelSelector=holon.dev/placed"))
            .await?;
    let mut maps = list["items"].as_array().into_iter().flatten();
    let report = read(root, &format!("{mailbox}/apis/holon.dev/v1alpha1/physicalclusters/{name}")).await;
    let conditions = report.unwrap_or_default()["status"]["conditions"].take();
    let is_synced =
        |condition: &serde_json::Value| condition["type"] == "Synced" && condition["status"] == "True";
    Ok(running == APPS
        && maps.all(|map| map["metadata"]["finalizers"].is_array())
        && conditions.as_array().is_some_and(|all| all.iter().any(is_synced)))
}

fn counts(standins: &[Standin]) -> Vec<RequestCounts> {
    standins.iter().map(Standin::requests).collect()
}

/// Returns the number of writes, and of requests of any kind, since `before`.
fn since(standins: &[Standin], before: &[RequestCounts]) -> (u64, u64) {
    let growth = standins.iter().zip(before).map(|(standin, before)| standin.requests().since(before));
    growth.fold((0, 0), |(writes, all), growth| (writes + growth.writes(), all + growth.total()))
}

fn per_minute(count: u64, time: Duration) -> f64 {
    count as f64 * 60.0 / time.as_secs_f64()
}
