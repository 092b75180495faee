//! Workloads without a placement.

use anyhow::Result;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use serde_json::{Value, json};

use crate::app::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_without_a_placement_runs_on_one_cluster_and_is_removed_completely() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 3)).await?;
    let web = fleet.root.until_available(WEB, 3).await?;
    assert_eq!(condition(&web, "Available")["status"], "True");
    let shares = shares(&fleet).await?;
    assert!(shares == [Some(3), None] || shares == [None, Some(3)], "{shares:?}");
    let chosen = if shares[0].is_some() { "east" } else { "west" };
    // The downstream status and the user's status are identical, except for the generation.
    let object = fleet.member(chosen).downstream.until_exists(&downstream_path(WEB)).await?;
    let without_generation = |mut status: serde_json::Value| {
        status["observedGeneration"] = json!(0);
        status
    };
    assert_eq!(without_generation(web["status"].clone()), without_generation(object["status"].clone()));
    // A second workload of the namespace is placed on the same cluster.
    fleet.root.create(DEPLOYMENTS, deployment("api", 1)).await?;
    fleet
        .member(chosen)
        .downstream
        .until_available(&downstream_path(&format!("{DEPLOYMENTS}/api")), 1)
        .await?;
    let shop = fleet
        .root
        .until(SHOP, |shop| shop["metadata"]["annotations"]["holon.dev/targets"].is_string())
        .await?;
    let annotation = shop["metadata"]["annotations"]["holon.dev/targets"].as_str().unwrap_or_default();
    assert!(annotation.contains(chosen), "{annotation}");
    fleet.root.delete(SHOP).await?;
    fleet.root.until_deleted(SHOP).await?;
    let member = fleet.member(chosen);
    let namespace = downstream_path(SHOP);
    member.mailbox.until_deleted(&namespace).await?;
    member.downstream.until_deleted(&namespace).await
}

/// Without physical clusters a logical cluster is only an API: the splitter writes nothing into it.
#[tokio::test(flavor = "multi_thread")]
async fn workloads_applied_before_the_first_physical_cluster_run_when_it_joins() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    let created = fleet.root.create(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.create(DEPLOYMENTS, deployment("later", 1)).await?;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(fleet.root.get(WEB_RECORD).await?.is_none());
    let now = fleet.root.until_exists(WEB).await?;
    assert_eq!(
        now["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"],
        "the splitter wrote to the object"
    );
    fleet.join(standin::Options::new("east"), &[]).await?;
    fleet.root.until_available(WEB, 2).await?;
    until("the Distribution reports Placed", async || {
        let record = fleet.root.until_exists(WEB_RECORD).await?;
        Ok(condition(&record, "Placed")["status"] == "True")
    })
    .await
}

/// The labels of a namespace were copied only at its creation. Later changes, for example for a mesh or a policy, never
/// reached the physical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn namespace_labels_are_propagated_at_every_change() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    let mut shop = namespace("shop");
    shop["metadata"]["labels"] = json!({ "team": "blue", "old": "yes" });
    fleet.root.create(NAMESPACES, shop).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    let downstream = &fleet.member("a").downstream;
    let labels = |found: &Value, name: &str| found["metadata"]["labels"][name].clone();
    let before = downstream.until_exists(&downstream_path(SHOP)).await?;
    assert_eq!((labels(&before, "team"), labels(&before, "old")), (json!("blue"), json!("yes")));
    let change =
        json!({ "metadata": { "labels": { "team": "red", "old": null, "istio-injection": "enabled" } } });
    fleet.root.merge(SHOP, change).await?;
    let has_new_labels = |found: &Value| {
        labels(found, "team") == "red"
            && labels(found, "old").is_null()
            && labels(found, "istio-injection") == "enabled"
    };
    let after = downstream.until(&downstream_path(SHOP), has_new_labels).await?;
    assert_eq!(labels(&after, "holon.dev/placed"), "true");
    assert_eq!(labels(&after, "kubernetes.io/metadata.name"), labels(&before, "kubernetes.io/metadata.name"));
    Ok(())
}
