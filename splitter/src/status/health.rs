//! How something is doing at one target, and how many of them do how well.

use api::fleet::{Counts, Health, Role, TargetReport};
use serde_json::Value;

use super::kinds::{self, Expected, KindRules};
use super::{Report, conditions};
use crate::division;

/// Conditions that say that something is wrong when they are true.
const WRONG: &[&str] = &["Failed", "ReplicaFailure", "Degraded", "Stalled", "FailureTarget"];
/// Conditions that say that all is well when they are true.
const WELL: &[&str] = &["Available", "Ready", "Complete", "Succeeded"];
/// Of custom kinds: what is there, of what is wanted. What the first of a pair lacks at the second is on its way.
const OF: &[(&str, &str)] =
    &[("numberAvailable", "desiredNumberScheduled"), ("numberReady", "desiredNumberScheduled")];
/// The same, where what is wanted is the share.
const OF_SHARE: &[&str] = &["availableReplicas", "readyReplicas"];
/// Phases, and what they mean.
const PHASES: &[(&str, Health)] = &[
    ("Pending", Health::Progressing),
    ("Creating", Health::Progressing),
    ("Provisioning", Health::Progressing),
    ("Terminating", Health::Progressing),
    ("Failed", Health::Degraded),
    ("Error", Health::Degraded),
    ("Lost", Health::Degraded),
];

/// By what it says: something is wrong, all is well, or it is on its way. A thing without a status is well once it is there.
pub fn of(report: &Report, object: &Value) -> (Health, String) {
    let condition = |name: &str| conditions::find(report, name);
    let is = |name: &str, status: &str| condition(name).filter(|condition| condition["status"] == status);
    let said = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
    if report.status.is_none() {
        let said = object.get("status").and_then(Value::as_object).is_some_and(|said| !said.is_empty());
        return match said || has_status(object) {
            true => (Health::Unknown, "no report yet".to_owned()),
            false => (Health::Available, String::new()),
        };
    }
    if let Some(wrong) = WRONG.iter().find_map(|name| is(name, "True")).or_else(|| is("Progressing", "False"))
    {
        return (Health::Degraded, said(wrong));
    }
    let kind = kinds::of(object);
    if !report.has_observed(kind) {
        return (Health::Progressing, "the latest generation is not observed yet".to_owned());
    }
    if let Some((there, wanted)) = numbers(kind, report, object) {
        return match there >= wanted {
            true => (Health::Available, String::new()),
            false => (Health::Progressing, format!("{there} of {wanted} available")),
        };
    }
    let phase = report.field("phase").and_then(Value::as_str).unwrap_or_default();
    if let Some((_, health)) = PHASES.iter().find(|(name, _)| *name == phase) {
        return (*health, format!("phase {phase}"));
    }
    match WELL.iter().find_map(|name| condition(name)) {
        Some(well) if well["status"] == "True" => (Health::Available, String::new()),
        Some(unwell) => (Health::Progressing, said(unwell)),
        // A Job says nothing until it is over.
        None if object["kind"] == "Job" => {
            (Health::Progressing, format!("{} active", report.number("active")))
        }
        None => (Health::Available, String::new()),
    }
}

/// How many are available, and how many were asked for, if it is something that is counted. Kubernetes omits counters that
/// are zero, so a missing one is zero.
fn numbers(kind: &KindRules, report: &Report, object: &Value) -> Option<(i64, i64)> {
    if let Some((available, expected)) = kind.availability {
        let wanted = match expected {
            Expected::Counter(name) => report.number(name),
            Expected::Replicas => {
                let asked = || division::number(object, division::REPLICAS, 1);
                i64::from(report.share.unwrap_or_else(asked))
            }
        };
        return Some((report.number(available), wanted));
    }
    let first = |names: &[&str]| names.iter().find_map(|name| report.field(name)?.as_i64());
    if let Some((there, wanted)) = OF.iter().find(|(_, wanted)| report.field(wanted).is_some()) {
        return Some((report.number(there), report.number(wanted)));
    }
    let share = report.share.filter(|_| report.field("replicas").is_some())?;
    Some((first(OF_SHARE).unwrap_or_default(), i64::from(share)))
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

/// What is recorded about a target.
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
    /// A ConfigMap never says that it was observed.
    fn has_observed_or_silent_kind(&self, object: &Value) -> bool {
        self.has_observed(kinds::of(object)) || (self.status.is_none() && !has_status(object))
    }
}

/// How many of the targets that are to stay do how well.
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
