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
/// Create requests in flight at once.
const IN_FLIGHT: usize = 64;
/// At most this fraction of the objects' memory may stay: partly used pages, tables of the allocator, buffers of the
/// clients' connections.
const REMAINING_FRACTION: u64 = 3;
/// How long a wait may take. A watch also ends by itself after some minutes.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_large_logical_cluster_reports_progress_and_frees_its_memory() -> Result<()> {
    // The history keeps deleted objects in memory, so it is short here.
    let server = scenarios::holon::start(&["--history-seconds=1"])?;
    let root = client(&server, "root").await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("holon.dev", "v1alpha1", "LogicalCluster"));
    let clusters: Api<DynamicObject> = Api::all_with(root, &resource);
    let before_kb = resident_kb(&server)?;
    for name in ["first", "second"] {
        clusters.create(&PostParams::default(), &DynamicObject::new(name, &resource)).await?;
        create_objects(client(&server, &format!("root:{name}")).await?).await?;
        let full_kb = resident_kb(&server)?;
        ensure!(
            full_kb > 2 * before_kb,
            "the objects of {name} take too little memory for the test: {before_kb} kB before, {full_kb} kB after"
        );
        let remaining_counts = delete(&clusters, name).await?;
        println!("{name}: {remaining_counts:?}");
        ensure!(
            remaining_counts.len() > 1,
            "the status of {name} reported no intermediate counts: {remaining_counts:?}"
        );
        ensure!(
            remaining_counts.is_sorted_by(|earlier, later| earlier > later),
            "the counts of {name} do not decrease: {remaining_counts:?}"
        );
        until_memory_is_freed(&server, name, before_kb, full_kb).await?;
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
        Err(unknown) => println!("this kernel does not report THP_enabled: {unknown:#}"),
    }
    Ok(())
}

async fn client(server: &Server, cluster: &str) -> Result<Client> {
    let config = Kubeconfig::read_from(server.kubeconfig_file(cluster))?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn create_objects(client: Client) -> Result<()> {
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
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

/// Deletes a logical cluster. Returns the distinct numbers of remaining objects that its status reported until it was
/// deleted.
async fn delete(clusters: &Api<DynamicObject>, name: &str) -> Result<Vec<usize>> {
    let now = clusters.list_metadata(&ListParams::default().limit(1)).await?;
    let version = now.metadata.resource_version.context("the list has no version")?;
    let watch_params = WatchParams::default().fields(&format!("metadata.name={name}"));
    // A watch, because polling would miss some of the reported numbers.
    let mut events = pin!(clusters.watch(&watch_params, &version).await?);
    clusters.delete(name, &DeleteParams::default()).await?;
    let mut remaining_counts = Vec::new();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Modified(found) => {
                let message = found.data.pointer("/status/conditions/0/message").and_then(Value::as_str);
                let remaining =
                    message.and_then(|message| message.strip_suffix(" objects remain")?.parse().ok());
                remaining_counts
                    .extend(remaining.filter(|remaining| remaining_counts.last() != Some(remaining)));
            }
            WatchEvent::Deleted(_) => return Ok(remaining_counts),
            other => bail!("after {remaining_counts:?}: {other:?}"),
        }
    }
    bail!("the watch ended before {name} was deleted; remaining objects: {remaining_counts:?}")
}

async fn until_memory_is_freed(server: &Server, name: &str, before_kb: u64, full_kb: u64) -> Result<()> {
    let (begun, max_kb, mut samples_kb) =
        (Instant::now(), before_kb + (full_kb - before_kb) / REMAINING_FRACTION, Vec::new());
    loop {
        samples_kb.push(resident_kb(server)?);
        if samples_kb.last().is_some_and(|now| *now <= max_kb) {
            println!("{name}: {before_kb} kB before, {full_kb} kB full, then {samples_kb:?}");
            return Ok(());
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "the memory of {name} was not freed: {before_kb} kB before, {full_kb} kB full, at most {max_kb} kB expected; once a second: {samples_kb:?}"
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
