//! ReplicaSets and ReplicationControllers: keep a number of pods of one template.
//!
//! Missing pods are created and surplus ones deleted, in the order of `pods_to_delete`. Finished and terminating pods
//! do not count.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::{active_and_terminating, adopt, from_template};
use crate::cache::Cache;
use crate::clock::later;
use crate::objects::fields::{
    annotation, condition, count, creation_time, generation, is_being_deleted, is_true, label, name, number,
    text, time,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::{available_at, restarts};
use crate::plan::{Event, Plan};

/// The delay before an owner retries after a failed create.
const RETRY: std::time::Duration = std::time::Duration::from_secs(5);
/// Pods with a lower cost are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(crate) fn reconcile(cache: &Cache, ns: &str, now: Timestamp, plan: &mut Plan) {
    for kind in [ObjectKind::ReplicaSets, ObjectKind::ReplicationControllers] {
        for set in cache.list(kind, ns) {
            reconcile_set(cache, kind, set, now, plan);
        }
    }
}

fn reconcile_set(cache: &Cache, kind: ObjectKind, set: &Value, now: Timestamp, plan: &mut Plan) {
    if !is_being_deleted(set) {
        adopt(cache, kind, set, plan);
    }
    let pods = cache.controlled_by(ObjectKind::Pods, set);
    let (active, terminating) = active_and_terminating(&pods);
    let desired = number(set, "/spec/replicas").unwrap_or(1);
    let missing = desired - active.len() as i64;
    let failure = cache.create_failure(set).filter(|_| missing > 0);
    if !is_being_deleted(set) {
        match failure {
            Some((at, _)) if later(at, RETRY) > now => plan.requeue_at(later(at, RETRY)),
            _ => scale(kind, set, &active, missing, plan),
        }
    }
    let mut status = status(set, &active, failure, now, plan);
    // ReplicationControllers have no such field.
    if kind == ObjectKind::ReplicaSets {
        status["terminatingReplicas"] = terminating.into();
    }
    plan.status(kind, set, status);
}

fn scale(kind: ObjectKind, set: &Value, active: &[&Value], missing: i64, plan: &mut Plan) {
    for _ in 0..missing {
        let mut pod = from_template(kind, set, &set["spec"]["template"]);
        pod["metadata"]["generateName"] = format!("{}-", name(set)).into();
        plan.create(ObjectKind::Pods, pod, Event::new(kind, set, "SuccessfulCreate", "Created pod: {}"));
    }
    if missing < 0 {
        for pod in pods_to_delete(active).into_iter().take(missing.unsigned_abs() as usize) {
            plan.delete(ObjectKind::Pods, pod);
            let message = format!("Deleted pod: {}", name(pod));
            plan.record(Event::new(kind, set, "SuccessfulDelete", message));
        }
    }
}

/// Returns the pods in the order in which they are deleted: unscheduled, not running, not ready, low deletion cost, on
/// nodes with many pods of the set, ready for a shorter time, often restarted, newer.
fn pods_to_delete<'a>(active: &[&'a Value]) -> Vec<&'a Value> {
    let pods_on = |node: &str| active.iter().filter(|pod| text(pod, "/spec/nodeName") == node).count();
    let mut pods = active.to_vec();
    pods.sort_by_key(|pod| {
        let node = text(pod, "/spec/nodeName");
        let phase = match text(pod, "/status/phase") {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let cost: i64 = annotation(pod, DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or_default();
        let ready = is_true(pod, "Ready");
        let since = condition(pod, "Ready").map(|ready| text(ready, "/lastTransitionTime").to_owned());
        let restarts = restarts(pod);
        let order = (!node.is_empty(), phase, ready, cost);
        (
            order,
            Reverse(pods_on(node)),
            Reverse(since.filter(|_| ready)),
            Reverse(restarts),
            Reverse(creation_time(pod)),
        )
    });
    pods
}

fn status(
    set: &Value,
    active: &[&Value],
    create_failure: Option<(Timestamp, &str)>,
    now: Timestamp,
    plan: &mut Plan,
) -> Value {
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let labelled = |pod: &&&Value| {
        let mut expected = labels.as_object().into_iter().flatten();
        expected.all(|(key, value)| label(pod, key) == value.as_str())
    };
    let min_ready_s = count(set, "/spec/minReadySeconds");
    let mut available = 0;
    for pod in active {
        match available_at(pod, min_ready_s) {
            Some(at) if at <= now => available += 1,
            Some(at) => plan.requeue_at(at),
            None => {}
        }
    }
    let failure = create_failure.map(|(at, message)| {
        let old = condition(set, "ReplicaFailure").map(|old| old["lastTransitionTime"].clone());
        json!({
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
            "lastTransitionTime": old.unwrap_or_else(|| time(at)),
        })
    });
    json!({
        "replicas": active.len(),
        "fullyLabeledReplicas": active.iter().filter(labelled).count(),
        "readyReplicas": active.iter().filter(|pod| is_true(pod, "Ready")).count(),
        "availableReplicas": available,
        "observedGeneration": generation(set),
        "conditions": failure.into_iter().collect::<Vec<_>>(),
    })
}
