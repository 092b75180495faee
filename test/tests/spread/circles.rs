//! Logical clusters that are physical clusters of others, and joins that would form a cycle.

use std::time::Duration;

use anyhow::Result;
use scenarios::client::{TestClient, condition};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use serde_json::Value;

use crate::app::*;

/// Long enough for objects to travel around a cycle many times: once takes milliseconds.
const A_WHILE: Duration = Duration::from_secs(3);

async fn namespaces(client: &TestClient) -> Result<usize> {
    Ok(client.list(NAMESPACES).await?.len())
}

async fn ready(client: &TestClient, name: &str) -> Result<Value> {
    let object = client.get(&format!("{PHYSICAL_CLUSTERS}/{name}")).await?.unwrap_or_default();
    Ok(condition(&object, "Ready").clone())
}

/// A logical cluster was joined to one of its ancestors. Placed objects were placed there again, in a namespace of
/// another name, and so on: 24,000 entries in 80 seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_closes_a_circle_is_refused() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let team = fleet.logical("team").await?;
    fleet.join_logical("root", "loop", "root:team").await?;
    let is_told = |found: &Value| condition(found, "Ready")["reason"] == "Circular";
    let told = fleet.root.until(&format!("{PHYSICAL_CLUSTERS}/loop"), is_told).await?;
    let message = condition(&told, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        message,
        "the physical cluster is logical cluster root:team of this server, so its own objects could be placed on it again"
    );
    let before = namespaces(&team).await?;
    team.make(NAMESPACES, placed_namespace("shop", "loop")).await?;
    team.make(DEPLOYMENTS, deployment("web", 1)).await?;
    let verdict = |record: &Value| record["status"]["verdicts"][0]["rule"] == "Circular";
    team.until(WEB_RECORD, verdict).await?;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(namespaces(&team).await?, before + 1, "only what the user made");
    Ok(())
}

/// A join that forms no cycle is allowed; a later join that would close the cycle is not.
#[tokio::test(flavor = "multi_thread")]
async fn the_later_join_is_the_one_that_is_refused() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let (one, two) = (fleet.logical("one").await?, fleet.logical("two").await?);
    fleet.join_logical("root:one", "there", "root:two").await?;
    one.until(&format!("{PHYSICAL_CLUSTERS}/there"), |found| condition(found, "Ready")["status"] == "True")
        .await?;
    // Creation timestamps have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    fleet.join_logical("root:two", "back", "root:one").await?;
    let is_told = |found: &Value| condition(found, "Ready")["reason"] == "Circular";
    two.until(&format!("{PHYSICAL_CLUSTERS}/back"), is_told).await?;
    assert_eq!(ready(&one, "there").await?["status"], "True");
    one.make(NAMESPACES, placed_namespace("shop", "there")).await?;
    one.make(DEPLOYMENTS, deployment("web", 1)).await?;
    one.until(WEB_RECORD, |record| targets(record) == ["there Steady 1"]).await?;
    tokio::time::sleep(A_WHILE).await;
    // The four namespaces of every logical cluster, and the one that was placed there.
    assert_eq!(namespaces(&two).await?, 4 + 1);
    Ok(())
}

/// A cycle through another Holon cannot be detected here; instead, objects that came through a mailbox are not placed
/// there again.
#[tokio::test(flavor = "multi_thread")]
async fn objects_from_a_mailbox_are_not_propagated_back_to_it() -> Result<()> {
    let (mut here, mut elsewhere) = (Fleet::alone().await?, Fleet::alone().await?);
    let (ours, theirs) = (here.logical("ours").await?, elsewhere.logical("theirs").await?);
    here.join_server("there", theirs.0.client().clone(), &[], None).await?;
    elsewhere.join_server("back", ours.0.client().clone(), &[], None).await?;
    let before = namespaces(&ours).await?;
    ours.make(NAMESPACES, placed_namespace("shop", "there")).await?;
    ours.make(DEPLOYMENTS, deployment("web", 1)).await?;
    tokio::time::sleep(A_WHILE).await;
    // The user's namespace, and the one that came back once.
    let found = namespaces(&ours).await?;
    assert!(found <= before + 2, "{found} namespaces, of which {before} were there before");
    let records = ours.list("/apis/holon.dev/v1alpha1/distributions").await?;
    let held = |record: &&Value| {
        condition(record, "Sent")["message"].as_str().unwrap_or_default().contains("would be sent in a cycle")
    };
    assert_eq!(records.iter().filter(held).count(), 1, "{records:#?}");
    Ok(())
}
