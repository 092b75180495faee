//! Many statuses become one.
//!
//! ```text
//!   mailbox east: status ─┐
//!   mailbox west: status ─┼─► one target: exact │ several: the kind's rule, then the general one, then a StatusRule ─► status
//!   what it was before   ─┘
//! ```
//!
//! Whoever reads a summary (`kubectl rollout status`, `helm --wait`, Argo) believes three things, and they are kept:
//! `observedGeneration` is the object's own generation only once every target has observed what it stands for; updated
//! replicas run what is wanted now, so those of a target that waits its turn are not among them; and a number does not dip
//! because somebody is silent: a silent target counts with what it said last, and is named.
//!
//! Nothing here has a clock. When a condition changes, `now` is what it says.

pub(crate) mod completed;
mod conditions;
pub(crate) mod degraded;
mod deployment;
mod general;
pub mod health;
mod job;
mod kinds;
pub mod policies;
mod services_and_budgets;
pub mod status_rule;

#[cfg(test)]
mod regressions;
#[cfg(test)]
mod tests;

use api::fleet::{Disagreement, Mistake, Role};
use serde_json::{Map, Value, json};

use crate::placement::policy::Labels;
use kinds::KindRules;
use status_rule::CompiledStatusRule;

/// One target, as its mailbox has it.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    pub cluster: &'a str,
    pub role: Role,
    /// None: nothing was reported yet.
    pub status: Option<&'a Value>,
    /// Of the object in the mailbox. The syncer says in these what has been observed.
    pub generation: i64,
    /// The generation of the user's object that the one in the mailbox was made from.
    pub stands_for: i64,
    /// Whether it has the template that is wanted now, and does not wait its turn.
    pub current: bool,
    /// Whether it has been silent for too long.
    pub stale: bool,
    pub share: Option<u32>,
    /// Where its indexes begin, for an Indexed Job.
    pub index_start: u32,
    /// Of the physical cluster, for rules.
    pub labels: &'a Labels,
}

impl Report<'_> {
    fn field(&self, name: &str) -> Option<&Value> {
        self.status?.get(name).filter(|value| !value.is_null())
    }

    fn number(&self, name: &str) -> i64 {
        self.field(name).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether the target's controller has observed what the target was sent. A kind without an observedGeneration has
    /// observed it once it reports anything. For a kind with one, a status that lacks it is partial: the first status that
    /// kube-controller-manager writes has conditions and nothing else.
    fn has_observed(&self, kind: &KindRules) -> bool {
        match self.field(OBSERVED) {
            Some(observed) => observed.as_i64().is_some_and(|observed| observed >= self.generation),
            None => self.status.is_some() && !kind.observes_generation,
        }
    }

    /// A generation of the mailbox as one of the user's object. What is not the present one is some earlier one; the
    /// latest that was known to be observed is the most that can be said.
    fn mapped(&self, observed: i64, before: i64) -> i64 {
        match observed >= self.generation {
            true => self.stands_for,
            false => before.min(self.stands_for - 1).max(0),
        }
    }
}

/// The object as the user has it.
#[derive(Clone, Copy, Debug)]
pub struct UserObject<'a> {
    /// With the status it has.
    pub object: &'a Value,
    /// How many replicas there are to be altogether, if that is not what its spec says.
    pub desired: Option<u32>,
    /// Whether each target has all of it. Then the one that has least speaks for all: of ten that are to be everywhere, nine
    /// somewhere are nine, and not nineteen of ten.
    pub is_duplicated: bool,
    /// How many of them found no place.
    pub pending: u32,
    /// Why it runs nowhere or not where it is wanted, if so.
    pub unplaced: Option<&'a str>,
    /// What could not be sent, and to which target, if anything.
    pub unsent: Option<&'a str>,
    /// Which classes that it names are missing on which target, if any.
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

/// What the user reads.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// Null if there is nothing to say.
    pub status: Value,
    /// What targets do not agree on.
    pub disagreements: Vec<Disagreement>,
    /// What is wrong with the rule. Then the status is what it was.
    pub mistakes: Vec<Mistake>,
}

const OBSERVED: &str = "observedGeneration";
pub const STALE: &str = "StatusStale";
pub const PLACED: &str = "Placed";
const SENT: &str = "Sent";
pub(crate) const CLASSES_FOUND: &str = "ClassesFound";

/// The status of an object that runs on these targets.
pub fn aggregate(whole: &UserObject, reports: &[Report], rule: Option<&CompiledStatusRule>) -> Summary {
    let kind = kinds::of(whole.object);
    let mut sorted: Vec<&Report> = reports.iter().collect();
    sorted.sort_by_key(|report| report.cluster);
    let mut summary = match sorted.as_slice() {
        [] => nowhere(kind, whole),
        [only] if whole.pending == 0 => Summary { status: exact(whole, only), ..Summary::default() },
        several if kind.exact => Summary { status: of_one(whole, several), ..Summary::default() },
        several => general::several(kind, whole, several),
    };
    if let Some(rule) = rule.filter(|_| sorted.len() > 1) {
        match rule.apply(whole.object, &sorted, summary.status.clone()) {
            Ok(status) => summary.status = status,
            Err(mistakes) => {
                summary.status = whole.object.get("status").cloned().unwrap_or_default();
                summary.mistakes = mistakes;
            }
        }
    }
    note(kind, whole, &sorted, &mut summary.status);
    summary
}

/// Exactly what the target says, in the user's generations.
fn exact(whole: &UserObject, report: &Report) -> Value {
    let mut status = report.status.cloned().unwrap_or_default();
    map_generations(&mut status, report, whole.observed_before());
    status
}

/// Wherever an observed generation is said, also inside conditions.
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

/// Something that is in one place only, and is on its way to another: what the new place says, as soon as it says anything.
fn of_one(whole: &UserObject, reports: &[&Report]) -> Value {
    let speaking = reports.iter().filter(|report| report.status.is_some());
    let first = speaking.min_by_key(|report| (report.role == Role::Leaving, report.cluster));
    first.map(|report| exact(whole, report)).unwrap_or_default()
}

/// Without a target nothing is so; a claim is never bound.
fn nowhere(kind: &KindRules, whole: &UserObject) -> Summary {
    let status = match kind.phase_nowhere {
        Some(phase) => json!({ "phase": phase }),
        None => match whole.object.get("status") {
            Some(status) if whole.unplaced.is_none() => status.clone(),
            _ => Value::Null,
        },
    };
    Summary { status, ..Summary::default() }
}

/// Says who is silent and why something runs nowhere, where there are conditions to say it in.
fn note(kind: &KindRules, whole: &UserObject, reports: &[&Report], status: &mut Value) {
    let has_conditions = kind.has_conditions || status.get("conditions").is_some_and(Value::is_array);
    if !has_conditions {
        return;
    }
    let silent: Vec<&str> =
        reports.iter().filter(|report| report.stale).map(|report| report.cluster).collect();
    let message = format!("no report from {}; the last reported numbers are shown", silent.join(", "));
    let stale = (!silent.is_empty()).then_some(("True", "Silent", message));
    let reason = if whole.pending > 0 { "NoRoom" } else { "NoTarget" };
    let unplaced = whole.unplaced.map(|why| ("False", reason, why.to_owned()));
    let missing = whole.missing.map(|why| ("False", "ClassNotFound", why.to_owned()));
    let unsent = whole.unsent.map(|why| ("False", "CannotSend", why.to_owned()));
    for (name, said) in [(STALE, stale), (PLACED, unplaced), (SENT, unsent), (CLASSES_FOUND, missing)] {
        let Some((said, reason, message)) = said else { continue };
        if !status.is_object() {
            *status = Value::Object(Map::new());
        }
        if !status["conditions"].is_array() {
            status["conditions"] = json!([]);
        }
        let condition = conditions::kept_or_new(whole, name, said, reason, message);
        if let Some(list) = status["conditions"].as_array_mut() {
            list.push(condition);
        }
    }
}
