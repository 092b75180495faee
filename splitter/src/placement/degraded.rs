//! Distinguishes degraded pods from starting ones.
//!
//! The status of a workload counts unavailable pods, without a reason. Pods of a workload that was just
//! scaled up are available soon; those with a broken template never are, and a new template may fix them. Only time
//! distinguishes them: a pod that has been unavailable for a minute is degraded.

use std::collections::BTreeSet;
use std::time::Duration;

use api::cluster::Id;
use api::meta::{conditions, is_being_deleted};
use jiff::Timestamp;
use serde_json::Value;

use crate::division::DivisionRule;
use crate::placement::context::PlacementContext;
use crate::placement::estimate::{UNSCHEDULABLE_AFTER, since};
use crate::snapshot::{Caches, mailbox_objects};

/// The targets where a workload that waits for a new template is degraded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DegradedTargets {
    pub(crate) mailboxes: BTreeSet<Id>,
    /// When to reconcile again without an event.
    pub(crate) requeue_after: Option<Duration>,
}

impl DegradedTargets {
    pub(crate) fn of(caches: &Caches, context: &PlacementContext) -> DegradedTargets {
        let mut degraded = DegradedTargets::default();
        if context.rule() != DivisionRule::Replicas {
            return degraded;
        }
        let now = context.now;
        for mailbox_object in
            context.mailbox_objects.iter().filter(|mailbox_object| !context.is_current(mailbox_object))
        {
            let Some(object) = &mailbox_object.object else { continue };
            if context
                .desired_replicas(mailbox_object)
                .is_none_or(|desired| mailbox_object.available() >= desired)
            {
                continue;
            }
            let pods = mailbox_objects::pods_of(caches, mailbox_object);
            let Some(begun) = down_since(object, &pods) else { continue };
            let left = UNSCHEDULABLE_AFTER.saturating_sub(since(begun, now));
            if left.is_zero() {
                degraded.mailboxes.insert(mailbox_object.mailbox);
            } else {
                degraded.requeue_after = degraded.requeue_after.into_iter().chain([left]).min();
            }
        }
        degraded
    }
}

/// Since when a Deployment has a pod that is not ready, or cannot create one.
fn down_since(deployment: &Value, pods: &[Value]) -> Option<Timestamp> {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let condition = |object: &Value, kind: &str| conditions::find(object, kind).cloned();
    let staying = pods.iter().filter(|pod| !is_being_deleted(pod));
    let unready = staying.filter_map(|pod| match condition(pod, "Ready") {
        Some(ready) if ready["status"] == "True" => None,
        Some(ready) => time(&ready["lastTransitionTime"]),
        None => time(&pod["metadata"]["creationTimestamp"]),
    });
    let failure = condition(deployment, "ReplicaFailure").filter(|condition| condition["status"] == "True");
    let uncreated = failure.and_then(|condition| time(&condition["lastTransitionTime"]));
    unready.chain(uncreated).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_workload_is_down_since_its_oldest_problem() {
        let condition = |kind: &str, status: &str, minute: u32| json!({ "type": kind, "status": status, "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z") });
        let pod = |ready: Value| json!({ "metadata": { "creationTimestamp": "2026-01-01T00:30:00Z" }, "status": { "conditions": [ready] } });
        let with = |failure: Value| json!({ "status": { "conditions": [failure] } });
        let check = |deployment: Value, pods: &[Value], minute: Option<u32>| {
            let expected = minute.map(|minute| format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap());
            assert_eq!(down_since(&deployment, pods), expected, "{deployment} {pods:?}");
        };
        let (up, down) = (pod(condition("Ready", "True", 1)), pod(condition("Ready", "False", 40)));
        check(json!({}), &[], None);
        check(json!({}), std::slice::from_ref(&up), None);
        check(json!({}), &[up.clone(), down.clone()], Some(40));
        check(json!({}), &[down.clone(), pod(json!({}))], Some(30));
        let mut leaving = pod(condition("Ready", "False", 2));
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:03:00Z".into();
        check(json!({}), &[leaving, down.clone()], Some(40));
        check(with(condition("ReplicaFailure", "True", 20)), &[up.clone(), down.clone()], Some(20));
        check(with(condition("ReplicaFailure", "False", 20)), &[up, down], Some(40));
    }
}
