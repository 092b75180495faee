//! A syncer with Roles in some namespaces and without a ClusterRole.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::joined::{JoinedCluster, Physical, Rights, SyncMode, grant, rule};
use crate::setup::*;

const CLOSED: &str = "/api/v1/namespaces/closed/configmaps";

/// The rights to identify the cluster, and all rights in one namespace.
fn in_shop() -> Rights {
    Rights::none()
        .and(Some("kube-system"), rule("", "namespaces", "get"))
        .and(Some("shop"), rule("*", "*", "*"))
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_logical_cluster_of_another_holon() -> Result<()> {
    check_with_few_rights(Physical::logical().await?).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn in_a_real_kubernetes() -> Result<()> {
    check_with_few_rights(Physical::real()?).await
}

/// In its namespace the syncer works fully; elsewhere it reports the missing rights, and starts to work when they are
/// granted.
async fn check_with_few_rights(physical: Physical) -> Result<()> {
    // The Roles are bound in namespaces, which must exist.
    let downstream = physical.client().await?;
    for name in ["shop", "closed"] {
        downstream.create(NAMESPACES, namespace(name)).await?;
    }
    let joined = JoinedCluster::with_rights(physical, SyncMode::Push, &in_shop()).await?;
    let result = check_rights(&joined).await;
    if result.is_err() {
        println!("{joined}: the syncer reports {:#}", joined.report().await?["status"]["conditions"]);
    }
    result
}

async fn check_rights(joined: &JoinedCluster) -> Result<()> {
    let JoinedCluster { mailbox, downstream, .. } = joined;
    for name in ["shop", "closed"] {
        mailbox.create(NAMESPACES, namespace(name)).await?;
    }
    mailbox.create(CLOSED, placed_in_closed(map("settings", "one"))).await?;
    mailbox.create(NAMESPACES, placed(namespace("new"))).await?;
    mailbox.create(CONFIG_MAPS, placed(map("settings", "one"))).await?;
    mailbox.create(DEPLOYMENTS, placed(deployment("web"))).await?;
    downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
    downstream.until_exists(&format!("{DEPLOYMENTS}/web")).await?;
    check_projections(joined).await.context("status and pods are projected")?;
    // Drift is corrected, and deleted objects are applied again.
    downstream.merge(&format!("{CONFIG_MAPS}/settings"), json!({ "data": { "key": "meddled" } })).await?;
    downstream.until(&format!("{CONFIG_MAPS}/settings"), |found| found["data"]["key"] == "one").await?;
    downstream.delete(&format!("{CONFIG_MAPS}/settings")).await?;
    downstream.until(&format!("{CONFIG_MAPS}/settings"), |found| found["data"]["key"] == "one").await?;

    until("Synced and Counted report Forbidden", async || {
        let (synced, counted) = (joined.condition("Synced").await?, joined.condition("Counted").await?);
        let message = synced["message"].as_str().unwrap_or_default();
        Ok(message.contains("configmaps closed/settings: Forbidden: ")
            && message.contains("namespaces new: Forbidden: ")
            && counted["reason"] == "Forbidden")
    })
    .await?;
    assert_eq!(joined.condition("Ready").await?["status"], "True");
    assert_eq!(downstream.get(&format!("{CLOSED}/settings")).await?, None);
    let events = mailbox.get("/api/v1/namespaces/closed/events").await?.unwrap_or_default();
    assert_eq!(events["items"][0]["reason"], "Forbidden", "{events:#}");

    // With more rights it continues by itself: in the other namespace, and then everywhere.
    grant(downstream, "more", &Rights::none().and(Some("closed"), rule("*", "*", "*"))).await?;
    downstream.until_exists(&format!("{CLOSED}/settings")).await?;
    grant(downstream, "all", &Rights::everything()).await?;
    downstream.until_exists(&format!("{NAMESPACES}/new")).await?;
    until("Synced is True", async || Ok(joined.condition("Synced").await?["status"] == "True")).await?;
    for path in
        [format!("{CONFIG_MAPS}/settings"), format!("{DEPLOYMENTS}/web"), format!("{CLOSED}/settings")]
    {
        mailbox.delete(&path).await?;
        downstream.until_deleted(&path).await?;
        mailbox.until_deleted(&path).await?;
    }
    Ok(())
}

fn placed_in_closed(mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!("closed");
    placed(object)
}

/// Checks that the status is written up, and pods are projected if controllers create them.
async fn check_projections(joined: &JoinedCluster) -> Result<()> {
    let web = format!("{DEPLOYMENTS}/web");
    if !joined.physical.has_controllers() {
        let status = json!({ "status": { "replicas": 2, "readyReplicas": 2 } });
        joined.downstream.merge(&format!("{web}/status"), status).await?;
    }
    joined.mailbox.until(&web, |found| found["status"]["readyReplicas"] == 2).await?;
    if !joined.physical.has_controllers() {
        return Ok(());
    }
    until("its pods are projected", async || {
        let pods = joined.mailbox.get(PODS).await?.unwrap_or_default();
        Ok(pods["items"].as_array().is_some_and(|pods| pods.len() == 2))
    })
    .await
}
