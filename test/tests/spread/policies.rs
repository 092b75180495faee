//! The status of policies.

use anyhow::Result;
use scenarios::client::condition;
use scenarios::fleet::Fleet;
use serde_json::{Value, json};
use standin::Options;

use crate::app::*;

const PLACEMENTS: &str = "/apis/holon.dev/v1alpha1/placements";
const OVERRIDES: &str = "/apis/holon.dev/v1alpha1/overrides";

fn policy(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "holon.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placement_counts_its_objects() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(PLACEMENTS, policy("Placement", "all", json!({}))).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    for name in ["web", "api"] {
        fleet.root.create(DEPLOYMENTS, deployment(name, 2)).await?;
    }
    let all = format!("{PLACEMENTS}/all");
    let counts = |total: i64| {
        move |all: &Value| {
            let of = |field: &str| all["status"]["counts"][field].as_i64();
            of("total") == Some(total) && of("available") == Some(total) && of("updated") == Some(total)
        }
    };
    let placement = fleet.root.until(&all, counts(4)).await?;
    assert_eq!(condition(&placement, "Accepted")["status"], "True", "{placement:#}");
    fleet.root.delete(WEB).await?;
    fleet.root.until(&all, counts(2)).await?;
    // Objects that another placement determines no longer count.
    fleet.root.place(SHOP, "a").await?;
    fleet.root.until(&all, counts(0)).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_expression_is_reported_with_its_position_and_ignored() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    let wrong = json!({ "clusterSelector": { "expressions": ["cluster.metadata.name in [\"a\""] } });
    fleet.root.create(PLACEMENTS, policy("Placement", "wrong", wrong)).await?;
    let is_refused = |policy: &Value| condition(policy, "Accepted")["status"] == "False";
    let placement = fleet.root.until(&format!("{PLACEMENTS}/wrong"), is_refused).await?;
    let message = condition(&placement, "Accepted")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("spec.clusterSelector.expressions[0]: 1:"), "{message}");
    let computed = json!([{ "path": "/metadata/labels/zone", "expression": "cluster.metadata.lables." }]);
    let wrong = json!({ "rules": [{ "clusterSelector": {}, "computed": computed }] });
    fleet.root.create(OVERRIDES, policy("Override", "wrong", wrong)).await?;
    let override_object = fleet.root.until(&format!("{OVERRIDES}/wrong"), is_refused).await?;
    let message = condition(&override_object, "Accepted")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("spec.rules[0].computed[0].expression: 1:"), "{message}");
    // An object that cannot be sent reports that too; the running one stays.
    fleet.root.until(WEB_RECORD, |record| condition(record, "Sent")["status"] == "False").await?;
    let object = fleet.member("a").downstream.until_available(&downstream_path(WEB), 1).await?;
    assert_eq!(object["metadata"]["labels"]["zone"], Value::Null);
    fleet.root.delete(&format!("{OVERRIDES}/wrong")).await?;
    fleet.root.until(WEB_RECORD, |record| condition(record, "Sent").is_null()).await.map(drop)
}

/// Returns four clusters, two in each region, one of them with a taint.
async fn regions() -> Result<Fleet> {
    let mut fleet = Fleet::alone().await?;
    for (name, region) in [("a", "eu"), ("b", "eu"), ("c", "us"), ("d", "us")] {
        fleet.join(Options::new(name), &[("region", region)]).await?;
    }
    let taint = json!({ "key": "spot", "value": "true", "effect": "NoSchedule" });
    fleet.change("d", json!({ "spec": { "taints": [taint] } })).await?;
    Ok(fleet)
}

/// Tries each feature of a Placement once: the same app under one policy after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_placement_chooses_by_number_spread_tolerations_and_expressions() -> Result<()> {
    let fleet = regions().await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    let tolerated = json!([{ "key": "spot", "operator": "Equal", "value": "true" }]);
    let one_each = json!([{ "label": "region", "minGroups": 2, "maxSkew": 1 }]);
    // Spec, number of targets, and names that must be among them.
    let rows: [(Value, usize, &[&str]); 6] = [
        (json!({ "clusterSelector": { "matchLabels": { "region": "us" } } }), 1, &["c"]),
        (json!({ "numberOfClusters": 2, "spread": one_each }), 2, &["c"]),
        (json!({ "tolerations": tolerated }), 4, &["a", "b", "c", "d"]),
        (
            json!({ "clusterSelector": { "expressions": ["cluster.metadata.name in ['b', 'c']"] } }),
            2,
            &["b", "c"],
        ),
        (json!({ "clusterSelector": { "names": ["d"] }, "tolerations": tolerated }), 1, &["d"]),
        (
            json!({ "clusterSelector": { "expressions": ["cluster.metadata.labels['region'] == 'eu'"] } }),
            2,
            &["a", "b"],
        ),
    ];
    let path = format!("{PLACEMENTS}/shop");
    fleet.root.create(DEPLOYMENTS, deployment("web", 4)).await?;
    for (spec, number, names) in rows {
        fleet.root.apply(&path, policy("Placement", "shop", spec)).await?;
        let is_expected = |record: &Value| {
            let described = targets(record);
            let is_target =
                |name: &&str| described.iter().any(|target| target.starts_with(&format!("{name} Steady")));
            record["spec"]["chosenBy"]["name"] == "shop"
                && described.len() == number
                && described.iter().all(|target| target.contains("Steady"))
                && names.iter().all(is_target)
        };
        fleet.root.until(WEB_RECORD, is_expected).await?;
        fleet.root.until(&path, |found| condition(found, "Accepted")["status"] == "True").await?;
        fleet.root.until_available(WEB, 4).await?;
    }
    Ok(())
}
