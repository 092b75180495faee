//! Kinds on two targets that no other story covers: where they run, and what tools that wait for them see.

use std::time::Duration;

use anyhow::Result;
use controller::kind::Kind;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use scenarios::history::{History, Moment};
use scenarios::kstatus::{Verdict, verdict};
use serde_json::{Value, json};
use standin::{Delays, Options};

use crate::app::*;

fn of(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// Returns an indexed Job with six indexes and these environment variables.
fn numbered(name: &str, env: Value) -> Value {
    let container = json!({ "name": "main", "image": "busybox", "env": env });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let spec =
        json!({ "completionMode": "Indexed", "completions": 6, "parallelism": 6, "template": template });
    of("batch/v1", "Job", name, spec)
}

fn is_on_both(below: &[Option<Value>]) -> bool {
    below.iter().all(Option::is_some)
}

fn is_on_one(below: &[Option<Value>]) -> bool {
    below.iter().flatten().count() == 1
}

fn sum(below: &[Option<Value>], pointer: &str) -> u64 {
    below.iter().flatten().filter_map(|copy| copy.pointer(pointer)?.as_u64()).sum()
}

/// Checks a divided indexed Job: its pods add an offset, so each index runs once. A Job whose pods cannot do that is
/// not divided.
fn begins_at_0_and_3(below: &[Option<Value>]) -> bool {
    let start = |copy: &Value| copy.pointer("/spec/template/spec/containers/0/env/0/value").cloned();
    let mut starts: Vec<Value> = below.iter().flatten().filter_map(start).collect();
    starts.sort_by_key(ToString::to_string);
    starts == ["0", "3"] && sum(below, "/spec/completions") == 6
}

type Row = (&'static str, Value, fn(&[Option<Value>]) -> bool, fn(&Value) -> bool);

/// Each kind with a check of where it runs, and a check of the user's status.
fn rows() -> Vec<Row> {
    let selects = json!({ "matchLabels": { "app": "web" } });
    let begins = json!([{ "name": "HOLON_INDEX_START", "value": "0" }]);
    let is_over = |job: &Value| {
        condition(job, "Complete")["status"] == "True" && job["status"]["completedIndexes"] == "0-5"
    };
    vec![
        (
            "/apis/apps/v1/namespaces/shop/replicasets",
            of(
                "apps/v1",
                "ReplicaSet",
                "web",
                json!({ "replicas": 5, "selector": selects, "template": template("web") }),
            ),
            |below| is_on_both(below) && sum(below, "/spec/replicas") == 5,
            |set| set["status"]["availableReplicas"] == 5 && set["status"]["replicas"] == 5,
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies",
            of("networking.k8s.io/v1", "NetworkPolicy", "web", json!({ "podSelector": selects })),
            is_on_both,
            |_| true,
        ),
        (
            "/apis/apps/v1/namespaces/shop/daemonsets",
            of(
                "apps/v1",
                "DaemonSet",
                "agent",
                json!({ "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent") }),
            ),
            |below| is_on_both(below) && sum(below, "/status/numberReady") >= 2,
            |set| verdict(set) == Verdict::Current && set["status"]["numberReady"].as_u64() >= Some(2),
        ),
        (
            "/api/v1/namespaces/shop/pods",
            of("v1", "Pod", "alone", json!({ "containers": [{ "name": "main", "image": "web:1" }] })),
            is_on_one,
            |pod| pod["status"]["phase"] == "Running",
        ),
        (
            "/apis/batch/v1/namespaces/shop/jobs",
            numbered("whole", json!([])),
            |below| is_on_one(below) && sum(below, "/spec/completions") == 6,
            is_over,
        ),
        ("/apis/batch/v1/namespaces/shop/jobs", numbered("parts", begins), begins_at_0_and_3, is_over),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_where_it_should_be() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    // Some kinds are divided only once, over the targets at that time, so all targets must be known first.
    fleet.root.make(DEPLOYMENTS, deployment("first", 2)).await?;
    fleet.root.until_available(&format!("{DEPLOYMENTS}/first"), 2).await?;
    for (_, member) in fleet.members() {
        member.below.until_there(&there(&format!("{DEPLOYMENTS}/first"))).await?;
    }
    for (collection, object, is_there, is_told) in rows() {
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        fleet.root.make(collection, object).await?;
        fleet.root.until(&path, is_told).await?;
        until(&format!("{path} is where it should be"), async || {
            let mut below = Vec::new();
            for (_, member) in fleet.members() {
                below.push(member.below.get(&there(&path)).await?);
            }
            Ok(is_there(&below))
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
fn is_done(moment: &Moment, updated: &str, wanted: &str) -> bool {
    moment.copies.len() == 2
        && moment.copies.values().all(|copy| {
            let number = |pointer: &str| copy.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
            image(copy) == image(&moment.whole)
                && copy["status"]["observedGeneration"] == copy["metadata"]["generation"]
                && number(updated) >= number(wanted)
        })
}

/// Creates and updates an object. Tools must see both as finished in the end, and never before they are.
async fn told(kind: Kind, spec: Value, updated: &str, wanted: &str) -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    for name in ["a", "b"] {
        fleet.join(Options { delays: DELAYS, ..Options::new(name) }, &[]).await?;
    }
    let history = History::of(&fleet, kind.clone()).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let collection = format!("/apis/apps/v1/namespaces/shop/{}", kind.plural);
    let path = format!("{collection}/web");
    fleet.root.make(&collection, of("apps/v1", &kind.name, "web", spec)).await?;
    let mut last = Value::Null;
    for newer in ["web:1", "web:2"] {
        let change = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": newer }] } } } });
        fleet.root.merge(&path, change).await?;
        let is_done = |found: &Value| verdict(found) == Verdict::Current && image(found) == newer;
        last = fleet.root.until(&path, is_done).await?;
        for (_, member) in fleet.members() {
            member.mailbox.until(&there(&path), |copy| image(copy) == newer).await?;
        }
    }
    history.hears(&last).await?;
    let moments = history.moments("shop", "web");
    for (at, moment) in moments.iter().enumerate() {
        let is_told = !moment.whole.is_null() && verdict(&moment.whole) == Verdict::Current;
        // A target that the splitter learned of later has no replicas yet when the first is done with all of them.
        let told: Vec<String> = moments[at.saturating_sub(8)..=at].iter().map(Moment::told).collect();
        let is_only = moment.copies.len() == 1;
        assert!(
            !is_told || is_only || is_done(moment, updated, wanted),
            "it is said to be done:\n{}\n{:#}",
            told.join("\n"),
            moment.whole["status"],
        );
    }
    assert!(is_done(moments.last().expect("something happened"), updated, wanted));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_stateful_set_reports_no_early_success() -> Result<()> {
    let kind = Kind::new("apps", "v1", "statefulsets", "StatefulSet", true);
    let spec = json!({
        "replicas": 4, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
        "template": template("web"),
    });
    told(kind, spec, "/status/updatedReplicas", "/spec/replicas").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_daemon_set_reports_no_early_success() -> Result<()> {
    let kind = Kind::new("apps", "v1", "daemonsets", "DaemonSet", true);
    let spec = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": template("web") });
    told(kind, spec, "/status/updatedNumberScheduled", "/status/desiredNumberScheduled").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_over_when_all_of_it_is() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    for name in ["a", "b"] {
        fleet.join(Options { delays: DELAYS, ..Options::new(name) }, &[]).await?;
    }
    let history = History::of(&fleet, Kind::new("batch", "v1", "jobs", "Job", true)).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    let spec = json!({ "completions": 7, "parallelism": 2, "template": template });
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    fleet.root.make(jobs, of("batch/v1", "Job", "sums", spec)).await?;
    let is_over = |job: &Value| condition(job, "Complete")["status"] == "True";
    let job = fleet.root.until(&format!("{jobs}/sums"), is_over).await?;
    assert_eq!(job["status"]["succeeded"], 7);
    history.hears(&job).await?;
    for moment in history.moments("shop", "sums").iter().filter(|moment| is_over(&moment.whole)) {
        assert!(moment.copies.values().all(is_over), "{:#?}", moment.copies);
        assert_eq!(moment.sum("/status/succeeded"), 7);
    }
    Ok(())
}
