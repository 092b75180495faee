//! The verdict of tools that wait for an object: `helm --wait`, Argo and Flux follow these rules.
//!
//! The rules were published as kstatus; this is an implementation from its documentation. They read one object and
//! nothing else: no events, no pods, no second read. So a tool may have acted on the status of a user's object at any
//! revision.

use api::meta::is_being_deleted;
use serde_json::Value;

/// The state that a tool believes the object to be in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not reconciled yet, with the reason.
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
    if is_being_deleted(object) {
        return Terminating;
    }
    let (generation, observed) =
        (object["metadata"]["generation"].as_i64(), object["status"]["observedGeneration"].as_i64());
    if observed.is_some() && observed != generation {
        return InProgress("observedGeneration is older than metadata.generation");
    }
    if has_status(object, "Reconciling", "True") {
        return InProgress("the condition Reconciling is True");
    }
    if has_status(object, "Stalled", "True") {
        return Failed("the condition Stalled is True");
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
fn has_status(object: &Value, condition: &str, status: &str) -> bool {
    crate::client::condition(object, condition)["status"] == status
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the number of desired replicas; the default is one.
fn desired(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Returns `InProgress` with the reason of the first row that holds, or `Current`.
fn first_missing(rows: &[(bool, &'static str)]) -> Verdict {
    rows.iter().find(|(holds, _)| *holds).map_or(Current, |(_, reason)| InProgress(reason))
}

fn deployment(object: &Value) -> Verdict {
    let progress = crate::client::condition(object, "Progressing");
    if progress["reason"] == "ProgressDeadlineExceeded" {
        return Failed("the progress deadline is exceeded");
    }
    // Without a deadline the condition does not report the progress of a rollout.
    let has_deadline = !object["spec"]["progressDeadlineSeconds"].is_null();
    let has_new_replica_set = progress["status"] == "True" && progress["reason"] == "NewReplicaSetAvailable";
    let [all, updated, ready, available] =
        ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
            .map(|field| number(object, &format!("/status/{field}")));
    let desired = desired(object);
    first_missing(&[
        (all < desired, "replicas are missing"),
        (updated < desired, "replicas are outdated"),
        (all > desired, "surplus replicas exist"),
        (available < updated, "replicas are not available"),
        (ready < desired, "replicas are not ready"),
        (has_deadline && !has_new_replica_set, "the new ReplicaSet is not available"),
        (!has_status(object, "Available", "True"), "the condition Available is not True"),
    ])
}

fn replica_set(object: &Value) -> Verdict {
    let [all, labelled, ready, available] =
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
            .map(|field| number(object, &format!("/status/{field}")));
    let desired = desired(object);
    first_missing(&[
        (has_status(object, "ReplicaFailure", "True"), "replicas cannot be created"),
        (labelled < desired, "replicas are not labelled"),
        (available < desired, "replicas are not available"),
        (ready < desired, "replicas are not ready"),
        (all > desired, "surplus replicas exist"),
    ])
}

fn stateful_set(object: &Value) -> Verdict {
    let strategy = &object["spec"]["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return Current;
    }
    let [all, ready, current, updated] = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas"]
        .map(|field| number(object, &format!("/status/{field}")));
    let desired = desired(object);
    let counts = first_missing(&[
        (all < desired, "replicas are missing"),
        (ready < desired, "replicas are not ready"),
        (all > desired, "surplus replicas exist"),
    ]);
    if counts != Current {
        return counts;
    }
    let partition = number(strategy, "/rollingUpdate/partition");
    if partition > 0 {
        return first_missing(&[(updated < desired - partition, "replicas of the partition are outdated")]);
    }
    let revision = |field: &str| object["status"][field].as_str();
    first_missing(&[
        (current < desired, "replicas are not at the current revision"),
        (revision("currentRevision") != revision("updateRevision"), "replicas are outdated"),
    ])
}

fn daemon_set(object: &Value) -> Verdict {
    let is_set = |field: &str| !object["status"][field].is_null();
    let [desired, scheduled, updated, available, ready] = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberReady",
    ]
    .map(|field| number(object, &format!("/status/{field}")));
    first_missing(&[
        (!is_set("observedGeneration"), "status.observedGeneration is not set"),
        (!is_set("desiredNumberScheduled"), "status.desiredNumberScheduled is not set"),
        (scheduled < desired, "replicas are missing"),
        (updated < desired, "replicas are outdated"),
        (available < desired, "replicas are not available"),
        (ready < desired, "replicas are not ready"),
    ])
}

/// A Job that runs is current: it need not be finished.
fn job(object: &Value) -> Verdict {
    match () {
        () if has_status(object, "Failed", "True") => Failed("the object has failed"),
        () if has_status(object, "Complete", "True") => Current,
        () => first_missing(&[(object["status"]["startTime"].is_null(), "status.startTime is not set")]),
    }
}

fn pod(object: &Value) -> Verdict {
    let statuses = object["status"]["containerStatuses"].as_array().into_iter().flatten();
    let crashes = |status: &Value| status["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    match object["status"]["phase"].as_str() {
        Some("Succeeded") => Current,
        Some("Failed") => Failed("the object has failed"),
        Some("Running") if has_status(object, "Ready", "True") => Current,
        Some("Running") if statuses.into_iter().any(crashes) => Failed("a container is in CrashLoopBackOff"),
        Some("Running") => InProgress("the pod is not ready"),
        _ => InProgress("the pod does not run"),
    }
}

fn claim(object: &Value) -> Verdict {
    first_missing(&[(object["status"]["phase"] != "Bound", "the claim is not bound")])
}

fn service(object: &Value) -> Verdict {
    let is_balanced = object["spec"]["type"] == "LoadBalancer";
    let addresses = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    first_missing(&[(is_balanced && addresses.is_none_or(Vec::is_empty), "the load balancer has no address")])
}

/// Any other kind: an object without a `Ready` condition is current.
fn generic(object: &Value) -> Verdict {
    let ready = &crate::client::condition(object, "Ready")["status"];
    first_missing(&[(!ready.is_null() && ready != "True", "the condition Ready is not True")])
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
    fn a_deployment_is_current_when_all_replicas_are_updated_and_available() {
        let check = |change: Value, expected: Verdict| {
            let object = deployment(change);
            assert_eq!(verdict(&object), expected, "{object:#}");
        };
        check(json!({}), Current);
        check(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), Terminating);
        check(
            json!({ "metadata": { "generation": 3 } }),
            InProgress("observedGeneration is older than metadata.generation"),
        );
        let with_count = |field: &str, number: i64| json!({ "status": { field: number } });
        check(with_count("replicas", 2), InProgress("replicas are missing"));
        check(with_count("updatedReplicas", 2), InProgress("replicas are outdated"));
        check(with_count("replicas", 4), InProgress("surplus replicas exist"));
        check(with_count("availableReplicas", 2), InProgress("replicas are not available"));
        check(with_count("readyReplicas", 2), InProgress("replicas are not ready"));
        let with_conditions = |list: Value| json!({ "status": { "conditions": list } });
        let available = json!({ "type": "Available", "status": "True" });
        let progress = |reason: &str| json!({ "type": "Progressing", "status": "True", "reason": reason });
        check(
            with_conditions(json!([available, progress("ReplicaSetUpdated")])),
            InProgress("the new ReplicaSet is not available"),
        );
        check(
            with_conditions(json!([progress("NewReplicaSetAvailable")])),
            InProgress("the condition Available is not True"),
        );
        check(
            with_conditions(json!([progress("ProgressDeadlineExceeded")])),
            Failed("the progress deadline is exceeded"),
        );
        check(
            with_conditions(json!([{ "type": "Reconciling", "status": "True" }])),
            InProgress("the condition Reconciling is True"),
        );
        check(
            with_conditions(json!([{ "type": "Stalled", "status": "True" }])),
            Failed("the condition Stalled is True"),
        );
    }

    #[test]
    fn each_kind_has_its_own_rules() {
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
        check("StatefulSet", set("b"), InProgress("replicas are outdated"));
        check("StatefulSet", json!({ "status": { "replicas": 1 } }), InProgress("replicas are not ready"));
        check("DaemonSet", json!({}), InProgress("status.observedGeneration is not set"));
        let with_condition = |name: &str| json!({ "status": { "startTime": "t", "conditions": [{ "type": name, "status": "True" }] } });
        check("Job", json!({}), InProgress("status.startTime is not set"));
        check("Job", with_condition("Suspended"), Current);
        check("Job", with_condition("Complete"), Current);
        check("Job", with_condition("Failed"), Failed("the object has failed"));
        check("Pod", json!({ "status": { "phase": "Pending" } }), InProgress("the pod does not run"));
        check("Pod", json!({ "status": { "phase": "Running" } }), InProgress("the pod is not ready"));
        check(
            "PersistentVolumeClaim",
            json!({ "status": { "phase": "Pending" } }),
            InProgress("the claim is not bound"),
        );
        check("PersistentVolumeClaim", json!({ "status": { "phase": "Bound" } }), Current);
        check(
            "Service",
            json!({ "spec": { "type": "LoadBalancer" } }),
            InProgress("the load balancer has no address"),
        );
        check("Service", json!({ "spec": { "type": "ClusterIP" } }), Current);
        check("ConfigMap", json!({}), Current);
        check(
            "Shop",
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
            InProgress("the condition Ready is not True"),
        );
    }
}
