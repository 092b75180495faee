//! A logical cluster of one Holon is the physical cluster of another.
//!
//! ```text
//!   Holon: root:mailbox-east ──► Holon: root:east ──► mailbox ──► a stand-in
//!     pods, status, capacity ◄───────── the same ◄──── the same ◄── real
//! ```
//!
//! Projections and streams follow the same rules on both levels.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::joined::{JoinedCluster, Physical, SyncMode, kube_client};
use crate::setup::*;

const PATIENCE: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread")]
async fn pods_two_levels_down_are_counted_and_reached_with_push() -> Result<()> {
    check_two_levels(JoinedCluster::new(Physical::levels(Vec::new()).await?, SyncMode::Push).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_two_levels_down_are_counted_and_reached_with_pull() -> Result<()> {
    check_two_levels(JoinedCluster::new(Physical::levels(Vec::new()).await?, SyncMode::Pull).await?).await
}

async fn check_two_levels(joined: JoinedCluster) -> Result<()> {
    let lowest_level = joined.physical.lowest_level().context("the physical cluster has no lower level")?;
    joined.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    joined.mailbox.create(DEPLOYMENTS, placed(deployment("web"))).await?;
    let path = format!("{DEPLOYMENTS}/web");
    joined.mailbox.until(&path, |found| found["status"]["readyReplicas"] == 2).await?;

    // All levels have the same pods, with the same addresses.
    let mut pods_by_level = [Vec::new(), Vec::new(), Vec::new()];
    let clients = [&joined.mailbox, &joined.downstream, &lowest_level];
    let equal = until("all levels have the same pods", async || {
        for (level, client) in pods_by_level.iter_mut().zip(clients) {
            *level = pods(client).await?;
        }
        Ok(pods_by_level[2].len() == 2
            && pods_by_level[0] == pods_by_level[1]
            && pods_by_level[1] == pods_by_level[2])
    });
    equal.await.with_context(|| format!("{pods_by_level:#?}"))?;

    // The node capacity of the stand-in is the capacity of the logical cluster, which is the capacity that the upper
    // physical cluster reports.
    let real =
        lowest_level.get("/api/v1/nodes").await?.unwrap_or_default()["items"][0]["status"]["allocatable"]
            .take();
    ensure!(real["cpu"].is_string(), "{real:#}");
    let (mut report, begun) = (Value::Null, Instant::now());
    // The inventory is counted once a minute, and a logical cluster has nodes once it uses them.
    while ["cpu", "memory", "pods"].iter().any(|name| report["allocatable"][*name] != real[*name]) {
        ensure!(begun.elapsed() < PATIENCE, "{report:#}, not {real:#}");
        sleep(Duration::from_millis(200)).await;
        report = joined.report().await?["status"].take();
    }
    ensure!(report["requested"]["pods"] == "2" && report["nodes"]["ready"] == 1, "{report:#}");

    // The log of a pod is read through both levels.
    let log = format!("{PODS}/{}/log", pods_by_level[0][0].0);
    let expected = lowest_level_log(&lowest_level, &log).await?;
    let reader = kube_client(&joined.holon.kubeconfig_file("root:mailbox-east")).await?;
    let mut log_text = String::new();
    let read = until("the log can be read", async || {
        let request = http::Request::get(&log).body(Vec::new())?;
        log_text = match reader.request_text(request).await {
            Ok(text) => text,
            Err(error) => error.to_string(),
        };
        Ok(log_text == expected)
    });
    read.await.with_context(|| log_text.clone())
}

async fn lowest_level_log(lowest_level: &TestClient, path: &str) -> Result<String> {
    let log_text = lowest_level.0.client().request_text(http::Request::get(path).body(Vec::new())?).await?;
    ensure!(!log_text.is_empty(), "the log of the pod is empty");
    Ok(log_text)
}

/// Returns the names and IP addresses of the pods; the addresses are only in their status.
async fn pods(client: &TestClient) -> Result<Vec<(String, String)>> {
    let list = client.get(PODS).await?.unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pod = |pod: &Value| (text(&pod["metadata"]["name"]), text(&pod["status"]["podIP"]));
    let mut pods: Vec<_> = list["items"].as_array().into_iter().flatten().map(pod).collect();
    pods.sort();
    Ok(pods)
}
