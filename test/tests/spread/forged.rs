//! Facts that tenants have forged. The server now rejects such writes (`holon/tests/tree/hostile.rs`); a store may have
//! them from before, so the splitter must not trust them either. In these tests the server accepts them.

use std::time::Duration;

use anyhow::Result;
use scenarios::client::{TestClient, condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use serde_json::{Value, json};

use crate::app::*;

/// Long enough for a splitter that trusts forged facts to send an object, which takes milliseconds.
const A_WHILE: Duration = Duration::from_secs(2);

/// Returns the namespaces of the Deployments on a physical cluster.
async fn namespaces_with_deployments(fleet: &Fleet, name: &str) -> Result<Vec<String>> {
    let found = fleet.member(name).downstream.list("/apis/apps/v1/deployments").await?;
    let namespace = |one: &Value| one["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    Ok(found.iter().map(namespace).collect())
}

const APP_RECORD: &str = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/deployment-app";

/// Writes a target into the Distribution of `app`, as a tenant did.
async fn forge_target(tenant: &TestClient, cluster: &str) -> Result<()> {
    tenant.until(APP_RECORD, |record| record["status"]["verdicts"].is_array()).await?;
    let targets = json!([{ "cluster": cluster, "role": "Steady", "share": 1 }]);
    tenant.merge(APP_RECORD, json!({ "spec": { "targets": targets } })).await.map(drop)
}

/// A tenant's PhysicalCluster had a status that named another cluster's mailbox, and a LogicalCluster blocked the
/// creation of its own mailbox: the tenant's pod ran in an unhashed namespace of the other cluster. With the id of the
/// root logical cluster, placement stopped for all tenants until a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_mailbox_in_a_status_is_ignored() -> Result<()> {
    let fleet = Fleet::of(&["east"]).await?;
    let evil = fleet.logical("evil").await?;
    let kind = |kind: &str, name: &str| json!({ "apiVersion": "holon.dev/v1alpha1", "kind": kind, "metadata": { "name": name } });
    evil.create("/apis/holon.dev/v1alpha1/logicalclusters", kind("LogicalCluster", "mailbox-fake")).await?;
    let mut fake = kind("PhysicalCluster", "fake");
    fake["spec"]["dedicatedTo"] = "root:evil".into();
    evil.create(PHYSICAL_CLUSTERS, fake).await?;
    let fake = format!("{PHYSICAL_CLUSTERS}/fake");
    evil.until(&fake, |found| condition(found, "Ready")["reason"] == "NoMailbox").await?;
    for id in [fleet.member("east").mailbox_id.to_string(), api::cluster::Id::ROOT.to_string()] {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Reachable", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let forged = json!({ "status": { "mailbox": id, "conditions": [ready] } });
        evil.merge(&format!("{fake}/status"), forged).await?;
    }
    let forged = json!({ "status": { "mailbox": fleet.member("east").mailbox_id.to_string() } });
    evil.merge(&format!("{fake}/status"), forged).await?;
    evil.create(NAMESPACES, placed_namespace("shop", "fake")).await?;
    evil.create(DEPLOYMENTS, deployment("app", 1)).await?;
    forge_target(&evil, "fake").await?;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(namespaces_with_deployments(&fleet, "east").await?, Vec::<String>::new());

    // Other tenants' workloads are placed.
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(namespaces_with_deployments(&fleet, "east").await?, [Fleet::downstream_namespace("shop")]);
    Ok(())
}

/// The targets in a Distribution were trusted as allowed. On a cluster that was dedicated to another logical cluster, a
/// tenant's pod ran in the owner's own namespace, beside its Secrets.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_target_in_a_distribution_grants_nothing() -> Result<()> {
    let fleet = Fleet::of(&["east"]).await?;
    fleet.change("east", json!({ "spec": { "dedicatedTo": "root:owner" } })).await?;
    let (owner, evil) = (fleet.logical("owner").await?, fleet.logical("evil").await?);
    owner.create(NAMESPACES, namespace("shop")).await?;
    owner.create(DEPLOYMENTS, deployment("web", 1)).await?;
    owner.until_available(WEB, 1).await?;
    evil.create(NAMESPACES, namespace("shop")).await?;
    let mut theirs = deployment("app", 1);
    theirs["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1".into();
    evil.create(DEPLOYMENTS, theirs).await?;
    forge_target(&evil, "east").await?;
    let is_dedicated_to_another = |record: &Value| {
        let reason = condition(record, "Placed")["reason"].as_str().unwrap_or_default().to_owned();
        ["Held", "Pending"].contains(&&*reason) && record["status"]["verdicts"][0]["rule"] == "Dedicated"
    };
    evil.until(APP_RECORD, is_dedicated_to_another).await?;
    // Nothing was ever sent there, so the target is removed from the Distribution.
    evil.until(APP_RECORD, |record| targets(record).is_empty()).await?;
    tokio::time::sleep(A_WHILE).await;
    let downstream = fleet.member("east").downstream.list("/apis/apps/v1/deployments").await?;
    let images: Vec<&Value> =
        downstream.iter().map(|one| &one["spec"]["template"]["spec"]["containers"][0]["image"]).collect();
    assert_eq!(images, ["web:1"]);
    Ok(())
}

/// The right to use a cluster is revoked while a workload runs there: the workload is held, neither changed nor
/// deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_whose_use_grant_is_revoked_is_held_and_not_deleted() -> Result<()> {
    let fleet = Fleet::of(&["east"]).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/holon:use-physical-clusters";
    fleet.root.delete(rbac).await?;
    let is_revoked = |record: &Value| record["status"]["verdicts"][0]["rule"] == "UseNotGranted";
    fleet.root.until(WEB_RECORD, is_revoked).await?;
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, image).await?;
    let unsent =
        fleet.root.until(WEB_RECORD, |record| condition(record, "Sent")["status"] == "False").await?;
    let message = condition(&unsent, "Sent")["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message.contains("may not use the physical cluster; grant the verb use on physicalclusters east"),
        "{message}"
    );
    let web = fleet.root.until(WEB, |web| condition(web, "Sent")["reason"] == "CannotSend").await?;
    assert_eq!(web["status"]["availableReplicas"], 2);
    until("an Event reports it", async || {
        let events = fleet.root.list("/api/v1/namespaces/shop/events").await?;
        Ok(events
            .iter()
            .any(|event| event["reason"] == "CannotSend" && event["involvedObject"]["name"] == "web"))
    })
    .await?;
    let downstream = fleet.member("east").downstream.get(&downstream_path(WEB)).await?.unwrap_or_default();
    assert_eq!(downstream["spec"]["template"]["spec"]["containers"][0]["image"], "web:1");
    // When its user deletes the workload, it is deleted downstream too.
    fleet.root.delete(WEB).await?;
    fleet.member("east").downstream.until_deleted(&downstream_path(WEB)).await?;
    Ok(())
}
