//! Only placed objects are applied downstream, and each change is written once.

use std::time::Duration;

use anyhow::Result;
use api::names::{MAILBOX as OF_MAILBOX, ORIGIN, SYNCER};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::setup::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GARDENS: &str = "/apis/example.com/v1/gardens";

/// Returns the definition of gardens with this schema of `plant`.
fn definition(plant: &Value) -> Value {
    let mut plant = plant.clone();
    plant["type"] = json!("string");
    let spec = json!({ "type": "object", "properties": { "plant": plant } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "gardens.example.com" },
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": { "plural": "gardens", "singular": "garden", "kind": "Garden" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "spec": spec },
                } },
            }],
        },
    })
}

fn garden(plant: &str) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Garden", "metadata": { "name": "front" }, "spec": { "plant": plant } })
}

fn has_finalizer(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|name| name == SYNCER))
}

#[tokio::test(flavor = "multi_thread")]
async fn placed_objects_are_applied_downstream_once() -> Result<()> {
    let test = SyncerTest::new().await?;
    // The order in which a namespace and its objects arrive does not matter.
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    let in_mailbox = test.place(CONFIG_MAPS, map("settings", "one")).await?;
    test.mailbox.create(CONFIG_MAPS, map("private", "stays")).await?;
    test.place(DEPLOYMENTS, deployment("web")).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "type": "NodePort", "selector": { "app": "web" }, "ports": [{ "port": 80 }] },
    });
    test.place("/api/v1/namespaces/shop/services", service).await?;
    let running = test.start();

    let downstream = test.downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
    assert_eq!(downstream["data"], json!({ "key": "one" }));
    assert_eq!(downstream["metadata"]["annotations"][OF_MAILBOX], MAILBOX);
    assert_eq!(downstream["metadata"]["annotations"][ORIGIN], in_mailbox["metadata"]["uid"]);
    assert!(has_finalizer(&test.mailbox.until_exists(&format!("{CONFIG_MAPS}/settings")).await?));
    test.downstream.until_exists(&format!("{DEPLOYMENTS}/web")).await?;
    test.downstream.until_exists("/api/v1/namespaces/shop/services/web").await?;
    test.until_steady().await?;
    assert_eq!(test.downstream.get(&format!("{CONFIG_MAPS}/private")).await?, None);
    let report = test.mailbox.until_exists("/apis/holon.dev/v1alpha1/physicalclusters/east").await?;
    assert!(report["status"]["uid"].is_string(), "{report:#}");
    until("Synced is True", async || Ok(test.condition("Synced").await?["status"] == "True")).await?;

    // A new syncer without any state finds nothing to do.
    running.stop().await;
    test.downstream_link.written();
    let running = test.start();
    test.mailbox.merge(&format!("{CONFIG_MAPS}/settings"), json!({ "data": { "key": "two" } })).await?;
    test.downstream.until(&format!("{CONFIG_MAPS}/settings"), |found| found["data"]["key"] == "two").await?;
    tokio::time::sleep(STEADY).await;
    let written = test.downstream_link.written();
    assert_eq!(written, [format!("PATCH {CONFIG_MAPS}/settings")], "one change is more than one write");
    drop(running);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn downstream_drift_is_corrected_and_fields_of_others_are_kept() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    let mut two_keys = map("settings", "one");
    two_keys["data"]["other"] = json!("old");
    test.place(CONFIG_MAPS, two_keys).await?;
    let _running = test.start();
    let path = format!("{CONFIG_MAPS}/settings");
    test.downstream.until_exists(&path).await?;
    test.downstream.merge(&path, json!({ "data": { "key": "wrong", "theirs": "yes" } })).await?;
    let found = test.downstream.until(&path, |found| found["data"]["key"] == "one").await?;
    assert_eq!(found["data"]["theirs"], "yes");
    // A key that is no longer desired is removed; keys of others stay.
    test.mailbox.merge(&path, json!({ "data": { "other": null } })).await?;
    let found = test.downstream.until(&path, |found| found["data"]["other"].is_null()).await?;
    assert_eq!(found["data"], json!({ "key": "one", "theirs": "yes" }));
    // A downstream object that someone deletes or unlabels is applied again.
    test.downstream.delete(&path).await?;
    test.downstream.until(&path, |found| found["data"] == json!({ "key": "one" })).await?;
    test.downstream.merge(&path, json!({ "metadata": { "labels": null } })).await?;
    test.downstream.until(&path, |found| found["metadata"]["labels"].is_object()).await?;
    test.until_steady().await
}

/// While no syncer ran, someone added a rule to a NetworkPolicy, which admitted more traffic. The syncer took the rule
/// for another manager's and kept it. `up` checks that nothing is written if there was no such change.
#[tokio::test(flavor = "multi_thread")]
async fn list_items_added_while_no_syncer_ran_are_removed() -> Result<()> {
    const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies";
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    let friends = json!({ "from": [{ "podSelector": { "matchLabels": { "app": "friends" } } }] });
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "friends" },
        "spec": { "podSelector": {}, "policyTypes": ["Ingress"], "ingress": [friends] },
    });
    test.place(POLICIES, policy).await?;
    let mut web = deployment("web");
    web["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--quiet"]);
    test.place(DEPLOYMENTS, web).await?;
    let running = test.start();
    let [policy, web] = [format!("{POLICIES}/friends"), format!("{DEPLOYMENTS}/web")];
    let rules = test.downstream.until_exists(&policy).await?["spec"]["ingress"].take();
    let container = "/spec/template/spec/containers/0";
    let found = test.downstream.until_exists(&web).await?;
    test.until_steady().await?;
    running.stop().await;
    test.downstream.merge(&policy, json!({ "spec": { "ingress": [friends, {}] } })).await?;
    let mut changed_container = found.pointer(container).cloned().unwrap_or_default();
    changed_container["args"] = json!(["--quiet", "--loud"]);
    // An injected container belongs to the other manager.
    let template =
        json!({ "spec": { "containers": [changed_container, { "name": "injected", "image": "theirs" }] } });
    test.downstream.merge(&web, json!({ "spec": { "template": template } })).await?;
    let _running = test.start();
    test.downstream.until(&policy, |found| found["spec"]["ingress"] == rules).await?;
    let has_one_argument =
        |found: &Value| found.pointer(&format!("{container}/args")) == Some(&json!(["--quiet"]));
    let found = test.downstream.until(&web, has_one_argument).await?;
    assert_eq!(found["spec"]["template"]["spec"]["containers"][1]["name"], "injected");
    test.until_steady().await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_objects_with_a_tombstone_are_deleted_downstream() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["deleted", "missing", "kept"] {
        test.place(CONFIG_MAPS, map(name, "one")).await?;
    }
    let running = test.start();
    for name in ["deleted", "missing", "kept"] {
        test.downstream.until_exists(&format!("{CONFIG_MAPS}/{name}")).await?;
    }
    test.mailbox.delete(&format!("{CONFIG_MAPS}/deleted")).await?;
    test.downstream.until_deleted(&format!("{CONFIG_MAPS}/deleted")).await?;
    test.mailbox.until_deleted(&format!("{CONFIG_MAPS}/deleted")).await?;
    // Someone removes our finalizer while no syncer runs, and deletes the mailbox object: there is no tombstone.
    running.stop().await;
    let missing = format!("{CONFIG_MAPS}/missing");
    test.mailbox.merge(&missing, json!({ "metadata": { "finalizers": null } })).await?;
    test.mailbox.delete(&missing).await?;
    test.mailbox.until_deleted(&missing).await?;
    test.downstream_link.written();
    let _running = test.start();
    until("Synced reports the missing tombstone", async || {
        let synced = test.condition("Synced").await?;
        Ok(synced["message"].as_str().is_some_and(|message| message.contains("shop/missing: NoTombstone")))
    })
    .await?;
    assert!(test.downstream.get(&missing).await?.is_some());
    assert_eq!(test.downstream_link.written(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_namespace_is_deleted_downstream_with_its_objects() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    test.place(CONFIG_MAPS, map("settings", "one")).await?;
    let _running = test.start();
    test.downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
    test.mailbox.delete(&format!("{NAMESPACES}/shop")).await?;
    test.mailbox.until_deleted(&format!("{NAMESPACES}/shop")).await?;
    test.downstream.until_deleted(&format!("{NAMESPACES}/shop")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_others_are_not_changed_unless_adopted() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.downstream.create(NAMESPACES, namespace("shop")).await?;
    let theirs = test.downstream.create(CONFIG_MAPS, map("settings", "theirs")).await?;
    test.mailbox.create(NAMESPACES, namespace("shop")).await?;
    test.place(CONFIG_MAPS, map("settings", "ours")).await?;
    let _running = test.start();
    until("Synced reports NotOurs", async || {
        let synced = test.condition("Synced").await?;
        Ok(synced["message"].as_str().is_some_and(|message| message.contains("shop/settings: NotOurs")))
    })
    .await?;
    assert_eq!(test.downstream.get(&format!("{CONFIG_MAPS}/settings")).await?, Some(theirs));
    let events = test.mailbox.get("/api/v1/namespaces/shop/events").await?.unwrap_or_default();
    assert_eq!(events["items"][0]["reason"], "NotOurs", "{events:#}");
    let adopting = json!({ "metadata": { "annotations": { "holon.dev/adopt": "true" } } });
    test.mailbox.merge(&format!("{CONFIG_MAPS}/settings"), adopting).await?;
    test.downstream.until(&format!("{CONFIG_MAPS}/settings"), |found| found["data"]["key"] == "ours").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_kind_is_synced_as_soon_as_its_definition_is_downstream() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    let definition = test.mailbox.create(DEFINITIONS, definition(&json!({}))).await?;
    until("the kind is served", async || Ok(test.mailbox.get(GARDENS).await?.is_some())).await?;
    test.place(GARDENS, garden("rose")).await?;
    until("Synced reports KindNotServed", async || {
        let synced = test.condition("Synced").await?;
        Ok(synced["message"].as_str().is_some_and(|message| message.contains("front: KindNotServed")))
    })
    .await?;
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let placing = json!({ "metadata": { "labels": { "holon.dev/placed": "true" } } });
    test.mailbox.merge(&format!("{DEFINITIONS}/{name}"), placing).await?;
    let found = test.downstream.until_exists(&format!("{GARDENS}/front")).await?;
    assert_eq!(found["spec"], json!({ "plant": "rose" }));
    test.downstream
        .merge(
            &format!("{GARDENS}/front/status"),
            json!({ "status": { "blooms": 3, "observedGeneration": 1 } }),
        )
        .await?;
    test.mailbox.until(&format!("{GARDENS}/front"), |found| found["status"]["blooms"] == 3).await?;
    test.until_steady().await
}

/// The definition downstream is stricter, so only the physical cluster rejects the object.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_objects_are_retried_with_backoff_and_reported() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(DEFINITIONS, definition(&json!({}))).await?;
    test.downstream.create(DEFINITIONS, definition(&json!({ "enum": ["tulip"] }))).await?;
    for client in [&test.mailbox, &test.downstream] {
        until("the kind is served", async || Ok(client.get(GARDENS).await?.is_some())).await?;
    }
    test.place(GARDENS, garden("rose")).await?;
    let _running = test.start();
    let path = format!("{GARDENS}/front");

    // Each retry waits twice as long as the previous one: 10 ms, 20 ms, … 640 ms. A busy machine only adds to that.
    let attempts = write_attempts(&test, &path, 8).await?;
    let delays: Vec<_> = attempts.windows(2).map(|two| two[1] - two[0]).collect();
    let least = |nth: usize| Duration::from_millis(10 << nth);
    assert!(delays.iter().enumerate().skip(1).all(|(nth, gap)| *gap >= least(nth)), "{delays:?}");
    until("Synced reports the rejection", async || {
        let synced = test.condition("Synced").await?;
        let message = synced["message"].as_str().unwrap_or_default();
        let is_reported = message.contains("gardens front: Refused: ") && message.contains("spec.plant");
        Ok(synced["status"] == "False" && is_reported)
    })
    .await?;
    let events = test.mailbox.get("/api/v1/namespaces/default/events").await?.unwrap_or_default();
    let events: Vec<_> = events["items"].as_array().into_iter().flatten().collect();
    assert_eq!(events.len(), 1, "all attempts have one event: {events:#?}");
    assert_eq!(
        (&events[0]["reason"], &events[0]["involvedObject"]["name"]),
        (&json!("Refused"), &json!("front"))
    );
    assert_eq!(test.downstream.get(&path).await?, None);

    // The downstream definition is relaxed, and the syncer recovers by itself.
    let relaxed = definition(&json!({ "enum": ["tulip", "rose"] }));
    test.downstream.merge(&format!("{DEFINITIONS}/gardens.example.com"), relaxed).await?;
    assert_eq!(test.downstream.until_exists(&path).await?["spec"]["plant"], "rose");
    until("Synced is True", async || Ok(test.condition("Synced").await?["status"] == "True")).await?;
    test.until_steady().await
}

/// Returns the times of so many attempts to write an object downstream.
async fn write_attempts(test: &SyncerTest, path: &str, count: usize) -> Result<Vec<Instant>> {
    let (mut attempts, expected_call) = (Vec::new(), format!("PATCH {path}"));
    until("the object was written so many times", async || {
        let written = test.downstream_link.written_when();
        attempts.extend(written.into_iter().filter(|(_, call)| *call == expected_call).map(|(when, _)| when));
        Ok(attempts.len() >= count)
    })
    .await?;
    Ok(attempts)
}
