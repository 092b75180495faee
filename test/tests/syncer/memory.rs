//! The memory of a syncer depends on what is placed, not on what else a physical cluster runs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::connections::create_workload;
use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::*;

/// Foreign pods, in a namespace without placed objects.
const FOREIGN: usize = 5_000;
const FOREIGN_BYTES: usize = 16 << 10;
/// If the syncer kept foreign pods, they would take 80 MiB as text, and several times that as trees.
const GROWTH_MAX_KIB: u64 = 40 << 10;
const PATIENCE: Duration = Duration::from_secs(120);

/// An app is placed, so the syncer watches pods, and counts all pods for the inventory. It must not keep foreign ones.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_others_take_no_memory() -> Result<()> {
    let mut joined = JoinedCluster::new(Physical::standin().await?, SyncMode::Pull).await?;
    create_workload(&joined).await?;
    let before = restart_and_measure_kib(&mut joined, 2).await?;
    if let Physical::Standin(standin) = &joined.physical {
        // The stand-in's controllers need not handle them.
        standin.freeze();
    }
    create_foreign_pods(&joined.downstream).await?;
    let after = restart_and_measure_kib(&mut joined, 2 + FOREIGN).await?;
    println!("{before} KiB without {FOREIGN} pods of others, {after} KiB with them");
    assert!(after < before + GROWTH_MAX_KIB, "{before} KiB, then {after} KiB");
    Ok(())
}

/// Starts another syncer, and returns its memory once it has counted so many pods and is in sync.
async fn restart_and_measure_kib(joined: &mut JoinedCluster, pods: usize) -> Result<u64> {
    joined.start_pull_syncer()?;
    let (begun, expected_pods) = (Instant::now(), pods.to_string());
    while joined.report().await?["status"]["requested"]["pods"] != *expected_pods {
        let report = joined.report().await?;
        ensure!(begun.elapsed() < PATIENCE, "the syncer has not counted {pods} pods: {:#}", report["status"]);
        sleep(Duration::from_millis(200)).await;
    }
    let value = format!("with {pods} pods");
    joined.mailbox.merge(&format!("{CONFIG_MAPS}/settings"), json!({ "data": { "key": value } })).await?;
    joined
        .downstream
        .until(&format!("{CONFIG_MAPS}/settings"), |found| found["data"]["key"] == value)
        .await?;
    resident_kib(joined.pid().context("the pull syncer does not run")?)
}

async fn create_foreign_pods(downstream: &TestClient) -> Result<()> {
    downstream.create(NAMESPACES, namespace("foreign")).await?;
    let pod = |number: usize| -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("p{number}"), "annotations": { "ballast": "x".repeat(FOREIGN_BYTES) } },
            "spec": { "nodeName": "east-1", "containers": [{ "name": "main", "image": "main:1" }] },
        })
    };
    let creations = stream::iter(0..FOREIGN)
        .map(|number| downstream.create("/api/v1/namespaces/foreign/pods", pod(number)));
    creations.buffer_unordered(16).try_for_each(async |_| Ok(())).await
}

fn resident_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the status has no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
