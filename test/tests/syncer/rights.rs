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
    within_its_rights(Physical::logical().await?).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn in_a_real_kubernetes() -> Result<()> {
    within_its_rights(Physical::real()?).await
}

/// In its namespace the syncer works fully; elsewhere it reports the missing rights, and starts to work when they are
/// granted.
async fn within_its_rights(physical: Physical) -> Result<()> {
    // The Roles are bound in namespaces, which must exist.
    let below = physical.client().await?;
    for name in ["shop", "closed"] {
        below.make(NAMESPACES, namespace(name)).await?;
    }
    let joined = JoinedCluster::with_rights(physical, SyncMode::Push, &in_shop()).await?;
    let lived = tell(&joined).await;
    if lived.is_err() {
        println!("{joined}: the syncer says {:#}", joined.report().await?["status"]["conditions"]);
    }
    lived
}

async fn tell(joined: &JoinedCluster) -> Result<()> {
    let JoinedCluster { mailbox, below, .. } = joined;
    for name in ["shop", "closed"] {
        mailbox.make(NAMESPACES, namespace(name)).await?;
    }
    mailbox.make(CLOSED, elsewhere(map("settings", "one"))).await?;
    mailbox.make(NAMESPACES, placed(namespace("new"))).await?;
    mailbox.make(MAPS, placed(map("settings", "one"))).await?;
    mailbox.make(DEPLOYMENTS, placed(deployment("web"))).await?;
    below.until_there(&format!("{MAPS}/settings")).await?;
    below.until_there(&format!("{DEPLOYMENTS}/web")).await?;
    shown(joined).await.context("what runs is shown")?;
    // Drift is corrected, and deleted objects are applied again.
    below.merge(&format!("{MAPS}/settings"), json!({ "data": { "key": "meddled" } })).await?;
    below.until(&format!("{MAPS}/settings"), |found| found["data"]["key"] == "one").await?;
    below.delete(&format!("{MAPS}/settings")).await?;
    below.until(&format!("{MAPS}/settings"), |found| found["data"]["key"] == "one").await?;

    until("it is said what it may not do", async || {
        let (synced, counted) = (joined.condition("Synced").await?, joined.condition("Counted").await?);
        let told = synced["message"].as_str().unwrap_or_default();
        Ok(told.contains("configmaps closed/settings: Forbidden: ")
            && told.contains("namespaces new: Forbidden: ")
            && counted["reason"] == "Forbidden")
    })
    .await?;
    assert_eq!(joined.condition("Ready").await?["status"], "True");
    assert_eq!(below.get(&format!("{CLOSED}/settings")).await?, None);
    let events = mailbox.get("/api/v1/namespaces/closed/events").await?.unwrap_or_default();
    assert_eq!(events["items"][0]["reason"], "Forbidden", "{events:#}");

    // With more rights it continues by itself: in the other namespace, and then everywhere.
    grant(below, "more", &Rights::none().and(Some("closed"), rule("*", "*", "*"))).await?;
    below.until_there(&format!("{CLOSED}/settings")).await?;
    grant(below, "all", &Rights::everything()).await?;
    below.until_there(&format!("{NAMESPACES}/new")).await?;
    until("all is said to be well", async || Ok(joined.condition("Synced").await?["status"] == "True"))
        .await?;
    for path in [format!("{MAPS}/settings"), format!("{DEPLOYMENTS}/web"), format!("{CLOSED}/settings")] {
        mailbox.delete(&path).await?;
        below.until_gone(&path).await?;
        mailbox.until_gone(&path).await?;
    }
    Ok(())
}

fn elsewhere(mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!("closed");
    placed(object)
}

/// Checks that the status is written up, and pods are projected if controllers create them.
async fn shown(joined: &JoinedCluster) -> Result<()> {
    let web = format!("{DEPLOYMENTS}/web");
    if !joined.physical.has_controllers() {
        let status = json!({ "status": { "replicas": 2, "readyReplicas": 2 } });
        joined.below.merge(&format!("{web}/status"), status).await?;
    }
    joined.mailbox.until(&web, |found| found["status"]["readyReplicas"] == 2).await?;
    if !joined.physical.has_controllers() {
        return Ok(());
    }
    until("its pods are shown", async || {
        let pods = joined.mailbox.get(PODS).await?.unwrap_or_default();
        Ok(pods["items"].as_array().is_some_and(|pods| pods.len() == 2))
    })
    .await
}
