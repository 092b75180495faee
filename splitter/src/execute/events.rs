//! Records Events about objects that do not run, or not on the clusters of their policy. Each is recorded once.

use std::time::Instant;

use api::fleet::{Condition, Distribution, DistributionStatus, ObjectReference};
use api::meta::hash::word;
use api::meta::time;
use controller::kind::ResourceKind;
use controller::remote::CallError;
use serde_json::{Value, json};

use crate::context::Splitter;
use crate::placement::context::PlacementContext;
use crate::placement::explain::sentence;
use crate::snapshot::ObjectRef;
use crate::status::CLASSES_FOUND;

const PLACED: &str = "Placed";
const HELD: &str = "Held";
const COMPLETE: &str = "Complete";
const SENT: &str = "Sent";
/// How much of a message is logged. It may quote a tenant's expression.
const LOGGED_CHARS_MAX: usize = 500;

/// Records the first condition that is a new problem.
pub(crate) async fn record_problems(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    record: &Distribution,
    now: &DistributionStatus,
) -> Result<(), CallError> {
    let Some(condition) = new_problem(record.status.as_ref(), now) else { return Ok(()) };
    let object_version = context.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    // The status of the record may not be in the cache yet when the next reconcile compares with it. A message may quote
    // text of a tenant, so the same problem with another message is not logged again.
    let about = [&context.subject.to_string(), &condition.r#type, &condition.reason];
    if splitter.repeated.is_due(&about.map(String::as_str), Instant::now()) {
        let outcome = outcome(condition);
        let message: String = condition.message.chars().take(LOGGED_CHARS_MAX).collect();
        tracing::info!(
            revision = object_version,
            from = sentence(context.recorded()),
            to = sentence(&record.spec.targets),
            condition = condition.r#type,
            reason = condition.reason,
            detail = message,
            "{outcome}"
        );
    }
    let at = &condition.last_transition_time;
    write(splitter, context.subject, context.object, (&condition.reason, &condition.message), at, at).await
}

/// The log message for a condition that is a problem.
fn outcome(condition: &Condition) -> &'static str {
    match (condition.r#type.as_str(), condition.reason.as_str()) {
        (PLACED, HELD) => "held",
        (SENT, _) => "not sent",
        (CLASSES_FOUND, _) => "class not found",
        _ => "pending",
    }
}

/// Records why an object cannot be sent, once per version of the object.
pub(crate) async fn record_send_failure(
    splitter: &Splitter,
    subject: &ObjectRef,
    object: &Value,
    problem: &str,
) -> Result<(), CallError> {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    write(splitter, subject, object, ("CannotSend", problem), &time::now(), version).await
}

/// Records that a physical cluster lacks a class, once per object and cluster.
pub(crate) async fn record_missing_class(
    splitter: &Splitter,
    subject: &ObjectRef,
    object: &Value,
    missing: &str,
) -> Result<(), CallError> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    write(splitter, subject, object, ("ClassNotFound", missing), &time::now(), uid).await
}

/// Records that pods were deleted with their workload, although it was deleted with propagation policy Orphan.
pub(crate) async fn record_not_orphaned(
    splitter: &Splitter,
    subject: &ObjectRef,
    of: &ObjectReference,
) -> Result<(), CallError> {
    let object = json!({ "apiVersion": of.api_version, "kind": of.kind, "metadata": { "uid": of.uid } });
    let message = "pods on physical clusters do not outlive their workload: they were deleted with it, as with \
                   propagationPolicy Background";
    match write(splitter, subject, &object, ("NotOrphaned", message), &time::now(), &of.uid).await {
        // Its namespace was deleted too, so there is no object to describe.
        Err(error) if error.is_not_found() => Ok(()),
        written => written,
    }
}

/// Writes an Event. The name is a hash, so the same Event of the same `occasion` is written once.
async fn write(
    splitter: &Splitter,
    subject: &ObjectRef,
    object: &Value,
    (reason, message): (&str, &str),
    at: &str,
    occasion: &str,
) -> Result<(), CallError> {
    let kind = ResourceKind::new("", "v1", "events", "Event", true);
    let (namespace, name) = (&subject.key.namespace, &subject.key.name);
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{name}.{}", word(&[name, reason, message, occasion], 12)), "namespace": namespace },
        "involvedObject": {
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "namespace": namespace, "name": name, "uid": object["metadata"]["uid"],
        },
        "type": "Warning", "reason": reason, "message": message,
        "source": { "component": "holon-splitter" }, "reportingComponent": "holon-splitter",
        "firstTimestamp": at, "lastTimestamp": at, "count": 1,
    });
    match splitter.caches.server.within(subject.cluster()).create(&kind, namespace, &event).await {
        // The Event exists, or the namespace is terminating and takes no Events.
        Err(error) if error.is_conflict() || error.code() == 403 => Ok(()),
        done => done.map(drop),
    }
}

/// The first condition by which the object, or some of its replicas, is held, pending or not sent, and which the status
/// did not have before.
fn new_problem<'a>(
    before: Option<&DistributionStatus>,
    now: &'a DistributionStatus,
) -> Option<&'a Condition> {
    let is_bad = |condition: &Condition| {
        [PLACED, COMPLETE, SENT, CLASSES_FOUND].contains(&condition.r#type.as_str())
            && condition.reason != PLACED
    };
    let known = before.map_or(&[][..], |before| &before.conditions);
    let is_known = |condition: &Condition| {
        let is_it =
            |known: &Condition| known.reason == condition.reason && known.message == condition.message;
        known.iter().any(|known| known.r#type == condition.r#type && is_it(known))
    };
    now.conditions.iter().find(|condition| is_bad(condition) && !is_known(condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(reason: &str, message: &str) -> DistributionStatus {
        let condition = (PLACED, "False", reason, message);
        DistributionStatus {
            conditions: vec![Condition::since(&[], condition, "now")],
            ..DistributionStatus::default()
        }
    }

    #[test]
    fn known_problems_are_recorded_once() {
        let check = |before: Option<DistributionStatus>, now: DistributionStatus, is_new: bool| {
            assert_eq!(new_problem(before.as_ref(), &now).is_some(), is_new, "{before:?} {now:?}");
        };
        check(None, status(PLACED, "east"), false);
        check(None, status("Pending", "no capacity"), true);
        check(Some(status("Pending", "no capacity")), status("Pending", "no capacity"), false);
        check(Some(status("Pending", "no capacity")), status("Pending", "cordoned"), true);
        check(Some(status("Pending", "no capacity")), status(PLACED, "east"), false);
        check(Some(status(PLACED, "east")), status("Held", "no capacity"), true);
        // A known problem does not hide a new one.
        let mut both = status("Held", "no capacity");
        both.conditions.push(Condition::since(&[], (SENT, "False", "CannotSend", "east: no"), "now"));
        check(Some(status("Held", "no capacity")), both.clone(), true);
        check(Some(both.clone()), both, false);
    }
}
