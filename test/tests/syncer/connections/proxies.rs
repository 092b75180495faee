//! Proxies, and their exceptions.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::{CONNECTIONS_MAX, connections, create_workload, port};
use crate::joined::{Authority, JoinedCluster, Physical, Proxy, SyncMode, kube_client};
use crate::setup::*;

/// A syncer that can reach only a proxy reaches both sides through it, with as few connections as without one; streams
/// to pods work too.
#[tokio::test(flavor = "multi_thread")]
async fn a_syncer_behind_a_proxy_makes_no_direct_connection() -> Result<()> {
    let (proxy, physical) = (Proxy::start().await?, Physical::standin().await?);
    let address = physical.address().await?;
    // The proxy without a scheme, as some tools write it, and exceptions that match no server here.
    let environment = vec![
        ("HTTPS_PROXY", format!("127.0.0.1:{}", proxy.port)),
        ("NO_PROXY", "example.com,10.0.0.0/8".to_owned()),
    ];
    let joined = JoinedCluster::with_environment(environment, address, physical).await?;
    create_workload(&joined).await?;
    follow_log(&joined).await?;
    let pid = joined.pid().context("the pull syncer does not run")?;
    for server in [&joined.address.server, joined.holon.address()] {
        let port = port(server)?;
        assert_eq!(connections(pid, port)?, 0, "direct connections to {server}");
        assert!(proxy.to(port).bytes > 10_000, "{server}: {:?}", proxy.to(port));
        // Requests that started while the first connection was being opened may have opened another, which is closed
        // when idle.
        let has_few_connections = async || Ok((1..=CONNECTIONS_MAX).contains(&proxy.to(port).connections));
        until("the proxy has as few connections as a direct client", has_few_connections).await?;
    }
    Ok(())
}

/// The proxy has a certificate authority of its own, other than those of the server and of the physical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_tls_proxy_is_verified_with_the_trusted_certificates_of_the_machine() -> Result<()> {
    let (authority, physical) = (Authority::new()?, Physical::standin().await?);
    let proxy = Proxy::start_with(&authority).await?;
    let address = physical.address().await?;
    let trusted_file = authority.file().to_str().context("the path is not UTF-8")?.to_owned();
    let environment = vec![("HTTPS_PROXY", proxy.url("127.0.0.1")), ("SSL_CERT_FILE", trusted_file)];
    let joined = JoinedCluster::with_environment(environment, address, physical).await?;
    create_workload(&joined).await?;
    follow_log(&joined).await?;
    let pid = joined.pid().context("the pull syncer does not run")?;
    for server in [&joined.address.server, joined.holon.address()] {
        let port = port(server)?;
        assert_eq!(connections(pid, port)?, 0, "direct connections to {server}");
        assert!(proxy.to(port).bytes > 10_000, "{server}: {:?}", proxy.to(port));
    }
    Ok(())
}

/// A load balancer has a certificate of another authority. A syncer whose ticket includes that authority trusts it,
/// also after it has updated the server's authority.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_terminates_tls_is_trusted_by_syncers_with_its_authority() -> Result<()> {
    let (authority, physical) = (Authority::new()?, Physical::standin().await?);
    let (mut joined, tls_terminator) = JoinedCluster::with_tls_terminator(&authority, physical).await?;
    create_workload(&joined).await?;
    follow_log(&joined).await?;
    // Longer than the interval at which the syncer checks the authority.
    tokio::time::sleep(Duration::from_secs(12)).await;
    joined.start_pull_syncer()?;
    joined.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 1 } })).await?;
    joined.downstream.until(&format!("{DEPLOYMENTS}/web"), |web| web["spec"]["replicas"] == 1).await?;
    let pid = joined.pid().context("the pull syncer does not run")?;
    assert_eq!(connections(pid, port(joined.holon.address())?)?, 0);
    assert!(connections(pid, tls_terminator.port)? > 0);
    Ok(())
}

/// NO_PROXY matches the physical cluster, so the syncer connects to it directly. It also matches the proxy itself,
/// which must not matter for other servers.
#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_hosts_are_reached_directly() -> Result<()> {
    let (proxy, physical) = (Proxy::start().await?, Physical::standin().await?);
    let mut address = physical.address().await?;
    address.server = address.server.replace("127.0.0.1", "localhost");
    let environment =
        vec![("HTTPS_PROXY", proxy.url("localhost")), ("NO_PROXY", "example.com, localhost".to_owned())];
    let joined = JoinedCluster::with_environment(environment, address, physical).await?;
    create_workload(&joined).await?;
    follow_log(&joined).await?;
    let pid = joined.pid().context("the pull syncer does not run")?;
    let (downstream_port, holon_port) = (port(&joined.address.server)?, port(joined.holon.address())?);
    assert_eq!(proxy.to(downstream_port).bytes, 0);
    assert!(connections(pid, downstream_port)? > 0);
    assert_eq!(connections(pid, holon_port)?, 0);
    assert!((1..=CONNECTIONS_MAX).contains(&proxy.to(holon_port).connections));
    Ok(())
}

/// A kubeconfig can name a proxy, which the server then uses.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_uses_the_proxy_of_a_kubeconfig() -> Result<()> {
    let proxy = Proxy::start().await?;
    let joined = JoinedCluster::behind_proxy(&proxy, Physical::standin().await?, SyncMode::Push).await?;
    create_workload(&joined).await?;
    follow_log(&joined).await?;
    let pid = joined.pid().context("the server does not run")?;
    let port = port(&joined.address.server)?;
    assert_eq!(connections(pid, port)?, 0);
    assert!((1..=CONNECTIONS_MAX).contains(&proxy.to(port).connections), "{:?}", proxy.to(port));
    Ok(())
}

/// Follows a log as `kubectl logs -f` does, until its first bytes arrive.
async fn follow_log(joined: &JoinedCluster) -> Result<()> {
    let pods = joined.mailbox.get(PODS).await?.unwrap_or_default();
    let pod = pods["items"][0]["metadata"]["name"].as_str().context("the mailbox has no pod")?.to_owned();
    let reader = kube_client(&joined.holon.kubeconfig_file("root:mailbox-east")).await?;
    let mut first_frame = None;
    until("the log can be followed", async || {
        let request = http::Request::get(format!("{PODS}/{pod}/log?follow=true"));
        let mut response = reader.send(request.body(kube::client::Body::empty())?).await?;
        if response.status() != 200 {
            return Ok(false);
        }
        first_frame = http_body_util::BodyExt::frame(response.body_mut()).await;
        Ok(true)
    })
    .await?;
    let frame = first_frame.context("the log ended before its first bytes")??;
    assert!(!frame.into_data().unwrap_or_default().is_empty());
    Ok(())
}
