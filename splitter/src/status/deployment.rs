//! The conditions of a Deployment, and the revisions of a StatefulSet.

use serde_json::{Value, json};

use super::{Report, UserObject, conditions, kinds};
use crate::division::rollout;
use api::fleet::Role;

/// The conditions that the Deployment controller would set if it saw all targets as one.
pub(super) fn finish(user_object: &UserObject, reports: &[&Report], status: &mut Value) {
    let spec_replicas = crate::division::number(user_object.object, "/spec/replicas", 1);
    let desired = user_object.desired.unwrap_or(spec_replicas);
    let number = |status: &Value, field: &str| status[field].as_i64().unwrap_or_default();
    if user_object.pending > 0 {
        let unavailable = number(status, "unavailableReplicas") + i64::from(user_object.pending);
        status["unavailableReplicas"] = unavailable.into();
    }
    let max_unavailable = rollout::bounds(user_object.object, desired).map_or(0, |bounds| bounds.unavailable);
    let enough = i64::from(desired.saturating_sub(max_unavailable));
    let available = number(status, "availableReplicas") >= enough;
    let complete = {
        let kind = kinds::of(user_object.object);
        let desired = i64::from(desired);
        let updated = number(status, "updatedReplicas");
        reports.iter().all(|report| report.has_observed(kind))
            && updated == desired
            && number(status, "replicas") == updated
            && number(status, "availableReplicas") >= desired
    };
    let mut list = vec![availability(user_object, available), progress(user_object, reports, complete)];
    let failing: Vec<&Report> = reports
        .iter()
        .filter(|report| conditions::find(report, "ReplicaFailure").is_some_and(|it| it["status"] == "True"))
        .copied()
        .collect();
    if !failing.is_empty() {
        list.push(named(user_object, &failing, "ReplicaFailure", "True"));
    }
    list.extend(conditions::merged(user_object, reports, &["Available", "Progressing", "ReplicaFailure"]));
    status["conditions"] = Value::Array(list);
}

fn availability(user_object: &UserObject, available: bool) -> Value {
    let (status, reason, message) = match available {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    conditions::kept_or_new(user_object, "Available", status, reason, message.to_owned())
}

/// A target that waits for its turn, or has not observed the latest generation, reports on an old template. That this
/// one got stuck does not matter any more.
fn progress(user_object: &UserObject, reports: &[&Report], complete: bool) -> Value {
    let with = |status: &str| -> Vec<&Report> {
        let is = |report: &&&Report| {
            conditions::find(report, "Progressing").is_some_and(|condition| condition["status"] == status)
        };
        let kind = kinds::of(user_object.object);
        let reports_current_template = |report: &&&Report| report.current && report.has_observed(kind);
        reports.iter().filter(reports_current_template).filter(is).copied().collect()
    };
    for status in ["False", "Unknown"] {
        let found = with(status);
        if !found.is_empty() {
            return named(user_object, &found, "Progressing", status);
        }
    }
    let name = user_object.object["metadata"]["name"].as_str().unwrap_or_default();
    let (reason, message) = match complete {
        true => ("NewReplicaSetAvailable", format!("Deployment {name:?} has successfully progressed.")),
        false => ("ReplicaSetUpdated", format!("Deployment {name:?} is progressing.")),
    };
    conditions::kept_or_new(user_object, "Progressing", "True", reason, message)
}

/// A condition of some targets, with their reason and a message that names them.
fn named(user_object: &UserObject, reports: &[&Report], name: &str, status: &str) -> Value {
    let merged = conditions::one(user_object, reports, name);
    let messages: Vec<String> = reports
        .iter()
        .filter_map(|report| {
            let message = conditions::find(report, name)?["message"].as_str().unwrap_or_default();
            Some(format!("{}: {message}", report.cluster))
        })
        .collect();
    let reason = merged["reason"].as_str().unwrap_or_default();
    conditions::kept_or_new(user_object, name, status, reason, messages.join("; "))
}

/// The update revision is that of the targets with the current template; the current revision differs from it while any
/// target's does, which tells clients that the update is not finished. Revisions of different clusters cannot be
/// compared, because a transformed template has its own. So every target is compared with itself.
pub(super) fn revisions(_: &UserObject, reports: &[&Report], status: &mut Value) {
    let text = |report: &Report, field: &str| report.field(field).and_then(Value::as_str).map(str::to_owned);
    let staying = || reports.iter().filter(|report| report.role != Role::Leaving);
    let update = staying().filter(|report| report.current).find_map(|report| text(report, "updateRevision"));
    let is_over = |report: &&Report| {
        report.current && text(report, "currentRevision") == text(report, "updateRevision")
    };
    let others =
        || staying().filter(|report| !is_over(report)).filter_map(|report| text(report, "currentRevision"));
    // One revision stands for those of all targets.
    let behind = others().find(|revision| Some(revision) != update.as_ref()).or_else(|| others().next());
    let current = behind.or_else(|| update.clone());
    for (field, value) in [("updateRevision", update.as_ref()), ("currentRevision", current.as_ref())] {
        if let Some(value) = value {
            status[field] = json!(value);
        }
    }
}
