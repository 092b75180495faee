//! Aggregates the statuses of targets into one.
//!
//! ```text
//!   mailbox east: status ─┐
//!   mailbox west: status ─┼─► one target: copied │ several: the kind's rules, then the general one, then a StatusRule ─► status
//!   the present status   ─┘
//! ```
//!
//! Clients such as `kubectl rollout status`, `helm --wait` and Argo CD rely on three properties: `observedGeneration`
//! is the object's own generation only once every target has observed it; updated replicas have the current template,
//! so those of a target that waits for its turn are not counted; and numbers do not drop because a target is silent: it
//! counts with its last report, and is named.
//!
//! Nothing here reads a clock: `now` is a parameter.

pub(crate) mod completed;
mod conditions;
mod deployment;
mod general;
pub mod health;
mod job;
pub(crate) mod kinds;
pub mod policy_errors;
mod services_and_budgets;
pub mod status_rule;

#[cfg(test)]
mod regressions;
#[cfg(test)]
mod tests;

use api::fleet::{FieldDifference, PolicyError, Role};
use serde_json::{Map, Value, json};

use crate::policy::Labels;
use kinds::KindRules;
use status_rule::CompiledStatusRule;

/// The status of one target, as reported in its mailbox.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    pub cluster: &'a str,
    pub role: Role,
    /// None: not reported yet.
    pub status: Option<&'a Value>,
    /// The generation of the mailbox object, which `observedGeneration` of the report refers to.
    pub generation: i64,
    /// The generation of the user's object that the mailbox object was made from.
    pub source_generation: i64,
    /// Whether it has the current template, and does not wait for its turn.
    pub current: bool,
    /// Whether the physical cluster has been silent for too long.
    pub stale: bool,
    pub share: Option<u32>,
    /// Its first index, for an Indexed Job.
    pub index_start: u32,
    /// The labels of the physical cluster, for StatusRules.
    pub labels: &'a Labels,
}

impl Report<'_> {
    fn field(&self, name: &str) -> Option<&Value> {
        self.status?.get(name).filter(|value| !value.is_null())
    }

    fn number(&self, name: &str) -> i64 {
        self.field(name).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether the target's controller has observed the latest generation of the mailbox object. A kind without an
    /// observedGeneration has observed it once it reports anything. For a kind with one, a status that lacks it is
    /// partial: the first status that kube-controller-manager writes has conditions and nothing else.
    fn has_observed(&self, kind: &KindRules) -> bool {
        match self.field(OBSERVED) {
            Some(observed) => observed.as_i64().is_some_and(|observed| observed >= self.generation),
            None => self.status.is_some() && !kind.observes_generation,
        }
    }

    /// Maps an observed generation of the mailbox object to one of the user's object. A generation before the present
    /// one maps to the latest that was known to be observed.
    fn mapped(&self, observed: i64, before: i64) -> i64 {
        match observed >= self.generation {
            true => self.source_generation,
            false => before.min(self.source_generation - 1).max(0),
        }
    }
}

/// The user's object and the decision about it.
#[derive(Clone, Copy, Debug)]
pub struct UserObject<'a> {
    /// With its present status.
    pub object: &'a Value,
    /// The desired replicas, if they differ from the spec.
    pub desired: Option<u32>,
    /// Whether every target has all replicas. Then the smallest number counts: nine of ten available on one target are
    /// nine, not nineteen of ten.
    pub is_duplicated: bool,
    /// How many of them fit on no target.
    pub pending: u32,
    /// Why it has no target, or not those of its policy, if so.
    pub unplaced: Option<&'a str>,
    /// Why it could not be sent to a target, if so.
    pub unsent: Option<&'a str>,
    /// The classes it names that a target lacks, if any.
    pub missing: Option<&'a str>,
    /// RFC 3339.
    pub now: &'a str,
}

impl UserObject<'_> {
    fn before(&self, pointer: &str) -> Option<&Value> {
        self.object.get("status")?.pointer(pointer)
    }

    fn observed_before(&self) -> i64 {
        self.before("/observedGeneration").and_then(Value::as_i64).unwrap_or_default()
    }
}

/// The aggregated status.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AggregatedStatus {
    /// Null if there is none.
    pub status: Value,
    /// Fields that differ between targets.
    pub differences: Vec<FieldDifference>,
    /// The errors of the StatusRule. Then the status is unchanged.
    pub errors: Vec<PolicyError>,
}

const OBSERVED: &str = "observedGeneration";
pub const STALE: &str = "StatusStale";
pub const PLACED: &str = "Placed";
const SENT: &str = "Sent";
pub(crate) const CLASSES_FOUND: &str = "ClassesFound";

/// Aggregates the status of an object on these targets.
pub fn aggregate(
    user_object: &UserObject,
    reports: &[Report],
    rule: Option<&CompiledStatusRule>,
) -> AggregatedStatus {
    let kind = kinds::of(user_object.object);
    let mut sorted: Vec<&Report> = reports.iter().collect();
    sorted.sort_by_key(|report| report.cluster);
    let mut summary = match sorted.as_slice() {
        [] => without_targets(kind, user_object),
        [only] if user_object.pending == 0 => {
            AggregatedStatus { status: exact(user_object, only), ..AggregatedStatus::default() }
        }
        several if kind.exact => AggregatedStatus {
            status: of_reporting_target(user_object, several),
            ..AggregatedStatus::default()
        },
        several => general::several(kind, user_object, several),
    };
    if let Some(rule) = rule.filter(|_| sorted.len() > 1) {
        match rule.apply(user_object.object, &sorted, summary.status.clone()) {
            Ok(status) => summary.status = status,
            Err(errors) => {
                summary.status = user_object.object.get("status").cloned().unwrap_or_default();
                summary.errors = errors;
            }
        }
    }
    add_conditions(kind, user_object, &sorted, &mut summary.status);
    summary
}

/// The status of the only target, with generations of the user's object.
fn exact(user_object: &UserObject, report: &Report) -> Value {
    let mut status = report.status.cloned().unwrap_or_default();
    map_generations(&mut status, report, user_object.observed_before());
    status
}

/// Maps every observed generation, also in conditions.
fn map_generations(value: &mut Value, report: &Report, before: i64) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields.iter_mut() {
                match (name.as_str(), inner.as_i64()) {
                    (OBSERVED, Some(observed)) => *inner = report.mapped(observed, before).into(),
                    _ => map_generations(inner, report, before),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| map_generations(item, report, before)),
        _ => {}
    }
}

/// An object on a single target that is moving: the status of the new target as soon as it reports one.
fn of_reporting_target(user_object: &UserObject, reports: &[&Report]) -> Value {
    let reporting = reports.iter().filter(|report| report.status.is_some());
    let first = reporting.min_by_key(|report| (report.role == Role::Leaving, report.cluster));
    first.map(|report| exact(user_object, report)).unwrap_or_default()
}

/// Without a target there is no status; a claim is pending.
fn without_targets(kind: &KindRules, user_object: &UserObject) -> AggregatedStatus {
    let status = match kind.phase_without_targets {
        Some(phase) => json!({ "phase": phase }),
        None => match user_object.object.get("status") {
            Some(status) if user_object.unplaced.is_none() => status.clone(),
            _ => Value::Null,
        },
    };
    AggregatedStatus { status, ..AggregatedStatus::default() }
}

/// Adds conditions about silent targets and about an object that is not placed or sent, if the kind has conditions.
fn add_conditions(kind: &KindRules, user_object: &UserObject, reports: &[&Report], status: &mut Value) {
    let has_conditions = kind.has_conditions || status.get("conditions").is_some_and(Value::is_array);
    if !has_conditions {
        return;
    }
    let silent: Vec<&str> =
        reports.iter().filter(|report| report.stale).map(|report| report.cluster).collect();
    let message = format!("no report from {}; the last reported numbers are shown", silent.join(", "));
    let stale = (!silent.is_empty()).then_some(("True", "HeartbeatExpired", message));
    let reason = if user_object.pending > 0 { "InsufficientCapacity" } else { "NoTarget" };
    let unplaced = user_object.unplaced.map(|why| ("False", reason, why.to_owned()));
    let missing = user_object.missing.map(|why| ("False", "ClassNotFound", why.to_owned()));
    let unsent = user_object.unsent.map(|why| ("False", "CannotSend", why.to_owned()));
    for (name, problem) in [(STALE, stale), (PLACED, unplaced), (SENT, unsent), (CLASSES_FOUND, missing)] {
        let Some((condition_status, reason, message)) = problem else { continue };
        if !status.is_object() {
            *status = Value::Object(Map::new());
        }
        if !status["conditions"].is_array() {
            status["conditions"] = json!([]);
        }
        let condition = conditions::kept_or_new(user_object, name, condition_status, reason, message);
        if let Some(list) = status["conditions"].as_array_mut() {
            list.push(condition);
        }
    }
}
