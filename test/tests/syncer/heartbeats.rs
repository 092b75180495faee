//! The condition Ready of a physical cluster, according to the heartbeat of its syncer. Time is simulated, as in
//! `faults::hours`.

use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::request::path::Cluster;
use controller::remote::Remote;
use scenarios::fleet::AbortOnDrop;
use serde_json::{Value, json};
use splitter::fleet::Fleet;
use tokio::time::{Instant, sleep};

use crate::server::{InProcessServer, TestLink};
use crate::setup::*;

const PHYSICAL: &str = "/apis/holon.dev/v1alpha1/physicalclusters";
const SECOND: Duration = Duration::from_secs(1);

/// Returns the status and the reason of the condition.
async fn ready(root: &TestClient) -> Result<(String, String)> {
    let found = root.get(&format!("{PHYSICAL}/east")).await?.unwrap_or_default();
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&ready["status"]), text(&ready["reason"])))
}

async fn until_ready_is(root: &TestClient, status: &str, reason: &str) -> Result<()> {
    let expected = (status.to_owned(), reason.to_owned());
    until(&format!("{status}, {reason}"), async || Ok(ready(root).await? == expected)).await
}

#[tokio::test(start_paused = true)]
async fn a_silent_syncer_is_unknown_after_forty_seconds_and_ready_after_two_heartbeats() -> Result<()> {
    let (server, downstream) = (InProcessServer::start().await?, InProcessServer::start().await?);
    let fleet = Fleet::new(Remote::new(server.reach(&Cluster::Bare)), server.history());
    let _fleet_controller = AbortOnDrop::spawn(async move { match fleet.run(|_| {}).await {} });
    let root = TestClient(Remote::new(server.client()));
    let pull_cluster = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster", "metadata": { "name": "east" },
        "spec": { "connection": { "pull": {} } },
    });
    root.create(PHYSICAL, pull_cluster).await?;
    until_ready_is(&root, "Unknown", "NeverReported").await?;
    let physical_cluster = root.until_exists(&format!("{PHYSICAL}/east")).await?;
    let mailbox = physical_cluster["status"]["mailbox"]
        .as_str()
        .context("the physical cluster has no mailbox")?
        .parse()?;

    // For a new physical cluster one heartbeat is enough.
    let link = TestLink::new();
    let _running =
        RunningSyncer::start(link.over(server.reach(&Cluster::Id(mailbox))), downstream.client(), None);
    until_ready_is(&root, "True", "Reachable").await?;
    assert_eq!(link.renewed(), 1);

    // After a missed heartbeat or two it is still Ready.
    sleep(60 * SECOND).await;
    link.cut(true);
    for _ in 0..25 {
        sleep(SECOND).await;
        assert_eq!(ready(&root).await?.0, "True");
    }
    link.clear_faults();
    sleep(60 * SECOND).await;
    assert_eq!(ready(&root).await?.0, "True");

    // The last heartbeat was up to ten seconds before the cut.
    link.cut(true);
    let cut = Instant::now();
    until_ready_is(&root, "Unknown", "HeartbeatExpired").await?;
    assert!((29 * SECOND..=41 * SECOND).contains(&cut.elapsed()), "after {:?}", cut.elapsed());
    sleep(600 * SECOND).await;
    link.renewed();
    link.clear_faults();
    until_ready_is(&root, "True", "Reachable").await?;
    assert_eq!(link.renewed(), 2, "it is Ready again after the second heartbeat");
    Ok(())
}
