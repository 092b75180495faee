//! The condition Ready of a physical cluster, according to the heartbeat of its syncer. Time is simulated, as in
//! `hours`.

use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::request::path::Cluster;
use controller::remote::Remote;
use serde_json::{Value, json};
use splitter::fleet::Fleet;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::server::{Link, Server};
use crate::setup::*;

const PHYSICAL: &str = "/apis/holon.dev/v1alpha1/physicalclusters";
const SECOND: Duration = Duration::from_secs(1);

/// Returns the status and the reason of the condition.
async fn ready(root: &TestClient) -> Result<(String, String)> {
    let found = root.get(&format!("{PHYSICAL}/east")).await?.unwrap_or_default();
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.into_iter().find(|said| said["type"] == "Ready").unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&ready["status"]), text(&ready["reason"])))
}

async fn until_said(root: &TestClient, status: &str, reason: &str) -> Result<()> {
    let expected = (status.to_owned(), reason.to_owned());
    until(&format!("{status}, {reason}"), async || Ok(ready(root).await? == expected)).await
}

/// A task that is aborted when this value is dropped.
struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_syncer_that_falls_silent_is_unknown_after_forty_seconds_and_back_after_two_beats() -> Result<()> {
    let (server, below) = (Server::start().await?, Server::start().await?);
    let [bare, all] = [Cluster::Bare, Cluster::All].map(|cluster| Remote::new(server.reach(&cluster)));
    let _watching = Aborted(tokio::spawn(async move { match Fleet::new(bare).run(all, |_| {}).await {} }));
    let root = TestClient(Remote::new(server.client()));
    let dials_in = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster", "metadata": { "name": "east" },
        "spec": { "connection": { "pull": {} } },
    });
    root.make(PHYSICAL, dials_in).await?;
    until_said(&root, "Unknown", "NeverReported").await?;
    let known = root.until_there(&format!("{PHYSICAL}/east")).await?;
    let mailbox = known["status"]["mailbox"].as_str().context("it has a mailbox")?.parse()?;

    // For a new physical cluster one heartbeat is enough.
    let link = Link::new();
    let _running = Running::start(link.over(server.reach(&Cluster::Id(mailbox))), below.client(), None);
    until_said(&root, "True", "Reachable").await?;
    assert_eq!(link.renewed(), 1);

    // After a missed heartbeat or two it is still Ready.
    sleep(60 * SECOND).await;
    link.cut(true);
    for _ in 0..25 {
        sleep(SECOND).await;
        assert_eq!(ready(&root).await?.0, "True");
    }
    link.mend();
    sleep(60 * SECOND).await;
    assert_eq!(ready(&root).await?.0, "True");

    // The last heartbeat was up to ten seconds before the cut.
    link.cut(true);
    let cut = Instant::now();
    until_said(&root, "Unknown", "HeartbeatExpired").await?;
    assert!((29 * SECOND..=41 * SECOND).contains(&cut.elapsed()), "after {:?}", cut.elapsed());
    sleep(600 * SECOND).await;
    link.renewed();
    link.mend();
    until_said(&root, "True", "Reachable").await?;
    assert_eq!(link.renewed(), 2, "it is believed at the second beat");
    Ok(())
}
