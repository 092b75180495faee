//! Records Events about objects that do not run, or not where their policy wants them. Each is recorded once.

use std::time::Instant;

use api::fleet::{Condition, DistributionStatus, ObjectReference};
use api::meta::hash::word;
use api::meta::time;
use controller::kind::Kind;
use controller::remote::CallError;
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::placement::context::PlacementContext;
use crate::placement::explain::sentence;
use crate::snapshot::ObjectRef;
use crate::status::CLASSES_FOUND;

const PLACED: &str = "Placed";
const COMPLETE: &str = "Complete";
const SENT: &str = "Sent";
/// How much of a message is logged. It may quote a tenant's expression.
const LOGGED_CHARS_MAX: usize = 500;

/// Records the first condition that is a new problem.
pub(crate) async fn record_problems(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    before: Option<&DistributionStatus>,
    now: &DistributionStatus,
) -> Result<(), CallError> {
    let Some(said) = new_problem(before, now) else { return Ok(()) };
    let object_version = context.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    // The status of the record may not be in the cache yet when the next reconcile compares with it. And a message may quote
    // what a tenant wrote, so the same problem with another message is no reason for another line.
    let about = [&context.subject.to_string(), &said.r#type, &said.reason];
    if splitter.repeated.is_due(&about.map(String::as_str), Instant::now()) {
        let message: String = said.message.chars().take(LOGGED_CHARS_MAX).collect();
        tracing::info!(
            revision = object_version,
            from = sentence(context.recorded()),
            condition = said.r#type,
            reason = said.reason,
            detail = message,
            "placement problem"
        );
    }
    let at = &said.last_transition_time;
    write(splitter, context.subject, context.object, (&said.reason, &said.message), at, at).await
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
        told => told,
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
    let kind = Kind::new("", "v1", "events", "Event", true);
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

/// A condition that says that the object, or a part of it, is pending, held or cannot be sent, for a reason the status
/// did not have before.
fn new_problem<'a>(
    before: Option<&DistributionStatus>,
    now: &'a DistributionStatus,
) -> Option<&'a Condition> {
    let is_bad = |said: &Condition| {
        [PLACED, COMPLETE, SENT, CLASSES_FOUND].contains(&said.r#type.as_str()) && said.reason != PLACED
    };
    let known = before.map_or(&[][..], |before| &before.conditions);
    let is_known = |said: &Condition| {
        let is_it = |known: &Condition| known.reason == said.reason && known.message == said.message;
        known.iter().any(|known| known.r#type == said.r#type && is_it(known))
    };
    now.conditions.iter().find(|said| is_bad(said) && !is_known(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(reason: &str, message: &str) -> DistributionStatus {
        let said = (PLACED, "False", reason, message);
        DistributionStatus {
            conditions: vec![Condition::since(&[], said, "now")],
            ..DistributionStatus::default()
        }
    }

    #[test]
    fn known_problems_are_not_reported_again() {
        let check = |before: Option<DistributionStatus>, now: DistributionStatus, tells: bool| {
            assert_eq!(new_problem(before.as_ref(), &now).is_some(), tells, "{before:?} {now:?}");
        };
        check(None, status(PLACED, "east"), false);
        check(None, status("Pending", "no room"), true);
        check(Some(status("Pending", "no room")), status("Pending", "no room"), false);
        check(Some(status("Pending", "no room")), status("Pending", "cordoned"), true);
        check(Some(status("Pending", "no room")), status(PLACED, "east"), false);
        check(Some(status(PLACED, "east")), status("Held", "no room"), true);
        // A known problem does not hide a new one.
        let mut both = status("Held", "no room");
        both.conditions.push(Condition::since(&[], (SENT, "False", "CannotSend", "east: no"), "now"));
        check(Some(status("Held", "no room")), both.clone(), true);
        check(Some(both.clone()), both, false);
    }
}
