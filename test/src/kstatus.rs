//! The verdict of tools that wait for an object: `helm --wait`, Argo and Flux follow these rules.
//!
//! The rules were published as kstatus; this is an implementation from its documentation. They read one object and
//! nothing else: no events, no pods, no second read. So a tool may have acted on the status of a user's object at any
//! revision.

use serde_json::Value;

/// The state that a tool believes the object to be in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not reconciled yet, with what is missing.
    InProgress(&'static str),
    /// Failed; it needs a change by the user.
    Failed(&'static str),
    /// Reconciled.
    Current,
    /// Being deleted.
    Terminating,
}

use Verdict::{Current, Failed, InProgress, Terminating};

/// Returns the verdict on an object from its metadata, spec and status.
pub fn verdict(object: &Value) -> Verdict {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Terminating;
    }
    let (generation, observed) =
        (object["metadata"]["generation"].as_i64(), object["status"]["observedGeneration"].as_i64());
    if observed.is_some() && observed != generation {
        return InProgress("it has not been looked at since it was changed");
    }
    if is(object, "Reconciling", "True") {
        return InProgress("it says that it is being worked on");
    }
    if is(object, "Stalled", "True") {
        return Failed("it says that it is stuck");
    }
    let kind = |name: &str| object["kind"].as_str() == Some(name);
    match () {
        () if kind("Deployment") => deployment(object),
        () if kind("ReplicaSet") => replica_set(object),
        () if kind("StatefulSet") => stateful_set(object),
        () if kind("DaemonSet") => daemon_set(object),
        () if kind("Job") => job(object),
        () if kind("Pod") => pod(object),
        () if kind("PersistentVolumeClaim") => claim(object),
        () if kind("Service") => service(object),
        () => generic(object),
    }
}

/// Returns whether a condition has this status.
fn is(object: &Value, condition: &str, status: &str) -> bool {
    crate::client::condition(object, condition)["status"] == status
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the number of wanted replicas; the default is one.
fn wanted(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Returns `InProgress` with the reason of the first row that holds, or `Current`.
fn first(rows: &[(bool, &'static str)]) -> Verdict {
    rows.iter().find(|(holds, _)| *holds).map_or(Current, |(_, missing)| InProgress(missing))
}

fn deployment(object: &Value) -> Verdict {
    let progress = crate::client::condition(object, "Progressing");
    if progress["reason"] == "ProgressDeadlineExceeded" {
        return Failed("its deadline is over");
    }
    // Without a deadline the condition says nothing about a rollout.
    let has_deadline = !object["spec"]["progressDeadlineSeconds"].is_null();
    let arrived = progress["status"] == "True" && progress["reason"] == "NewReplicaSetAvailable";
    let [all, updated, ready, available] =
        ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
            .map(|field| number(object, &format!("/status/{field}")));
    let wanted = wanted(object);
    first(&[
        (all < wanted, "some are not there"),
        (updated < wanted, "some are old"),
        (all > wanted, "some have yet to go"),
        (available < updated, "some are not available"),
        (ready < wanted, "some are not ready"),
        (has_deadline && !arrived, "its new ReplicaSet is not available"),
        (!is(object, "Available", "True"), "it is not available"),
    ])
}

fn replica_set(object: &Value) -> Verdict {
    let [all, labelled, ready, available] =
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
            .map(|field| number(object, &format!("/status/{field}")));
    let wanted = wanted(object);
    first(&[
        (is(object, "ReplicaFailure", "True"), "some cannot be made"),
        (labelled < wanted, "some are not labelled"),
        (available < wanted, "some are not available"),
        (ready < wanted, "some are not ready"),
        (all > wanted, "some have yet to go"),
    ])
}

fn stateful_set(object: &Value) -> Verdict {
    let strategy = &object["spec"]["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return Current;
    }
    let [all, ready, current, updated] = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas"]
        .map(|field| number(object, &format!("/status/{field}")));
    let wanted = wanted(object);
    let counts = first(&[
        (all < wanted, "some are not there"),
        (ready < wanted, "some are not ready"),
        (all > wanted, "some have yet to go"),
    ]);
    if counts != Current {
        return counts;
    }
    let partition = number(strategy, "/rollingUpdate/partition");
    if partition > 0 {
        return first(&[(updated < wanted - partition, "some of its partition are old")]);
    }
    let revision = |field: &str| object["status"][field].as_str();
    first(&[
        (current < wanted, "some are not of its revision"),
        (revision("currentRevision") != revision("updateRevision"), "some are old"),
    ])
}

fn daemon_set(object: &Value) -> Verdict {
    let is_said = |field: &str| !object["status"][field].is_null();
    let [wanted, scheduled, updated, available, ready] = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberReady",
    ]
    .map(|field| number(object, &format!("/status/{field}")));
    first(&[
        (!is_said("observedGeneration"), "it has not been looked at"),
        (!is_said("desiredNumberScheduled"), "nobody has counted"),
        (scheduled < wanted, "some are not there"),
        (updated < wanted, "some are old"),
        (available < wanted, "some are not available"),
        (ready < wanted, "some are not ready"),
    ])
}

/// A Job that runs is current: it need not be finished.
fn job(object: &Value) -> Verdict {
    match () {
        () if is(object, "Failed", "True") => Failed("it failed"),
        () if is(object, "Complete", "True") => Current,
        () => first(&[(object["status"]["startTime"].is_null(), "it has not begun")]),
    }
}

fn pod(object: &Value) -> Verdict {
    let statuses = object["status"]["containerStatuses"].as_array().into_iter().flatten();
    let crashes = |status: &Value| status["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    match object["status"]["phase"].as_str() {
        Some("Succeeded") => Current,
        Some("Failed") => Failed("it failed"),
        Some("Running") if is(object, "Ready", "True") => Current,
        Some("Running") if statuses.into_iter().any(crashes) => Failed("it crashes"),
        Some("Running") => InProgress("it is not ready"),
        _ => InProgress("it does not run"),
    }
}

fn claim(object: &Value) -> Verdict {
    first(&[(object["status"]["phase"] != "Bound", "it is not bound")])
}

fn service(object: &Value) -> Verdict {
    let is_balanced = object["spec"]["type"] == "LoadBalancer";
    let addresses = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    first(&[(is_balanced && addresses.is_none_or(Vec::is_empty), "it has no address")])
}

/// Any other kind: an object without a `Ready` condition is current.
fn generic(object: &Value) -> Verdict {
    let ready = &crate::client::condition(object, "Ready")["status"];
    first(&[(!ready.is_null() && ready != "True", "it says that it is not ready")])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a reconciled Deployment of three replicas with this change.
    fn deployment(change: Value) -> Value {
        let mut object = json!({
            "kind": "Deployment", "metadata": { "generation": 2 },
            "spec": { "replicas": 3, "progressDeadlineSeconds": 600 },
            "status": {
                "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
                "conditions": [
                    { "type": "Available", "status": "True" },
                    { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" },
                ],
            },
        });
        merge(&mut object, change);
        object
    }

    fn merge(object: &mut Value, change: Value) {
        match change {
            Value::Object(fields) => {
                fields.into_iter().for_each(|(name, value)| merge(&mut object[name], value))
            }
            other => *object = other,
        }
    }

    #[test]
    fn a_deployment_is_done_when_nothing_is_missing_old_or_left() {
        let check = |change: Value, expected: Verdict| {
            let object = deployment(change);
            assert_eq!(verdict(&object), expected, "{object:#}");
        };
        check(json!({}), Current);
        check(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), Terminating);
        check(
            json!({ "metadata": { "generation": 3 } }),
            InProgress("it has not been looked at since it was changed"),
        );
        let of = |field: &str, number: i64| json!({ "status": { field: number } });
        check(of("replicas", 2), InProgress("some are not there"));
        check(of("updatedReplicas", 2), InProgress("some are old"));
        check(of("replicas", 4), InProgress("some have yet to go"));
        check(of("availableReplicas", 2), InProgress("some are not available"));
        check(of("readyReplicas", 2), InProgress("some are not ready"));
        let says = |list: Value| json!({ "status": { "conditions": list } });
        let available = json!({ "type": "Available", "status": "True" });
        let progress = |reason: &str| json!({ "type": "Progressing", "status": "True", "reason": reason });
        check(
            says(json!([available, progress("ReplicaSetUpdated")])),
            InProgress("its new ReplicaSet is not available"),
        );
        check(says(json!([progress("NewReplicaSetAvailable")])), InProgress("it is not available"));
        check(says(json!([progress("ProgressDeadlineExceeded")])), Failed("its deadline is over"));
        check(
            says(json!([{ "type": "Reconciling", "status": "True" }])),
            InProgress("it says that it is being worked on"),
        );
        check(says(json!([{ "type": "Stalled", "status": "True" }])), Failed("it says that it is stuck"));
    }

    #[test]
    fn other_kinds_have_rules_of_their_own() {
        let check = |kind: &str, rest: Value, expected: Verdict| {
            let mut object = json!({ "kind": kind });
            merge(&mut object, rest);
            assert_eq!(verdict(&object), expected, "{object:#}");
        };
        let set = |updated: &str| {
            json!({ "spec": { "replicas": 2 }, "status": {
                "replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "currentRevision": "a", "updateRevision": updated,
            } })
        };
        check("StatefulSet", set("a"), Current);
        check("StatefulSet", set("b"), InProgress("some are old"));
        check("StatefulSet", json!({ "status": { "replicas": 1 } }), InProgress("some are not ready"));
        check("DaemonSet", json!({}), InProgress("it has not been looked at"));
        let told = |name: &str| json!({ "status": { "startTime": "t", "conditions": [{ "type": name, "status": "True" }] } });
        check("Job", json!({}), InProgress("it has not begun"));
        check("Job", told("Suspended"), Current);
        check("Job", told("Complete"), Current);
        check("Job", told("Failed"), Failed("it failed"));
        check("Pod", json!({ "status": { "phase": "Pending" } }), InProgress("it does not run"));
        check("Pod", json!({ "status": { "phase": "Running" } }), InProgress("it is not ready"));
        check(
            "PersistentVolumeClaim",
            json!({ "status": { "phase": "Pending" } }),
            InProgress("it is not bound"),
        );
        check("PersistentVolumeClaim", json!({ "status": { "phase": "Bound" } }), Current);
        check("Service", json!({ "spec": { "type": "LoadBalancer" } }), InProgress("it has no address"));
        check("Service", json!({ "spec": { "type": "ClusterIP" } }), Current);
        check("ConfigMap", json!({}), Current);
        check(
            "Shop",
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
            InProgress("it says that it is not ready"),
        );
    }
}
