use super::*;

mod deployments;
mod exact;
mod others;
mod rules;

static NO_LABELS: Labels = Labels::new();
const NOW: &str = "2026-03-01T12:00:00Z";

pub(super) fn report<'a>(cluster: &'a str, status: &'a Value) -> Report<'a> {
    Report {
        cluster,
        role: Role::Steady,
        status: (!status.is_null()).then_some(status),
        generation: 7,
        source_generation: 3,
        current: true,
        stale: false,
        share: None,
        index_start: 0,
        labels: &NO_LABELS,
    }
}

pub(super) fn user_object(object: &Value) -> UserObject<'_> {
    UserObject {
        object,
        desired: None,
        is_duplicated: false,
        pending: 0,
        unplaced: None,
        unsent: None,
        missing: None,
        now: NOW,
    }
}

pub(super) fn condition(name: &str, status: &str, time: &str, message: &str) -> Value {
    json!({ "type": name, "status": status, "reason": format!("R{time}"), "message": message, "lastTransitionTime": time })
}

/// Type, status, reason and message of each condition.
pub(super) fn condition_rows(status: &Value) -> Vec<[String; 4]> {
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let row =
        |one: &Value| [text(one, "type"), text(one, "status"), text(one, "reason"), text(one, "message")];
    status["conditions"].as_array().into_iter().flatten().map(row).collect()
}

fn row(name: &str, status: &str, reason: &str, message: &str) -> [String; 4] {
    [name, status, reason, message].map(str::to_owned)
}

#[test]
fn targets_are_counted_by_health() {
    let web = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
    let good = json!({ "observedGeneration": 7, "replicas": 2, "availableReplicas": 2 });
    let behind = json!({ "observedGeneration": 6, "replicas": 2, "availableReplicas": 2 });
    let few = json!({ "observedGeneration": 7, "replicas": 2, "availableReplicas": 1 });
    let broken = json!({ "observedGeneration": 7, "replicas": 2, "conditions": [condition("Progressing", "False", "t", "late")] });
    let none = Value::Null;
    let of = |status: &Value| health::target(&Report { share: Some(2), ..report("a", status) }, &web, true);
    let reports: Vec<(Role, api::fleet::TargetReport)> =
        [&good, &behind, &few, &broken, &none].into_iter().map(|status| (Role::Steady, of(status))).collect();
    let rows: Vec<(&str, bool)> =
        reports.iter().map(|(_, one)| (one.message.as_str(), one.updated)).collect();
    assert_eq!(
        rows,
        [
            ("", true),
            ("the latest generation is not observed yet", false),
            ("1 of 2 available", true),
            ("late", true),
            ("no report yet", false)
        ]
    );
    let mut all = reports.clone();
    all.push((Role::Leaving, of(&good)));
    let counts = health::counts(&all);
    assert_eq!(
        counts,
        api::fleet::Counts { total: 5, applied: 5, available: 1, progressing: 3, degraded: 1, updated: 3 }
    );
    let check = |kind: &str, status: Value, expected: api::fleet::Health| {
        let object = json!({ "apiVersion": "v1", "kind": kind });
        assert_eq!(health::of(&report("a", &status), &object).0, expected, "{kind} {status}");
    };
    use api::fleet::Health::{Available, Degraded, Progressing, Unknown};
    check("Job", json!({ "active": 2 }), Progressing);
    check("Job", json!({ "conditions": [condition("Complete", "True", "t", "")] }), Available);
    check("DaemonSet", json!({ "numberAvailable": 2, "desiredNumberScheduled": 3 }), Progressing);
    check("DaemonSet", json!({ "numberAvailable": 3, "desiredNumberScheduled": 3 }), Available);
    check("PersistentVolumeClaim", json!({ "phase": "Pending" }), Progressing);
    check("PersistentVolumeClaim", json!({ "phase": "Bound" }), Available);
    check("Widget", json!({ "phase": "Failed" }), Degraded);
    check("Widget", json!({ "conditions": [condition("Ready", "False", "t", "")] }), Progressing);
    check("Pod", Value::Null, Unknown);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
    let target = health::target(&report("a", &none), &map, true);
    assert_eq!((target.health, target.updated), (api::fleet::Health::Available, true));
}

/// A move between real clusters took the replicas of the source away as soon as those of the target were ready: Kubernetes
/// omits availableReplicas while it is zero, and the ready ones counted instead, whatever minReadySeconds is.
#[test]
fn ready_replicas_of_a_deployment_are_not_available_ones() {
    let object = |api_version: &str, kind: &str, status: Value| json!({ "apiVersion": api_version, "kind": kind, "status": status });
    let check = |object: Value, expected: u32| assert_eq!(kinds::available(&object), expected, "{object}");
    check(object("apps/v1", "Deployment", json!({ "replicas": 6, "readyReplicas": 6 })), 0);
    check(object("apps/v1", "Deployment", json!({ "readyReplicas": 6, "availableReplicas": 5 })), 5);
    check(object("apps/v1", "StatefulSet", json!({ "readyReplicas": 2 })), 0);
    check(object("example.com/v1", "Shop", json!({ "readyReplicas": 2 })), 2);
    check(object("example.com/v1", "Shop", json!({})), 0);
}
