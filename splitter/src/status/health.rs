//! The health of an object at one target, and counts of it.

use api::fleet::{Counts, Health, Role, TargetReport};
use serde_json::Value;

use super::kinds::{self, ExpectedNumber, KindRules};
use super::{Report, conditions};
use crate::division;

/// Conditions that are bad when they are True.
const FAILURE_CONDITIONS: &[&str] = &["Failed", "ReplicaFailure", "Degraded", "Stalled", "FailureTarget"];
/// Conditions that are good when they are True.
const SUCCESS_CONDITIONS: &[&str] = &["Available", "Ready", "Complete", "Succeeded"];
/// Counters of custom kinds: available and desired.
const AVAILABLE_AND_DESIRED: &[(&str, &str)] =
    &[("numberAvailable", "desiredNumberScheduled"), ("numberReady", "desiredNumberScheduled")];
/// Counters that are compared with the share.
const AVAILABLE_COUNTERS: &[&str] = &["availableReplicas", "readyReplicas"];
/// Phases and the health they stand for.
const PHASES: &[(&str, Health)] = &[
    ("Pending", Health::Progressing),
    ("Creating", Health::Progressing),
    ("Provisioning", Health::Progressing),
    ("Terminating", Health::Progressing),
    ("Failed", Health::Degraded),
    ("Error", Health::Degraded),
    ("Lost", Health::Degraded),
];

/// The health by conditions, counters and phase. An object of a kind without status is available once it is applied.
pub fn of(report: &Report, object: &Value) -> (Health, String) {
    let condition = |name: &str| conditions::find(report, name);
    let is = |name: &str, status: &str| condition(name).filter(|condition| condition["status"] == status);
    let message_of = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
    if report.status.is_none() {
        let has_reported =
            object.get("status").and_then(Value::as_object).is_some_and(|status| !status.is_empty());
        return match has_reported || has_status(object) {
            true => (Health::Unknown, "no report yet".to_owned()),
            false => (Health::Available, String::new()),
        };
    }
    if let Some(failing) =
        FAILURE_CONDITIONS.iter().find_map(|name| is(name, "True")).or_else(|| is("Progressing", "False"))
    {
        return (Health::Degraded, message_of(failing));
    }
    let kind = kinds::of(object);
    if !report.has_observed(kind) {
        return (Health::Progressing, "the latest generation is not observed yet".to_owned());
    }
    if let Some((available, desired)) = numbers(kind, report, object) {
        return match available >= desired {
            true => (Health::Available, String::new()),
            false => (Health::Progressing, format!("{available} of {desired} available")),
        };
    }
    let phase = report.field("phase").and_then(Value::as_str).unwrap_or_default();
    if let Some((_, health)) = PHASES.iter().find(|(name, _)| *name == phase) {
        return (*health, format!("phase {phase}"));
    }
    match SUCCESS_CONDITIONS.iter().find_map(|name| condition(name)) {
        Some(well) if well["status"] == "True" => (Health::Available, String::new()),
        Some(condition) => (Health::Progressing, message_of(condition)),
        // A running Job has no condition.
        None if object["kind"] == "Job" => {
            (Health::Progressing, format!("{} active", report.number("active")))
        }
        None => (Health::Available, String::new()),
    }
}

/// Available and requested replicas, if the kind counts them. Kubernetes omits counters that are zero, so a missing one
/// is zero.
fn numbers(kind: &KindRules, report: &Report, object: &Value) -> Option<(i64, i64)> {
    if let Some((available, expected)) = kind.availability {
        let desired = match expected {
            ExpectedNumber::Counter(name) => report.number(name),
            ExpectedNumber::Replicas => {
                let requested = || division::number(object, division::REPLICAS, 1);
                i64::from(report.share.unwrap_or_else(requested))
            }
        };
        return Some((report.number(available), desired));
    }
    let first = |names: &[&str]| names.iter().find_map(|name| report.field(name)?.as_i64());
    if let Some((available, desired)) =
        AVAILABLE_AND_DESIRED.iter().find(|(_, desired)| report.field(desired).is_some())
    {
        return Some((report.number(available), report.number(desired)));
    }
    let share = report.share.filter(|_| report.field("replicas").is_some())?;
    Some((first(AVAILABLE_COUNTERS).unwrap_or_default(), i64::from(share)))
}

/// Kinds whose controllers always report.
fn has_status(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    [
        "Deployment",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "DaemonSet",
        "Job",
        "Pod",
        "PersistentVolumeClaim",
    ]
    .contains(&kind)
}

/// The report on a target for the record.
pub fn target(report: &Report, object: &Value, applied: bool) -> TargetReport {
    let (health, message) = of(report, object);
    TargetReport {
        cluster: report.cluster.to_owned(),
        applied,
        updated: applied && report.current && report.has_observed_or_silent_kind(object),
        health,
        stale: report.stale,
        message,
        last_report_time: None,
    }
}

impl Report<'_> {
    /// Kinds without status do not report an observed generation.
    fn has_observed_or_silent_kind(&self, object: &Value) -> bool {
        self.has_observed(kinds::of(object)) || (self.status.is_none() && !has_status(object))
    }
}

/// Counts the staying targets by health.
pub fn counts(reports: &[(Role, TargetReport)]) -> Counts {
    let staying = || reports.iter().filter(|(role, _)| *role != Role::Leaving).map(|(_, report)| report);
    let count =
        |is: fn(&TargetReport) -> bool| i64::try_from(staying().filter(|one| is(one)).count()).unwrap_or(0);
    Counts {
        total: count(|_| true),
        applied: count(|one| one.applied),
        available: count(|one| one.health == Health::Available),
        progressing: count(|one| matches!(one.health, Health::Progressing | Health::Unknown)),
        degraded: count(|one| one.health == Health::Degraded),
        updated: count(|one| one.updated),
    }
}
