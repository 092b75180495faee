//! The status of a Deployment: replica counts and the conditions Available, Progressing and ReplicaFailure.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Rollout, size};
use crate::clock::later;
use crate::objects::fields::{condition, count, flag, generation, list, name, number, text, time, timestamp};
use crate::plan::Plan;

/// The `progressDeadlineSeconds` that stands for no deadline.
const NO_DEADLINE_S: i64 = i32::MAX as i64;

pub(super) fn status(rollout: &Rollout<'_>, plan: &mut Plan) -> Value {
    let deployment = rollout.deployment;
    let sum = |pointer: &str| rollout.sets().map(|set| count(set, pointer)).sum::<i64>();
    let available = sum("/status/availableReplicas");
    let sizes: i64 = rollout.sets().map(size).sum();
    let mut status = json!({
        "observedGeneration": generation(deployment),
        "replicas": sum("/status/replicas"),
        "updatedReplicas": rollout.new.map_or(0, |new| count(new, "/status/replicas")),
        "readyReplicas": sum("/status/readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": (sizes - available).max(0),
        "terminatingReplicas": sum("/status/terminatingReplicas"),
        "collisionCount": deployment["status"]["collisionCount"],
    });
    let mut conditions =
        Conditions { all: list(deployment, "/status/conditions").to_vec(), now: rollout.now };
    let is_available = available >= rollout.desired - rollout.unavailable;
    match is_available {
        true => conditions.set(
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        ),
        false => conditions.set(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        ),
    }
    set_progressing(rollout, &status, &mut conditions, plan);
    let failed = rollout.sets().find_map(|set| condition(set, "ReplicaFailure"));
    match failed {
        Some(failed) => {
            conditions.set("ReplicaFailure", "True", text(failed, "/reason"), text(failed, "/message"));
        }
        None => conditions.all.retain(|condition| condition["type"] != "ReplicaFailure"),
    }
    status["conditions"] = conditions.all.into();
    status
}

/// Returns whether every pod has the current template and is available.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let desired = number(deployment, "/spec/replicas").unwrap_or(1);
    let all = ["/updatedReplicas", "/replicas", "/availableReplicas"];
    all.iter().all(|pointer| count(status, pointer) == desired)
        && count(status, "/observedGeneration") >= generation(deployment)
}

fn set_progressing(rollout: &Rollout<'_>, status: &Value, conditions: &mut Conditions, plan: &mut Plan) {
    let deployment = rollout.deployment;
    let deadline_s =
        number(deployment, "/spec/progressDeadlineSeconds").filter(|seconds| *seconds != NO_DEADLINE_S);
    let Some(deadline_s) = deadline_s else {
        return conditions.all.retain(|condition| condition["type"] != "Progressing");
    };
    let reason = conditions.reason("Progressing").to_owned();
    if flag(deployment, "/spec/paused") {
        if reason != "ProgressDeadlineExceeded" {
            conditions.set("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused");
        }
        return;
    }
    if reason == "DeploymentPaused" {
        return conditions.set("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed");
    }
    let is_complete_already =
        count(status, "/replicas") == count(status, "/updatedReplicas") && reason == "NewReplicaSetAvailable";
    if is_complete_already {
        return;
    }
    let subject = match rollout.new {
        Some(new) => format!("ReplicaSet {:?}", name(new)),
        None => format!("Deployment {:?}", name(deployment)),
    };
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        return conditions.set("Progressing", "True", "NewReplicaSetAvailable", &message);
    }
    let message = format!("{subject} is progressing.");
    if rollout.new.is_none() && reason.is_empty() || has_progressed(&deployment["status"], status) {
        return conditions.update("Progressing", "True", "ReplicaSetUpdated", &message);
    }
    if reason == "NewReplicaSetAvailable" {
        // The template is new, so the deadline starts now.
        return conditions.update("Progressing", "True", "ReplicaSetUpdated", &message);
    }
    let since = conditions.get("Progressing").and_then(|old| timestamp(old, "/lastUpdateTime"));
    let deadline = std::time::Duration::from_secs(deadline_s.unsigned_abs());
    match since.map(|since| later(since, deadline)) {
        Some(due) if due <= rollout.now => {
            let message = format!("{subject} has timed out progressing.");
            conditions.set("Progressing", "False", "ProgressDeadlineExceeded", &message);
        }
        Some(due) => plan.requeue_at(due),
        None => conditions.set("Progressing", "True", "ReplicaSetUpdated", &message),
    }
}

/// Returns whether there are more new, ready or available pods than before, or fewer old ones.
fn has_progressed(before: &Value, after: &Value) -> bool {
    let old_pods = |status: &Value| count(status, "/replicas") - count(status, "/updatedReplicas");
    let more = |pointer: &str| count(after, pointer) > count(before, pointer);
    more("/updatedReplicas")
        || more("/readyReplicas")
        || more("/availableReplicas")
        || old_pods(after) < old_pods(before)
}

/// Conditions with `lastUpdateTime` and `lastTransitionTime`.
struct Conditions {
    all: Vec<Value>,
    now: Timestamp,
}

impl Conditions {
    fn get(&self, kind: &str) -> Option<&Value> {
        self.all.iter().find(|condition| condition["type"] == kind)
    }

    fn reason(&self, kind: &str) -> &str {
        self.get(kind).map_or("", |condition| text(condition, "/reason"))
    }

    /// Sets a condition, unless it has this status and reason already.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let is_set = |old: &Value| old["status"] == status && old["reason"] == reason;
        if !self.get(kind).is_some_and(is_set) {
            self.update(kind, status, reason, message);
        }
    }

    /// Sets a condition and its `lastUpdateTime`.
    fn update(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let unchanged = self.get(kind).filter(|old| old["status"] == status);
        let since = unchanged.map(|old| old["lastTransitionTime"].clone());
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastUpdateTime": time(self.now), "lastTransitionTime": since.unwrap_or_else(|| time(self.now)),
        });
        match self.all.iter_mut().find(|old| old["type"] == kind) {
            Some(old) => *old = condition,
            None => self.all.push(condition),
        }
    }
}
