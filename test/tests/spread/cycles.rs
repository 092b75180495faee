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

/// A logical cluster was joined to one of its ancestors. Its placed objects were placed on it again, in a namespace
/// of another name, and so on: 24,000 entries in 80 seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_closes_a_cycle_is_rejected() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let team = fleet.logical("team").await?;
    fleet.join_logical("root", "loop", "root:team").await?;
    let is_circular = |found: &Value| condition(found, "Ready")["reason"] == "Circular";
    let refused = fleet.root.until(&format!("{PHYSICAL_CLUSTERS}/loop"), is_circular).await?;
    let message = condition(&refused, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        message,
        "the physical cluster is logical cluster root:team of this server, so its own objects could be placed on it again"
    );
    let before = namespaces(&team).await?;
    team.create(NAMESPACES, placed_namespace("shop", "loop")).await?;
    team.create(DEPLOYMENTS, deployment("web", 1)).await?;
    let verdict = |record: &Value| record["status"]["verdicts"][0]["rule"] == "Circular";
    team.until(WEB_RECORD, verdict).await?;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(namespaces(&team).await?, before + 1, "only the user's namespace is new");
    Ok(())
}

/// A join that forms no cycle is allowed; a later join that would close the cycle is not.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_join_that_closes_a_cycle_is_rejected() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let (one, two) = (fleet.logical("one").await?, fleet.logical("two").await?);
    fleet.join_logical("root:one", "there", "root:two").await?;
    one.until(&format!("{PHYSICAL_CLUSTERS}/there"), |found| condition(found, "Ready")["status"] == "True")
        .await?;
    // Creation timestamps have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    fleet.join_logical("root:two", "back", "root:one").await?;
    let is_circular = |found: &Value| condition(found, "Ready")["reason"] == "Circular";
    two.until(&format!("{PHYSICAL_CLUSTERS}/back"), is_circular).await?;
    assert_eq!(ready(&one, "there").await?["status"], "True");
    one.create(NAMESPACES, placed_namespace("shop", "there")).await?;
    one.create(DEPLOYMENTS, deployment("web", 1)).await?;
    one.until(WEB_RECORD, |record| targets(record) == ["there Steady 1"]).await?;
    tokio::time::sleep(A_WHILE).await;
    // The four namespaces of every logical cluster, and the placed one.
    assert_eq!(namespaces(&two).await?, 4 + 1);
    Ok(())
}

/// A cycle through another Holon cannot be detected here; instead, objects that came through a mailbox are not
/// placed in it again.
#[tokio::test(flavor = "multi_thread")]
async fn objects_from_a_mailbox_are_not_propagated_back_to_it() -> Result<()> {
    let (mut first_fleet, mut second_fleet) = (Fleet::alone().await?, Fleet::alone().await?);
    let (ours, theirs) = (first_fleet.logical("ours").await?, second_fleet.logical("theirs").await?);
    first_fleet.join_server("there", theirs.0.client().clone(), &[], None).await?;
    second_fleet.join_server("back", ours.0.client().clone(), &[], None).await?;
    let before = namespaces(&ours).await?;
    ours.create(NAMESPACES, placed_namespace("shop", "there")).await?;
    ours.create(DEPLOYMENTS, deployment("web", 1)).await?;
    tokio::time::sleep(A_WHILE).await;
    // The user's namespace, and the one that came back once.
    let found = namespaces(&ours).await?;
    assert!(found <= before + 2, "{found} namespaces, {before} of them existed before");
    let records = ours.list("/apis/holon.dev/v1alpha1/distributions").await?;
    let is_held = |record: &&Value| {
        condition(record, "Sent")["message"].as_str().unwrap_or_default().contains("would be sent in a cycle")
    };
    assert_eq!(records.iter().filter(is_held).count(), 1, "{records:#?}");
    Ok(())
}
