//! ReplicaSets, and ReplicationControllers, which are the same under an older name: so many pods of one template.
//!
//! Too few are made, too many deleted, those first that are missed least. What is finished or leaving does not count.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::{self, adopt, available_at, counted, of_template};
use crate::kind::Kind;
use crate::object::{
    annotation, condition, count, created, generation, is_being_deleted, is_true, label, name, number, text,
    time,
};
use crate::plan::{Event, Plan};
use crate::world::World;

/// After being refused, an owner tries again so much later.
pub(crate) const RETRY: std::time::Duration = std::time::Duration::from_secs(5);
/// Pods with a lower one are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(crate) fn step(world: &World, space: &str, now: Timestamp, plan: &mut Plan) {
    for kind in [Kind::ReplicaSets, Kind::ReplicationControllers] {
        for set in world.all(kind, space) {
            look(world, kind, set, now, plan);
        }
    }
}

fn look(world: &World, kind: Kind, set: &Value, now: Timestamp, plan: &mut Plan) {
    if !is_being_deleted(set) {
        adopt(world, kind, set, plan);
    }
    let pods = world.owned(Kind::Pods, set);
    let (active, leaving) = counted(&pods);
    let wanted = number(set, "/spec/replicas").unwrap_or(1);
    let missing = wanted - active.len() as i64;
    let refused = world.refusal(set).filter(|_| missing > 0);
    if !is_being_deleted(set) {
        match refused {
            Some((at, _)) if crate::clock::later(at, RETRY) > now => {
                plan.wake(crate::clock::later(at, RETRY))
            }
            _ => scale(kind, set, &active, missing, plan),
        }
    }
    let mut status = status(set, &active, refused, now, plan);
    // ReplicationControllers do not say how many leave.
    if kind == Kind::ReplicaSets {
        status["terminatingReplicas"] = leaving.into();
    }
    plan.status(kind, set, status);
}

fn scale(kind: Kind, set: &Value, active: &[&Value], missing: i64, plan: &mut Plan) {
    for _ in 0..missing {
        let mut pod = of_template(kind, set, &set["spec"]["template"]);
        pod["metadata"]["generateName"] = format!("{}-", name(set)).into();
        plan.create(Kind::Pods, pod, Event::new(kind, set, "SuccessfulCreate", "Created pod: {}"));
    }
    if missing < 0 {
        for pod in least_missed(active).into_iter().take(missing.unsigned_abs() as usize) {
            plan.delete(Kind::Pods, pod);
            let told = format!("Deleted pod: {}", name(pod));
            plan.tell(Event::new(kind, set, "SuccessfulDelete", told));
        }
    }
}

/// The pods in the order in which they are let go: not on a node, not running, not ready, cheap, crowded, newly ready,
/// often restarted, new.
fn least_missed<'a>(active: &[&'a Value]) -> Vec<&'a Value> {
    let crowd = |node: &str| active.iter().filter(|pod| text(pod, "/spec/nodeName") == node).count();
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
        let restarts = pods::restarts(pod);
        let order = (!node.is_empty(), phase, ready, cost);
        (
            order,
            Reverse(crowd(node)),
            Reverse(since.filter(|_| ready)),
            Reverse(restarts),
            Reverse(created(pod)),
        )
    });
    pods
}

fn status(
    set: &Value,
    active: &[&Value],
    refused: Option<(Timestamp, &str)>,
    now: Timestamp,
    plan: &mut Plan,
) -> Value {
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let labelled = |pod: &&&Value| {
        let mut wanted = labels.as_object().into_iter().flatten();
        wanted.all(|(key, value)| label(pod, key) == value.as_str())
    };
    let patience_s = count(set, "/spec/minReadySeconds");
    let mut available = 0;
    for pod in active {
        match available_at(pod, patience_s) {
            Some(at) if at <= now => available += 1,
            Some(at) => plan.wake(at),
            None => {}
        }
    }
    let failure = refused.map(|(at, told)| {
        let old = condition(set, "ReplicaFailure").map(|old| old["lastTransitionTime"].clone());
        json!({
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": told,
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
