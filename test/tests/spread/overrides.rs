//! Overrides: an object differs on one cluster, until the Override is removed.

use anyhow::Result;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use serde_json::{Value, json};

use crate::app::*;

const OVERRIDES: &str = "/apis/holon.dev/v1alpha1/overrides";

/// Returns the spec and the labels of the downstream object.
async fn spec(fleet: &Fleet, member: &str) -> Result<(Value, Value)> {
    let copy = fleet.member(member).below.until_there(&there(WEB)).await?;
    Ok((copy["spec"].clone(), copy["metadata"]["labels"].clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_undone_when_it_is_deleted() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0] = json!({ "name": "main", "image": "docker.io/library/web:1", "env": [{ "name": "TIER", "value": "all" }] });
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 2).await?;
    let before = (spec(&fleet, "a").await?, spec(&fleet, "b").await?);
    let overriding = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "here" },
        "spec": { "rules": [{
            "clusterSelector": { "names": ["a"] },
            "images": [{ "registry": "mirror.example.org", "tag": "1-a" }],
            "env": [{ "set": [{ "name": "TIER", "value": "edge" }, { "name": "ZONE", "value": "a" }] }],
            "labels": { "set": { "zone": "a" } },
            "mergePatch": { "spec": { "template": { "spec": { "priorityClassName": "low" } } } },
            "jsonPatch": [{ "op": "add", "path": "/spec/minReadySeconds", "value": 1 }],
            "computed": [{ "path": "/spec/template/spec/hostname", "expression": "cluster.metadata.name + '-host'" }],
        }] },
    });
    fleet.root.make(OVERRIDES, overriding).await?;
    let is_other = |copy: &Value| copy["metadata"]["labels"]["zone"] == "a";
    let copy = fleet.member("a").below.until(&there(WEB), is_other).await?;
    let pod = &copy["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "mirror.example.org/library/web:1-a", "{pod:#}");
    let env = json!([{ "name": "TIER", "value": "edge" }, { "name": "ZONE", "value": "a" }]);
    assert_eq!(pod["containers"][0]["env"], env);
    assert_eq!((&pod["priorityClassName"], &pod["hostname"]), (&json!("low"), &json!("a-host")), "{pod:#}");
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(spec(&fleet, "b").await?, before.1, "elsewhere nothing is different");
    // The user's object is unchanged.
    let web = fleet.root.until_there(WEB).await?;
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "docker.io/library/web:1");
    fleet.root.delete(&format!("{OVERRIDES}/here")).await?;
    until("it is as it was", async || Ok(spec(&fleet, "a").await? == before.0)).await?;
    fleet.root.until_available(WEB, 2).await.map(drop)
}

/// An error in an Override for a dependency was only logged, and no object reported it.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_that_cannot_be_done_is_told_on_itself() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "a": "1" } });
    fleet.root.make(&format!("{SHOP}/configmaps"), map).await?;
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 1).await?;
    let overriding = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "odd" },
        "spec": {
            "objectSelector": { "kinds": [{ "group": "", "kind": "ConfigMap" }] },
            "rules": [{ "clusterSelector": {}, "jsonPatch": [{ "op": "remove", "path": "/data/b" }] }],
        },
    });
    fleet.root.make(OVERRIDES, overriding).await?;
    let map = format!("{SHOP}/configmaps/settings");
    let is_told = async |times: usize| {
        let told =
            |event: &&Value| event["reason"] == "CannotSend" && event["involvedObject"]["name"] == "settings";
        let events = fleet.root.list(&format!("{SHOP}/events")).await?;
        anyhow::Ok(events.iter().filter(told).count() == times)
    };
    until("it is told", async || is_told(1).await).await?;
    fleet.root.merge(&map, json!({ "data": { "a": "2" } })).await?;
    until("it is told of what was changed, too", async || is_told(2).await).await?;
    let copy = fleet.member("a").below.until_there(&there(&map)).await?;
    assert_eq!(copy["data"]["a"], "1", "what is there stays");
    fleet.root.delete(&format!("{OVERRIDES}/odd")).await?;
    fleet.member("a").below.until(&there(&map), |copy| copy["data"]["a"] == "2").await.map(drop)
}

/// A mailbox object that one cluster's mailbox rejected ended the reconcile: the other targets were not updated, no
/// status was aggregated, and only the log said so.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_by_one_mailbox_is_reported_and_blocks_no_other_target() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    let overriding = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "wrong" },
        "spec": { "rules": [{
            "clusterSelector": { "names": ["a"] },
            "mergePatch": { "spec": { "template": { "spec": { "restartPolicy": "Never" } } } },
        }] },
    });
    fleet.root.make(OVERRIDES, overriding).await?;
    let refused = |record: &Value| condition(record, "Sent")["status"] == "False";
    let record = fleet.root.until(WEB_RECORD, refused).await?;
    let why = condition(&record, "Sent")["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("a: ") && why.contains("restartPolicy"), "{why}");
    until("it is told", async || {
        let events = fleet.root.list(&format!("{SHOP}/events")).await?;
        Ok(events.iter().any(|event| event["reason"] == "CannotSend" && event["message"] == *why))
    })
    .await?;
    // The other target is still updated.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 6 } })).await?;
    let b = fleet.member("b").below.until(&there(WEB), |copy| copy["spec"]["replicas"] == 3).await?;
    assert_eq!(b["spec"]["template"]["spec"]["restartPolicy"], "Always");
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 4).await?;
    fleet.root.delete(&format!("{OVERRIDES}/wrong")).await?;
    fleet.root.until_available(WEB, 6).await?;
    fleet.root.until(WEB_RECORD, |record| condition(record, "Sent").is_null()).await.map(drop)
}
