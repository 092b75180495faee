//! Proxies, and their exceptions.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::connections::{LED, busy, connections, port};
use crate::joined::{Authority, JoinedCluster, Physical, Proxy, SyncMode, kube_client};
use crate::setup::*;

/// A syncer that can reach only a proxy reaches both sides through it, with as few connections as without one; streams
/// to pods work too.
#[tokio::test(flavor = "multi_thread")]
async fn a_syncer_that_dials_through_a_proxy_has_no_other_way() -> Result<()> {
    let (proxy, physical) = (Proxy::start().await?, Physical::standin().await?);
    let address = physical.address().await?;
    // The proxy without a scheme, as some tools write it, and exceptions that match no server here.
    let environment = vec![
        ("HTTPS_PROXY", format!("127.0.0.1:{}", proxy.port)),
        ("NO_PROXY", "example.com,10.0.0.0/8".to_owned()),
    ];
    let joined = JoinedCluster::within(environment, address, physical).await?;
    busy(&joined).await?;
    follow_a_log(&joined).await?;
    let pid = joined.pid().context("the syncer runs")?;
    for server in [&joined.address.server, joined.holon.address()] {
        let port = port(server)?;
        assert_eq!(connections(pid, port)?, 0, "past the proxy to {server}");
        assert!(proxy.to(port).bytes > 10_000, "{server}: {:?}", proxy.to(port));
        // Requests that started while the first connection was being opened may have opened another, which is closed
        // when idle.
        let few = async || Ok((1..=LED).contains(&proxy.to(port).open));
        until("there are as few connections as without a proxy", few).await?;
    }
    Ok(())
}

/// The proxy has a certificate authority of its own, other than those of the server and of the physical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_speaks_tls_is_known_by_those_whom_the_machine_trusts() -> Result<()> {
    let (authority, physical) = (Authority::new()?, Physical::standin().await?);
    let proxy = Proxy::start_with(&authority).await?;
    let address = physical.address().await?;
    let trusted = authority.file().to_str().context("a path of ours")?.to_owned();
    let environment = vec![("HTTPS_PROXY", proxy.url("127.0.0.1")), ("SSL_CERT_FILE", trusted)];
    let joined = JoinedCluster::within(environment, address, physical).await?;
    busy(&joined).await?;
    follow_a_log(&joined).await?;
    let pid = joined.pid().context("the syncer runs")?;
    for server in [&joined.address.server, joined.holon.address()] {
        let port = port(server)?;
        assert_eq!(connections(pid, port)?, 0, "past the proxy to {server}");
        assert!(proxy.to(port).bytes > 10_000, "{server}: {:?}", proxy.to(port));
    }
    Ok(())
}

/// A load balancer has a certificate of another authority. A syncer whose ticket includes that authority trusts it,
/// also after it has updated the server's authority.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_terminates_tls_is_trusted_by_syncers_with_its_authority() -> Result<()> {
    let (authority, physical) = (Authority::new()?, Physical::standin().await?);
    let (mut joined, front) = JoinedCluster::dialled_through(&authority, physical).await?;
    busy(&joined).await?;
    follow_a_log(&joined).await?;
    // Longer than the interval at which the syncer checks the authority.
    tokio::time::sleep(Duration::from_secs(12)).await;
    joined.sit()?;
    joined.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 1 } })).await?;
    joined.below.until(&format!("{DEPLOYMENTS}/web"), |web| web["spec"]["replicas"] == 1).await?;
    let pid = joined.pid().context("the syncer runs")?;
    assert_eq!(connections(pid, port(joined.holon.address())?)?, 0);
    assert!(connections(pid, front.port)? > 0);
    Ok(())
}

/// NO_PROXY matches the physical cluster, so the syncer connects to it directly. It also matches the proxy itself,
/// which must not matter for other servers.
#[tokio::test(flavor = "multi_thread")]
async fn whom_the_proxy_is_not_for_is_reached_past_it() -> Result<()> {
    let (proxy, physical) = (Proxy::start().await?, Physical::standin().await?);
    let mut address = physical.address().await?;
    address.server = address.server.replace("127.0.0.1", "localhost");
    let environment =
        vec![("HTTPS_PROXY", proxy.url("localhost")), ("NO_PROXY", "example.com, localhost".to_owned())];
    let joined = JoinedCluster::within(environment, address, physical).await?;
    busy(&joined).await?;
    follow_a_log(&joined).await?;
    let pid = joined.pid().context("the syncer runs")?;
    let (below, above) = (port(&joined.address.server)?, port(joined.holon.address())?);
    assert_eq!(proxy.to(below).bytes, 0);
    assert!(connections(pid, below)? > 0);
    assert_eq!(connections(pid, above)?, 0);
    assert!((1..=LED).contains(&proxy.to(above).open));
    Ok(())
}

/// A kubeconfig can name a proxy, which the server then uses.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_goes_through_the_proxy_that_a_kubeconfig_names() -> Result<()> {
    let proxy = Proxy::start().await?;
    let joined = JoinedCluster::behind_proxy(&proxy, Physical::standin().await?, SyncMode::Push).await?;
    busy(&joined).await?;
    follow_a_log(&joined).await?;
    let pid = joined.pid().context("the server runs")?;
    let port = port(&joined.address.server)?;
    assert_eq!(connections(pid, port)?, 0);
    assert!((1..=LED).contains(&proxy.to(port).open), "{:?}", proxy.to(port));
    Ok(())
}

/// Follows a log as `kubectl logs -f` does, until its first bytes arrive.
async fn follow_a_log(joined: &JoinedCluster) -> Result<()> {
    let pods = joined.mailbox.get(PODS).await?.unwrap_or_default();
    let pod = pods["items"][0]["metadata"]["name"].as_str().context("there are pods")?.to_owned();
    let reader = kube_client(&joined.holon.kubeconfig_file("root:mailbox-east")).await?;
    let mut said = None;
    until("a log is followed", async || {
        let request = http::Request::get(format!("{PODS}/{pod}/log?follow=true"));
        let mut answer = reader.send(request.body(kube::client::Body::empty())?).await?;
        if answer.status() != 200 {
            return Ok(false);
        }
        said = http_body_util::BodyExt::frame(answer.body_mut()).await;
        Ok(true)
    })
    .await?;
    let frame = said.context("it ended before it began")??;
    assert!(!frame.into_data().unwrap_or_default().is_empty());
    Ok(())
}
