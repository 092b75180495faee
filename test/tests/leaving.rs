//! The deletion of a large logical cluster reports its progress, and afterwards the server is as small as before.
//!
//! The server once kept most of its peak memory: write buffers of the store lingered, and on systems with huge pages
//! the kernel refilled those as soon as parts of them were freed. A second large logical cluster is created and deleted
//! after the first, because leftovers of the first would add up.
//!
//! The test asserts nothing about speed; what does not happen within [`PATIENCE`] fails with everything that was
//! observed.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testkit::Server;

/// With its metadata, each takes about 3 KB: together several times the memory of an idle server.
const OBJECTS: usize = 20_000;
const VALUE_BYTES: usize = 2_000;
/// Creates in flight at once.
const TOGETHER: usize = 64;
/// At most this fraction of the objects' memory may stay: partly used pages, tables of the allocator, buffers of the
/// clients' connections.
const STAYS: u64 = 3;
/// How long a wait may take. A watch also ends by itself after some minutes.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_logical_cluster_leaves_step_by_step_and_gives_its_memory_back() -> Result<()> {
    // The history keeps deleted objects in memory, so it is short here.
    let server = scenarios::holon::start(&["--history-seconds=1"])?;
    let root = client(&server, "root").await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("holon.dev", "v1alpha1", "LogicalCluster"));
    let clusters: Api<DynamicObject> = Api::all_with(root, &resource);
    let before = resident_kb(&server)?;
    for name in ["first", "second"] {
        clusters.create(&PostParams::default(), &DynamicObject::new(name, &resource)).await?;
        fill(client(&server, &format!("root:{name}")).await?).await?;
        let full = resident_kb(&server)?;
        ensure!(full > 2 * before, "{name} takes too little to tell: {before} kB, and {full} kB when full");
        let steps = delete(&clusters, name).await?;
        println!("{name}: {steps:?}");
        ensure!(steps.len() > 1, "{name} went all at once: {steps:?}");
        ensure!(
            steps.is_sorted_by(|earlier, later| earlier > later),
            "{name} did not go steadily: {steps:?}"
        );
        until_small(&server, name, before, full).await?;
    }
    Ok(())
}

/// With huge pages, the kernel would refill freed memory. Recent kernels report for each process whether it may use
/// them.
#[test]
fn a_server_has_no_huge_pages() -> Result<()> {
    let server = scenarios::holon::start(&[])?;
    match status(&server, "THP_enabled:") {
        Ok(enabled) => ensure!(enabled == "0", "THP_enabled is {enabled}"),
        Err(unknown) => println!("this kernel does not say: {unknown:#}"),
    }
    Ok(())
}

async fn client(server: &Server, cluster: &str) -> Result<Client> {
    let config = Kubeconfig::read_from(server.kubeconfig_file(cluster))?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn fill(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let map = |nth: usize| -> Result<ConfigMap> {
        let (name, value) = (format!("map-{nth}"), "x".repeat(VALUE_BYTES));
        Ok(serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "value": value } }))?)
    };
    stream::iter(0..OBJECTS)
        .map(|nth| {
            let maps = &maps;
            async move { anyhow::Ok(maps.create(&PostParams::default(), &map(nth)?).await.map(drop)?) }
        })
        .buffer_unordered(TOGETHER)
        .try_collect()
        .await
}

/// Deletes a logical cluster. Returns the distinct numbers of remaining objects that its status reported until it was
/// deleted.
async fn delete(clusters: &Api<DynamicObject>, name: &str) -> Result<Vec<usize>> {
    let now = clusters.list_metadata(&ListParams::default().limit(1)).await?;
    let version = now.metadata.resource_version.context("a list has a version")?;
    let of_it = WatchParams::default().fields(&format!("metadata.name={name}"));
    // A watch, because polling would miss some of the reported numbers.
    let mut events = pin!(clusters.watch(&of_it, &version).await?);
    clusters.delete(name, &DeleteParams::default()).await?;
    let mut steps = Vec::new();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Modified(found) => {
                let message = found.data.pointer("/status/conditions/0/message").and_then(Value::as_str);
                let left = message.and_then(|message| message.strip_suffix(" objects remain")?.parse().ok());
                steps.extend(left.filter(|left| steps.last() != Some(left)));
            }
            WatchEvent::Deleted(_) => return Ok(steps),
            other => bail!("after {steps:?}: {other:?}"),
        }
    }
    bail!("the watch ended before {name} was gone; it said {steps:?} were left")
}

async fn until_small(server: &Server, name: &str, before: u64, full: u64) -> Result<()> {
    let (since, most, mut seen) = (Instant::now(), before + (full - before) / STAYS, Vec::new());
    loop {
        seen.push(resident_kb(server)?);
        if seen.last().is_some_and(|now| *now <= most) {
            println!("{name}: {before} kB before, {full} kB full, then {seen:?}");
            return Ok(());
        }
        ensure!(
            since.elapsed() < PATIENCE,
            "{name} left memory behind: {before} kB before, {full} kB full, to be {most} kB; once a second: {seen:?}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Returns the server's resident memory.
fn resident_kb(server: &Server) -> Result<u64> {
    Ok(status(server, "VmRSS:")?.trim_end_matches(" kB").parse()?)
}

/// Returns a field of the server's `/proc/<pid>/status`.
fn status(server: &Server, field: &str) -> Result<String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    Ok(line.with_context(|| format!("no {field} in {status}"))?.trim().to_owned())
}
