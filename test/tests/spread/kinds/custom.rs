//! Custom kinds.

use anyhow::Result;
use controller::kind::ResourceKind;
use controller::remote::Remote;
use scenarios::client::{TestClient, condition, until};
use scenarios::fleet::Fleet;
use scenarios::history::{History, Moment, check};
use serde_json::{Value, json};
use standin::{Options, Standin};

use crate::app::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/shop/widgets";
const ONE: &str = "/apis/example.com/v1/namespaces/shop/widgets/one";
const ONE_RECORD: &str = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/widget.example.com-one";
const RULES: &str = "/apis/holon.dev/v1alpha1/statusrules";

/// Returns the definition of widgets for users or for physical clusters. Users have more required fields.
fn definition(required: &[&str]) -> Value {
    let spec = json!({ "type": "object", "required": required, "properties": {
        "size": { "type": "integer" }, "color": { "type": "string" },
    } });
    let status = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.readyReplicas",
                } },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

/// Returns a fleet with two physical clusters that serve widgets.
async fn fleet() -> Result<Fleet> {
    let mut fleet = Fleet::alone().await?;
    for name in ["a", "b"] {
        let standin = Standin::start(Options::new(name)).await?;
        let downstream = TestClient(Remote::new(standin.client()));
        downstream.create(DEFINITIONS, definition(&[])).await?;
        downstream
            .until(&format!("{DEFINITIONS}/widgets.example.com"), |found| {
                condition(found, "Established")["status"] == "True"
            })
            .await?;
        fleet.join_standin(name, standin, &[]).await?;
    }
    fleet.root.create(DEFINITIONS, definition(&["size"])).await?;
    fleet.root.until(WIDGETS, |found| !found.is_null()).await?;
    Ok(fleet)
}

fn widget() -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "one" }, "spec": { "size": 3 } })
}

/// Writes the status of the widget on a physical cluster, as its operator would.
async fn report(fleet: &Fleet, member: &str, ready: u64, phase: &str, is_ready: bool) -> Result<Value> {
    let downstream = &fleet.member(member).downstream;
    let generation = downstream.until_exists(&downstream_path(ONE)).await?["metadata"]["generation"].clone();
    let message = json!({ "type": "Ready", "status": if is_ready { "True" } else { "False" }, "reason": "Reported",
        "message": "from the operator", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "observedGeneration": generation, "readyReplicas": ready, "phase": phase,
        "ready": ready, "conditions": [message] });
    downstream.merge(&format!("{}/status", downstream_path(ONE)), json!({ "status": status })).await?;
    Ok(status)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_an_unknown_kind_is_copied_from_one_target_and_aggregated_from_two() -> Result<()> {
    let fleet = fleet().await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    fleet.root.create(WIDGETS, widget()).await?;
    let status = report(&fleet, "a", 2, "Up", true).await?;
    fleet.root.until(ONE, |one| one["status"] == status).await?;
    fleet.root.place(SHOP, "*").await?;
    report(&fleet, "b", 3, "Up", false).await?;
    let one = fleet.root.until(ONE, |one| one["status"]["readyReplicas"] == 5).await?;
    assert_eq!(one["status"]["phase"], "Up", "a value on which all targets agree is copied");
    let ready = condition(&one, "Ready");
    assert_eq!(ready["status"], "False", "one target is not ready");
    assert!(ready["message"].as_str().is_some_and(|message| message.contains('b')), "{ready:#}");
    // Fields in which the clusters disagree are only in the Distribution.
    report(&fleet, "b", 3, "Down", false).await?;
    let has_difference =
        |record: &Value| record["status"]["differences"].to_string().contains("/status/phase");
    fleet.root.until(ONE_RECORD, has_difference).await?;
    // The mailbox has a definition of its own, which is not placed on the physical cluster.
    for (_, member) in fleet.members() {
        let definition = member.mailbox.until_exists(&format!("{DEFINITIONS}/widgets.example.com")).await?;
        assert_eq!(definition["metadata"]["labels"]["holon.dev/placed"], Value::Null);
        let downstream =
            member.downstream.until_exists(&format!("{DEFINITIONS}/widgets.example.com")).await?;
        assert!(
            downstream.pointer("/spec/versions/0/schema/openAPIV3Schema/properties").is_some(),
            "{downstream:#}"
        );
    }
    fleet.root.delete(ONE).await?;
    for (_, member) in fleet.members() {
        member.downstream.until_deleted(&downstream_path(ONE)).await?;
    }
    fleet.root.until_deleted(ONE_RECORD).await
}

/// A custom kind with a scale subresource can be divided, if its user requests that.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_can_be_scaled_is_divided_on_request() -> Result<()> {
    let fleet = fleet().await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut one = widget();
    one["metadata"]["annotations"] = json!({ "holon.dev/divide": "true" });
    fleet.root.create(WIDGETS, one).await?;
    let history =
        History::of(&fleet, ResourceKind::new("example.com", "v1", "widgets", "Widget", true)).await?;
    for size in [3_u64, 8, 5] {
        fleet.root.merge(ONE, json!({ "spec": { "size": size } })).await?;
        let (most, least) = (size.div_ceil(2), size / 2);
        until("each target has its half", async || {
            let mut sizes = Vec::new();
            for (name, member) in fleet.members() {
                let object = member.downstream.get(&downstream_path(ONE)).await?.unwrap_or_default();
                let size = object["spec"]["size"].as_u64().unwrap_or_default();
                // The operator reports that all replicas are ready.
                report(&fleet, name, size, "Up", true).await?;
                sizes.push(size);
            }
            sizes.sort_unstable();
            Ok(sizes == [least, most])
        })
        .await?;
        fleet.root.until(ONE, |one| one["status"]["readyReplicas"] == size).await?;
    }
    let size = |object: &Value| object["spec"]["size"].as_u64().unwrap_or_default();
    check(&history.moments("shop", "one"), |before, now| {
        let requested = |moment: &Moment| -> u64 { moment.mailbox_objects.values().map(size).sum() };
        requested(now) <= size(&now.user_object).max(requested(before))
    });
    Ok(())
}

/// The status of an object on a single target is copied, not aggregated. A rule with an error prevented that all the
/// same.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_rule_does_not_block_a_copied_status() -> Result<()> {
    let fleet = fleet().await?;
    fleet.root.create(RULES, rule("sum(")).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    fleet.root.create(WIDGETS, widget()).await?;
    let status = report(&fleet, "a", 2, "Up", true).await?;
    fleet.root.until(ONE, |one| one["status"] == status).await?;
    let refused = fleet.root.until_exists(&format!("{RULES}/widgets")).await?;
    assert_ne!(condition(&refused, "Accepted")["status"], "True", "{refused:#}");
    Ok(())
}

fn rule(expression: &str) -> Value {
    json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "StatusRule", "metadata": { "name": "widgets" },
        "spec": {
            "target": { "group": "example.com", "kind": "Widget" },
            "fields": [{ "path": "/status/ready", "expression": expression }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_rule_takes_effect_at_once_and_an_invalid_one_changes_nothing() -> Result<()> {
    let fleet = fleet().await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(WIDGETS, widget()).await?;
    report(&fleet, "a", 2, "Up", true).await?;
    report(&fleet, "b", 3, "Up", true).await?;
    fleet.root.until(ONE, |one| one["status"]["readyReplicas"] == 5).await?;
    let rule_path = format!("{RULES}/widgets");
    for (expression, expected) in
        [("sum(targets.map(t, t.status.ready))", 5), ("max(targets.map(t, t.status.ready))", 3)]
    {
        fleet.root.apply(&rule_path, rule(expression)).await?;
        fleet.root.until(ONE, |one| one["status"]["ready"] == expected).await?;
        let is_accepted = |rule: &Value| condition(rule, "Accepted")["status"] == "True";
        fleet.root.until(&rule_path, is_accepted).await?;
    }
    let history =
        History::of(&fleet, ResourceKind::new("example.com", "v1", "widgets", "Widget", true)).await?;
    fleet.root.apply(&rule_path, rule("sum(targets.map(t,\n  t.status.ready +))")).await?;
    let refused =
        fleet.root.until(&rule_path, |rule| condition(rule, "Accepted")["status"] == "False").await?;
    let error = &refused["status"]["errors"][0];
    assert_eq!(
        (&error["field"], &error["line"]),
        (&json!("spec.fields[0].expression"), &json!(2)),
        "{refused:#}"
    );
    assert!(error["column"].as_i64().is_some_and(|column| column > 1), "{refused:#}");
    let message = condition(&refused, "Accepted")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(": 2:"), "{message}");
    let is_failed = |record: &Value| condition(record, "StatusAggregated")["status"] == "False";
    fleet.root.until(ONE_RECORD, is_failed).await?;
    assert!(history.entries().iter().all(|entry| entry.is_old), "the status was written");
    // With a correct rule again, the changes made meanwhile are in the status.
    report(&fleet, "b", 7, "Up", true).await?;
    fleet.root.apply(&rule_path, rule("max(targets.map(t, t.status.ready))")).await?;
    fleet.root.until(ONE, |one| one["status"]["ready"] == 7).await?;
    let has_no_condition = |record: &Value| condition(record, "StatusAggregated").is_null();
    fleet.root.until(ONE_RECORD, has_no_condition).await.map(drop)
}

/// A kind that no physical cluster serves stays in the logical cluster. If its user sets a placement, its Distribution
/// reports the missing kind.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_no_cluster_serves_is_not_propagated() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.create(DEFINITIONS, definition(&["size"])).await?;
    fleet.root.until(WIDGETS, |found| !found.is_null()).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(WIDGETS, widget()).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    assert_eq!(fleet.root.get(ONE_RECORD).await?, None);
    fleet.root.place(ONE, "a").await?;
    let record =
        fleet.root.until(ONE_RECORD, |record| condition(record, "Placed")["status"] == "False").await?;
    let message = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("Widget"), "{message}");
    Ok(())
}

/// The splitter watched a kind forever that was defined and never placed. While it was unknown whether objects of it
/// exist, obsolete objects were not removed, in any logical cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_kind_blocks_no_other_work() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(DEFINITIONS, definition(&[])).await?;
    fleet.root.until(WIDGETS, |found| !found.is_null()).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    let mut one = widget();
    one["metadata"]["annotations"] = json!({ "holon.dev/placement": "a" });
    fleet.root.create(WIDGETS, one.clone()).await?;
    let is_pending = |record: &Value| condition(record, "Placed")["reason"] == "Pending";
    let mut record = fleet.root.until(ONE_RECORD, is_pending).await?;
    let definition_of = format!("{DEFINITIONS}/widgets.example.com");
    fleet.root.delete(&definition_of).await?;
    fleet.root.until_deleted(&definition_of).await?;
    fleet.root.until_deleted(ONE_RECORD).await?;
    // A Distribution that was written too late stayed: the garbage collector cannot tell that the owner of an unserved
    // kind is missing.
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        record["metadata"].as_object_mut().unwrap().remove(field);
    }
    let (records, _) = ONE_RECORD.rsplit_once('/').unwrap();
    fleet.root.create(records, record).await?;
    fleet.root.until_deleted(ONE_RECORD).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    fleet.root.delete(WEB).await?;
    fleet.member("a").downstream.until_deleted(&downstream_path(SHOP)).await?;
    // When the kind is defined again, it is watched again.
    fleet.root.create(DEFINITIONS, definition(&[])).await?;
    fleet.root.until(WIDGETS, |found| !found.is_null()).await?;
    fleet.root.create(WIDGETS, one).await?;
    fleet.root.until(ONE_RECORD, is_pending).await.map(drop)
}

/// A kind was watched in the version that its definition had when it was first seen. After an upgrade to another
/// version, its objects were not placed until the next start.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_kind_is_watched_in_its_new_version() -> Result<()> {
    let two_versions = |stored: &str, old_is_served: bool| {
        let mut two_versions = definition(&[]);
        let mut other = two_versions["spec"]["versions"][0].clone();
        other["name"] = "v2".into();
        two_versions["spec"]["versions"][0]["served"] = old_is_served.into();
        two_versions["spec"]["versions"].as_array_mut().unwrap().push(other);
        for version in two_versions["spec"]["versions"].as_array_mut().unwrap() {
            version["storage"] = (version["name"] == stored).into();
        }
        two_versions
    };
    let mut fleet = Fleet::alone().await?;
    let standin = Standin::start(Options::new("a")).await?;
    let downstream = TestClient(Remote::new(standin.client()));
    downstream.create(DEFINITIONS, two_versions("v1", true)).await?;
    let definition_of = format!("{DEFINITIONS}/widgets.example.com");
    let is_established = |found: &Value| condition(found, "Established")["status"] == "True";
    downstream.until(&definition_of, is_established).await?;
    fleet.join_standin("a", standin, &[]).await?;
    fleet.root.create(DEFINITIONS, definition(&[])).await?;
    fleet.root.until(WIDGETS, |found| !found.is_null()).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    fleet.root.create(WIDGETS, widget()).await?;
    let before = downstream.until_exists(&downstream_path(ONE)).await?;
    fleet
        .root
        .merge(
            &definition_of,
            json!({ "spec": { "versions": two_versions("v2", false)["spec"]["versions"] } }),
        )
        .await?;
    let widgets = WIDGETS.replace("/v1/", "/v2/");
    fleet.root.until(&widgets, |found| !found.is_null()).await?;
    let mut two = widget();
    two["apiVersion"] = "example.com/v2".into();
    two["metadata"]["name"] = "two".into();
    fleet.root.create(&widgets, two).await?;
    downstream.until_exists(&downstream_path(&format!("{widgets}/two"))).await?;
    fleet.root.merge(&format!("{widgets}/one"), json!({ "spec": { "size": 5 } })).await?;
    let after = downstream.until(&downstream_path(ONE), |one| one["spec"]["size"] == 5).await?;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "the object was replaced");
    Ok(())
}
