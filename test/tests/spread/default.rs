//! Workloads without a placement.

use anyhow::Result;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use serde_json::{Value, json};

use crate::app::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_deployment_runs_whole_in_one_place_and_leaves_nothing_behind() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 3)).await?;
    let web = fleet.root.until_available(WEB, 3).await?;
    assert_eq!(condition(&web, "Available")["status"], "True");
    let shares = shares(&fleet).await?;
    assert!(shares == [Some(3), None] || shares == [None, Some(3)], "{shares:?}");
    let chosen = if shares[0].is_some() { "east" } else { "west" };
    // The downstream status and the user's status are identical, except for the generation.
    let copy = fleet.member(chosen).below.until_there(&there(WEB)).await?;
    let without_generation = |mut status: serde_json::Value| {
        status["observedGeneration"] = json!(0);
        status
    };
    assert_eq!(without_generation(web["status"].clone()), without_generation(copy["status"].clone()));
    // A second workload of the namespace is placed on the same cluster.
    fleet.root.make(DEPLOYMENTS, deployment("api", 1)).await?;
    fleet.member(chosen).below.until_available(&there(&format!("{DEPLOYMENTS}/api")), 1).await?;
    let shop = fleet
        .root
        .until(SHOP, |shop| shop["metadata"]["annotations"]["holon.dev/targets"].is_string())
        .await?;
    let said = shop["metadata"]["annotations"]["holon.dev/targets"].as_str().unwrap_or_default();
    assert!(said.contains(chosen), "{said}");
    fleet.root.delete(SHOP).await?;
    fleet.root.until_gone(SHOP).await?;
    let member = fleet.member(chosen);
    let namespace = there(SHOP);
    member.mailbox.until_gone(&namespace).await?;
    member.below.until_gone(&namespace).await
}

/// Without physical clusters a logical cluster is only an API: the splitter writes nothing into it.
#[tokio::test(flavor = "multi_thread")]
async fn workloads_applied_before_the_first_physical_cluster_run_when_it_joins() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    let made = fleet.root.make(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.make(DEPLOYMENTS, deployment("later", 1)).await?;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(fleet.root.get(WEB_RECORD).await?.is_none());
    let now = fleet.root.until_there(WEB).await?;
    assert_eq!(now["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"], "nothing is written");
    fleet.join(standin::Options::new("east"), &[]).await?;
    fleet.root.until_available(WEB, 2).await?;
    until("it is said that it is placed", async || {
        let record = fleet.root.until_there(WEB_RECORD).await?;
        Ok(condition(&record, "Placed")["status"] == "True")
    })
    .await
}

/// The labels of a namespace were copied only at its creation. Later changes, for example for a mesh or a policy, never
/// reached the physical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn labels_of_a_namespace_go_down_whenever_they_are_given() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    let mut shop = namespace("shop");
    shop["metadata"]["labels"] = json!({ "team": "blue", "old": "yes" });
    fleet.root.make(NAMESPACES, shop).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    let below = &fleet.member("a").below;
    let labels = |found: &Value, name: &str| found["metadata"]["labels"][name].clone();
    let before = below.until_there(&there(SHOP)).await?;
    assert_eq!((labels(&before, "team"), labels(&before, "old")), (json!("blue"), json!("yes")));
    let change =
        json!({ "metadata": { "labels": { "team": "red", "old": null, "istio-injection": "enabled" } } });
    fleet.root.merge(SHOP, change).await?;
    let is_new = |found: &Value| {
        labels(found, "team") == "red"
            && labels(found, "old").is_null()
            && labels(found, "istio-injection") == "enabled"
    };
    let after = below.until(&there(SHOP), is_new).await?;
    assert_eq!(labels(&after, "holon.dev/placed"), "true");
    assert_eq!(labels(&after, "kubernetes.io/metadata.name"), labels(&before, "kubernetes.io/metadata.name"));
    Ok(())
}
