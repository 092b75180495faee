//! The connections to a physical cluster: one for calls, one for watches, and one for forwarded streams.

mod proxies;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::joined::{JoinedCluster, Physical, SyncMode, TcpRelay, kube_client};
use crate::setup::*;

/// Creates objects of several kinds, so that the syncer watches those, pods and events.
pub(crate) async fn create_workload(joined: &JoinedCluster) -> Result<()> {
    joined.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    joined.mailbox.create(CONFIG_MAPS, placed(map("settings", "one"))).await?;
    joined.mailbox.create(DEPLOYMENTS, placed(deployment("web"))).await?;
    joined
        .mailbox
        .until(&format!("{DEPLOYMENTS}/web"), |found| found["status"]["readyReplicas"] == 2)
        .await?;
    until("two pods are projected", async || {
        let pods = joined.mailbox.get(PODS).await?.unwrap_or_default();
        Ok(pods["items"].as_array().is_some_and(|pods| pods.len() == 2))
    })
    .await
}

/// One connection for calls, one for watches, and one for logs and commands, or the tunnel for them.
pub(crate) const CONNECTIONS_MAX: usize = 3;

/// Returns how many connections a process has to a port of this machine.
pub(crate) fn connections(pid: u32, port: u16) -> Result<usize> {
    let process = Path::new("/proc").join(pid.to_string());
    let mut sockets = BTreeSet::new();
    for file in std::fs::read_dir(process.join("fd"))? {
        // Some descriptors are closed meanwhile.
        let Ok(target) = std::fs::read_link(file?.path()) else { continue };
        let target = target.to_string_lossy();
        sockets.extend(
            target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).map(str::to_owned),
        );
    }
    let table = std::fs::read_to_string(process.join("net/tcp"))?;
    let remote = format!(":{port:04X}");
    let is_established = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        // Columns of /proc/net/tcp: remote address, state (01: established), and inode.
        matches!(columns[..], [_, _, to, "01", _, _, _, _, _, socket, ..] if to.ends_with(&remote) && sockets.contains(socket))
    };
    Ok(table.lines().filter(is_established).count())
}

pub(crate) fn port(url: &str) -> Result<u16> {
    let port = url.rsplit(':').next().and_then(|port| port.split('/').next()?.parse().ok());
    port.with_context(|| url.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_has_few_connections_to_each_physical_cluster() -> Result<()> {
    let joined = JoinedCluster::new(Physical::standin().await?, SyncMode::Push).await?;
    create_workload(&joined).await?;
    let pid = joined.pid().context("the server does not run")?;
    assert!(matches!(connections(pid, port(&joined.address.server)?)?, 2..=CONNECTIONS_MAX));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_syncer_has_few_connections_to_each_server() -> Result<()> {
    let joined = JoinedCluster::new(Physical::standin().await?, SyncMode::Pull).await?;
    create_workload(&joined).await?;
    let pid = joined.pid().context("the pull syncer does not run")?;
    assert!(matches!(connections(pid, port(&joined.address.server)?)?, 2..=CONNECTIONS_MAX));
    assert!(matches!(connections(pid, port(joined.holon.address())?)?, 2..=CONNECTIONS_MAX));
    Ok(())
}

/// Requests share a connection, and so its failure. A firewall that forgets a connection notifies neither end: requests
/// would get no response until the kernel gives up, after a quarter of an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_is_detected_and_replaced() -> Result<()> {
    let physical = Physical::standin().await?;
    let Physical::Standin(standin) = &physical else { unreachable!("the test has just created a stand-in") };
    let relay = TcpRelay::to(standin.address()).await?;
    let joined = JoinedCluster::behind_relay(&relay, physical, SyncMode::Push).await?;
    create_workload(&joined).await?;
    relay.go_dead();
    joined.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 3 } })).await?;
    joined
        .mailbox
        .until(&format!("{DEPLOYMENTS}/web"), |found| found["status"]["readyReplicas"] == 3)
        .await?;
    Ok(())
}

/// The same between a pull syncer and the server, where there is also the tunnel for streams. Forwarded requests fail
/// until another tunnel was dialled.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_tunnel_is_detected_and_dialled_again() -> Result<()> {
    let (joined, relay) = JoinedCluster::with_relay_to_server(Physical::standin().await?).await?;
    create_workload(&joined).await?;
    let pods = joined.mailbox.get(PODS).await?.unwrap_or_default();
    let pod = pods["items"][0]["metadata"]["name"].as_str().context("the mailbox has no pod")?.to_owned();
    let reader = kube_client(&joined.holon.kubeconfig_file("root:mailbox-east")).await?;
    let can_read_log = async || {
        let request = http::Request::get(format!("{PODS}/{pod}/log")).body(Vec::new())?;
        Ok(reader.request_text(request).await.is_ok())
    };
    until("the log can be read", can_read_log).await?;
    relay.go_dead();
    joined.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 3 } })).await?;
    joined
        .mailbox
        .until(&format!("{DEPLOYMENTS}/web"), |found| found["status"]["readyReplicas"] == 3)
        .await?;
    until("the log can be read again", can_read_log).await
}
