//! Overrides: an object differs on one cluster, until the Override is removed.

use anyhow::Result;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use serde_json::{Value, json};

use crate::app::*;

const OVERRIDES: &str = "/apis/holon.dev/v1alpha1/overrides";

/// Returns the spec and the labels of the downstream object.
async fn spec(fleet: &Fleet, member: &str) -> Result<(Value, Value)> {
    let object = fleet.member(member).downstream.until_exists(&downstream_path(WEB)).await?;
    Ok((object["spec"].clone(), object["metadata"]["labels"].clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_undone_when_it_is_deleted() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0] = json!({ "name": "main", "image": "docker.io/library/web:1", "env": [{ "name": "TIER", "value": "all" }] });
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 2).await?;
    let before = (spec(&fleet, "a").await?, spec(&fleet, "b").await?);
    let override_object = json!({
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
    fleet.root.create(OVERRIDES, override_object).await?;
    let is_overridden = |object: &Value| object["metadata"]["labels"]["zone"] == "a";
    let object = fleet.member("a").downstream.until(&downstream_path(WEB), is_overridden).await?;
    let pod = &object["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "mirror.example.org/library/web:1-a", "{pod:#}");
    let env = json!([{ "name": "TIER", "value": "edge" }, { "name": "ZONE", "value": "a" }]);
    assert_eq!(pod["containers"][0]["env"], env);
    assert_eq!((&pod["priorityClassName"], &pod["hostname"]), (&json!("low"), &json!("a-host")), "{pod:#}");
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(spec(&fleet, "b").await?, before.1, "the override changed the other cluster");
    // The user's object is unchanged.
    let web = fleet.root.until_exists(WEB).await?;
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "docker.io/library/web:1");
    fleet.root.delete(&format!("{OVERRIDES}/here")).await?;
    until("the object is unchanged again", async || Ok(spec(&fleet, "a").await? == before.0)).await?;
    fleet.root.until_available(WEB, 2).await.map(drop)
}

/// An error in an Override for a dependency was only logged; no object reported it.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_error_is_reported_on_the_dependency() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "a": "1" } });
    fleet.root.create(&format!("{SHOP}/configmaps"), map).await?;
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 1).await?;
    let override_object = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "odd" },
        "spec": {
            "objectSelector": { "kinds": [{ "group": "", "kind": "ConfigMap" }] },
            "rules": [{ "clusterSelector": {}, "jsonPatch": [{ "op": "remove", "path": "/data/b" }] }],
        },
    });
    fleet.root.create(OVERRIDES, override_object).await?;
    let map = format!("{SHOP}/configmaps/settings");
    let has_events = async |times: usize| {
        let is_event_of_settings =
            |event: &&Value| event["reason"] == "CannotSend" && event["involvedObject"]["name"] == "settings";
        let events = fleet.root.list(&format!("{SHOP}/events")).await?;
        anyhow::Ok(events.iter().filter(is_event_of_settings).count() == times)
    };
    until("an Event reports the error", async || has_events(1).await).await?;
    fleet.root.merge(&map, json!({ "data": { "a": "2" } })).await?;
    until("an Event reports it for the changed object too", async || has_events(2).await).await?;
    let object = fleet.member("a").downstream.until_exists(&downstream_path(&map)).await?;
    assert_eq!(object["data"]["a"], "1", "the sent object is unchanged");
    fleet.root.delete(&format!("{OVERRIDES}/odd")).await?;
    fleet
        .member("a")
        .downstream
        .until(&downstream_path(&map), |object| object["data"]["a"] == "2")
        .await
        .map(drop)
}

/// A mailbox object that one cluster's mailbox rejected ended the reconcile: the other targets were not updated, no
/// status was aggregated, and only the log reported it.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_by_one_mailbox_is_reported_and_blocks_no_other_target() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 2)).await?;
    fleet.root.until_available(WEB, 2).await?;
    let override_object = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "wrong" },
        "spec": { "rules": [{
            "clusterSelector": { "names": ["a"] },
            "mergePatch": { "spec": { "template": { "spec": { "restartPolicy": "Never" } } } },
        }] },
    });
    fleet.root.create(OVERRIDES, override_object).await?;
    let is_refused = |record: &Value| condition(record, "Sent")["status"] == "False";
    let record = fleet.root.until(WEB_RECORD, is_refused).await?;
    let message = condition(&record, "Sent")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("a: ") && message.contains("restartPolicy"), "{message}");
    until("an Event reports the rejection", async || {
        let events = fleet.root.list(&format!("{SHOP}/events")).await?;
        Ok(events.iter().any(|event| event["reason"] == "CannotSend" && event["message"] == *message))
    })
    .await?;
    // The other target is still updated.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 6 } })).await?;
    let b = fleet
        .member("b")
        .downstream
        .until(&downstream_path(WEB), |object| object["spec"]["replicas"] == 3)
        .await?;
    assert_eq!(b["spec"]["template"]["spec"]["restartPolicy"], "Always");
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 4).await?;
    fleet.root.delete(&format!("{OVERRIDES}/wrong")).await?;
    fleet.root.until_available(WEB, 6).await?;
    fleet.root.until(WEB_RECORD, |record| condition(record, "Sent").is_null()).await.map(drop)
}
