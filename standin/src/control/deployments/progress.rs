//! What a Deployment says about itself: counts, whether it is available, and whether it gets on.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Rollout, size};
use crate::clock::later;
use crate::object::{condition, count, flag, generation, list, moment, name, number, text, time};
use crate::plan::Plan;

/// A deadline that means there is none.
const NEVER_S: i64 = i32::MAX as i64;

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
    let enough = available >= rollout.wanted - rollout.unavailable;
    match enough {
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
    progress(rollout, &status, &mut conditions, plan);
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

/// Whether every pod is of the template of now, and works.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let wanted = number(deployment, "/spec/replicas").unwrap_or(1);
    let all = ["/updatedReplicas", "/replicas", "/availableReplicas"];
    all.iter().all(|pointer| count(status, pointer) == wanted)
        && count(status, "/observedGeneration") >= generation(deployment)
}

fn progress(rollout: &Rollout<'_>, status: &Value, conditions: &mut Conditions, plan: &mut Plan) {
    let deployment = rollout.deployment;
    let deadline_s =
        number(deployment, "/spec/progressDeadlineSeconds").filter(|seconds| *seconds != NEVER_S);
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
    let is_settled =
        count(status, "/replicas") == count(status, "/updatedReplicas") && reason == "NewReplicaSetAvailable";
    if is_settled {
        return;
    }
    let whose = match rollout.new {
        Some(new) => format!("ReplicaSet {:?}", name(new)),
        None => format!("Deployment {:?}", name(deployment)),
    };
    if is_complete(deployment, status) {
        let told = format!("{whose} has successfully progressed.");
        return conditions.set("Progressing", "True", "NewReplicaSetAvailable", &told);
    }
    let told = format!("{whose} is progressing.");
    if rollout.new.is_none() && reason.is_empty() || gets_on(&deployment["status"], status) {
        return conditions.renew("Progressing", "True", "ReplicaSetUpdated", &told);
    }
    if reason == "NewReplicaSetAvailable" {
        // A new template: the deadline counts from now on.
        return conditions.renew("Progressing", "True", "ReplicaSetUpdated", &told);
    }
    let since = conditions.get("Progressing").and_then(|old| moment(old, "/lastUpdateTime"));
    let patience = std::time::Duration::from_secs(deadline_s.unsigned_abs());
    match since.map(|since| later(since, patience)) {
        Some(due) if due <= rollout.now => {
            let told = format!("{whose} has timed out progressing.");
            conditions.set("Progressing", "False", "ProgressDeadlineExceeded", &told);
        }
        Some(due) => plan.wake(due),
        None => conditions.set("Progressing", "True", "ReplicaSetUpdated", &told),
    }
}

/// Whether there are more new, ready or available pods than before, or fewer old ones.
fn gets_on(before: &Value, after: &Value) -> bool {
    let old_pods = |status: &Value| count(status, "/replicas") - count(status, "/updatedReplicas");
    let more = |pointer: &str| count(after, pointer) > count(before, pointer);
    more("/updatedReplicas")
        || more("/readyReplicas")
        || more("/availableReplicas")
        || old_pods(after) < old_pods(before)
}

/// Conditions with the times at which they were written and at which they changed.
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

    /// Says so, unless it is said already.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let is_said = |old: &Value| old["status"] == status && old["reason"] == reason;
        if !self.get(kind).is_some_and(is_said) {
            self.renew(kind, status, reason, message);
        }
    }

    /// Says so as of now.
    fn renew(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
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
