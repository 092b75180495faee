//! Kinds on two targets that no other test covers: where they run, and the status that waiting tools read.

use std::time::Duration;

use anyhow::Result;
use controller::kind::ResourceKind;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use scenarios::history::{History, Moment};
use scenarios::kstatus::{Verdict, verdict};
use serde_json::{Value, json};
use standin::{Delays, Options};

use crate::app::*;

fn object_of(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// Returns an indexed Job with six indexes and these environment variables.
fn indexed_job(name: &str, env: Value) -> Value {
    let container = json!({ "name": "main", "image": "busybox", "env": env });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let spec =
        json!({ "completionMode": "Indexed", "completions": 6, "parallelism": 6, "template": template });
    object_of("batch/v1", "Job", name, spec)
}

fn is_on_both(downstream: &[Option<Value>]) -> bool {
    downstream.iter().all(Option::is_some)
}

fn is_on_one(downstream: &[Option<Value>]) -> bool {
    downstream.iter().flatten().count() == 1
}

fn sum(downstream: &[Option<Value>], pointer: &str) -> u64 {
    downstream.iter().flatten().filter_map(|object| object.pointer(pointer)?.as_u64()).sum()
}

/// Checks a divided indexed Job: its pods add an offset, so each index runs once. A Job whose pods cannot do that is
/// not divided.
fn starts_at_0_and_3(downstream: &[Option<Value>]) -> bool {
    let start = |object: &Value| object.pointer("/spec/template/spec/containers/0/env/0/value").cloned();
    let mut starts: Vec<Value> = downstream.iter().flatten().filter_map(start).collect();
    starts.sort_by_key(ToString::to_string);
    starts == ["0", "3"] && sum(downstream, "/spec/completions") == 6
}

type KindRow = (&'static str, Value, fn(&[Option<Value>]) -> bool, fn(&Value) -> bool);

/// Each kind with a check of where it runs, and a check of the user's status.
fn rows() -> Vec<KindRow> {
    let selects = json!({ "matchLabels": { "app": "web" } });
    let index_start = json!([{ "name": "HOLON_INDEX_START", "value": "0" }]);
    let is_complete = |job: &Value| {
        condition(job, "Complete")["status"] == "True" && job["status"]["completedIndexes"] == "0-5"
    };
    vec![
        (
            "/apis/apps/v1/namespaces/shop/replicasets",
            object_of(
                "apps/v1",
                "ReplicaSet",
                "web",
                json!({ "replicas": 5, "selector": selects, "template": template("web") }),
            ),
            |downstream| is_on_both(downstream) && sum(downstream, "/spec/replicas") == 5,
            |set| set["status"]["availableReplicas"] == 5 && set["status"]["replicas"] == 5,
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies",
            object_of("networking.k8s.io/v1", "NetworkPolicy", "web", json!({ "podSelector": selects })),
            is_on_both,
            |_| true,
        ),
        (
            "/apis/apps/v1/namespaces/shop/daemonsets",
            object_of(
                "apps/v1",
                "DaemonSet",
                "agent",
                json!({ "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent") }),
            ),
            |downstream| is_on_both(downstream) && sum(downstream, "/status/numberReady") >= 2,
            |set| verdict(set) == Verdict::Current && set["status"]["numberReady"].as_u64() >= Some(2),
        ),
        (
            "/api/v1/namespaces/shop/pods",
            object_of("v1", "Pod", "alone", json!({ "containers": [{ "name": "main", "image": "web:1" }] })),
            is_on_one,
            |pod| pod["status"]["phase"] == "Running",
        ),
        (
            "/apis/batch/v1/namespaces/shop/jobs",
            indexed_job("whole", json!([])),
            |downstream| is_on_one(downstream) && sum(downstream, "/spec/completions") == 6,
            is_complete,
        ),
        (
            "/apis/batch/v1/namespaces/shop/jobs",
            indexed_job("parts", index_start),
            starts_at_0_and_3,
            is_complete,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_placed_on_its_targets() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    // Some kinds are divided only once, over the targets at that time, so all targets must be known first.
    fleet.root.create(DEPLOYMENTS, deployment("first", 2)).await?;
    fleet.root.until_available(&format!("{DEPLOYMENTS}/first"), 2).await?;
    for (_, member) in fleet.members() {
        member.downstream.until_exists(&downstream_path(&format!("{DEPLOYMENTS}/first"))).await?;
    }
    for (collection, object, is_placed_as_expected, has_expected_status) in rows() {
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        fleet.root.create(collection, object).await?;
        fleet.root.until(&path, has_expected_status).await?;
        until(&format!("{path} is placed as expected"), async || {
            let mut downstream = Vec::new();
            for (_, member) in fleet.members() {
                downstream.push(member.downstream.get(&downstream_path(&path)).await?);
            }
            Ok(is_placed_as_expected(&downstream))
        })
        .await?;
    }
    Ok(())
}

/// Slow enough for intermediate states to be visible.
const DELAYS: Delays = Delays {
    start: Duration::from_millis(20),
    ready: Duration::from_millis(20),
    stop: Duration::from_millis(20),
    ..Delays::NONE
};

fn image(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]["containers"][0]["image"]
}

/// Returns whether every mailbox object has the current template, all its replicas, and a status of its current
/// generation.
fn is_fully_updated(moment: &Moment, updated: &str, desired: &str) -> bool {
    moment.mailbox_objects.len() == 2
        && moment.mailbox_objects.values().all(|object| {
            let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
            image(object) == image(&moment.user_object)
                && object["status"]["observedGeneration"] == object["metadata"]["generation"]
                && number(updated) >= number(desired)
        })
}

/// Creates and updates an object. Tools must see both as finished in the end, and never before they are.
async fn check_no_early_success(kind: ResourceKind, spec: Value, updated: &str, desired: &str) -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    for name in ["a", "b"] {
        fleet.join(Options { delays: DELAYS, ..Options::new(name) }, &[]).await?;
    }
    let history = History::of(&fleet, kind.clone()).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let collection = format!("/apis/apps/v1/namespaces/shop/{}", kind.plural);
    let path = format!("{collection}/web");
    fleet.root.create(&collection, object_of("apps/v1", &kind.name, "web", spec)).await?;
    let mut last = Value::Null;
    for new_image in ["web:1", "web:2"] {
        let change = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": new_image }] } } } });
        fleet.root.merge(&path, change).await?;
        let is_current = |found: &Value| verdict(found) == Verdict::Current && image(found) == new_image;
        last = fleet.root.until(&path, is_current).await?;
        for (_, member) in fleet.members() {
            member.mailbox.until(&downstream_path(&path), |object| image(object) == new_image).await?;
        }
    }
    history.until_observed(&last).await?;
    let moments = history.moments("shop", "web");
    for (at, moment) in moments.iter().enumerate() {
        let is_reported_current =
            !moment.user_object.is_null() && verdict(&moment.user_object) == Verdict::Current;
        // A target that the splitter learned of later has no replicas yet when the first is done with all of them.
        let recent: Vec<String> = moments[at.saturating_sub(8)..=at].iter().map(Moment::describe).collect();
        let has_one_target = moment.mailbox_objects.len() == 1;
        assert!(
            !is_reported_current || has_one_target || is_fully_updated(moment, updated, desired),
            "the status reports success too early:\n{}\n{:#}",
            recent.join("\n"),
            moment.user_object["status"],
        );
    }
    assert!(is_fully_updated(moments.last().expect("the history has moments"), updated, desired));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_stateful_set_reports_no_early_success() -> Result<()> {
    let kind = ResourceKind::new("apps", "v1", "statefulsets", "StatefulSet", true);
    let spec = json!({
        "replicas": 4, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
        "template": template("web"),
    });
    check_no_early_success(kind, spec, "/status/updatedReplicas", "/spec/replicas").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_daemon_set_reports_no_early_success() -> Result<()> {
    let kind = ResourceKind::new("apps", "v1", "daemonsets", "DaemonSet", true);
    let spec = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": template("web") });
    check_no_early_success(kind, spec, "/status/updatedNumberScheduled", "/status/desiredNumberScheduled")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_complete_when_all_its_parts_are() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    for name in ["a", "b"] {
        fleet.join(Options { delays: DELAYS, ..Options::new(name) }, &[]).await?;
    }
    let history = History::of(&fleet, ResourceKind::new("batch", "v1", "jobs", "Job", true)).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    let spec = json!({ "completions": 7, "parallelism": 2, "template": template });
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    fleet.root.create(jobs, object_of("batch/v1", "Job", "sums", spec)).await?;
    let is_complete = |job: &Value| condition(job, "Complete")["status"] == "True";
    let job = fleet.root.until(&format!("{jobs}/sums"), is_complete).await?;
    assert_eq!(job["status"]["succeeded"], 7);
    history.until_observed(&job).await?;
    for moment in history.moments("shop", "sums").iter().filter(|moment| is_complete(&moment.user_object)) {
        assert!(moment.mailbox_objects.values().all(is_complete), "{:#?}", moment.mailbox_objects);
        assert_eq!(moment.sum("/status/succeeded"), 7);
    }
    Ok(())
}
