//! Validation of the status of a Job, without its history.
//!
//! Kubernetes rejects more: a finished Job without a condition that its versions before 1.31 do not set, a decreasing
//! count, a changed time. Here a status is the report of a cluster of any version, or of several, in which the Job may
//! have been created again. A rejected report would be rejected forever, so it is not compared with the report before.
//! As in Kubernetes, only changed fields are validated, so that earlier errors can be corrected one by one.

use std::collections::HashSet;

use serde_json::Value;

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::value::{get, has, int, items, same, text};

pub(crate) fn validate_job_status(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (spec, old, new) = (get(new, "spec"), get(old, "status"), get(new, "status"));
    let change = StatusChange { old, new };
    uncounted(get(new, "uncountedTerminatedPods"), found);
    ended(change, found);
    indexes(change, spec, found);
    let (ready, active, at) = (int(new, "ready"), int(new, "active"), FieldPath::TOP.field("status"));
    if change.of("ready") | change.of("active") && ready > active {
        found.invalid(&at.field("ready"), ready, "cannot set more ready pods than active");
    }
    criteria(new, found);
}

/// The old and the new status.
#[derive(Clone, Copy)]
struct StatusChange<'v> {
    old: &'v Value,
    new: &'v Value,
}

impl StatusChange<'_> {
    /// Reports whether a field changed.
    fn of(self, field: &str) -> bool {
        !same(get(self.old, field), get(self.new, field))
    }

    /// Reports whether a condition became true or stopped being true.
    fn of_condition(self, kind: &str) -> bool {
        is_true(self.old, kind) != is_true(self.new, kind)
    }
}

fn is_true(status: &Value, kind: &str) -> bool {
    let mut conditions = items(status, "conditions").iter();
    conditions.any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

fn not_possible(found: &mut FieldErrors, detail: &str) {
    found.invalid_unshown(&FieldPath::TOP.field("status.conditions"), detail);
}

/// Validates the uids of pods that terminated and are not yet counted.
fn uncounted(pods: &Value, found: &mut FieldErrors) {
    let mut seen = HashSet::new();
    let at = FieldPath::TOP.field("status.uncountedTerminatedPods");
    for list in ["succeeded", "failed"] {
        let at = at.field(list);
        for (index, uid) in items(pods, list).iter().filter_map(Value::as_str).enumerate() {
            if uid.is_empty() {
                found.invalid(&at.index(index), "", "must not be empty");
            } else if !seen.insert(uid) {
                found.duplicate(&at.index(index), uid);
            }
        }
    }
}

/// Validates the fields of a Job that is complete or failed.
fn ended(change: StatusChange<'_>, found: &mut FieldErrors) {
    let (new, at) = (change.new, FieldPath::TOP.field("status"));
    let (complete, failed) = (is_true(new, "Complete"), is_true(new, "Failed"));
    let (start, end) = (get(new, "startTime"), get(new, "completionTime"));
    let completes = change.of_condition("Complete");
    if completes | change.of_condition("Failed") && complete && failed {
        not_possible(found, "cannot set Complete=True and Failed=true conditions");
    }
    if completes | change.of_condition("FailureTarget") && complete && is_true(new, "FailureTarget") {
        not_possible(found, "cannot set Complete=True and FailureTarget=true conditions");
    }
    let end_at = at.field("completionTime");
    if completes | change.of("completionTime") {
        match (end.is_null(), complete) {
            (false, false) => {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                found.invalid(&end_at, end.clone(), detail);
            }
            (true, true) => found.required(&end_at, "completionTime is required for Complete jobs"),
            _ => {}
        }
    }
    let is_before = !start.is_null() && !end.is_null() && end.as_str() < start.as_str();
    if change.of("startTime") | change.of("completionTime") && is_before {
        found.invalid(&end_at, end.clone(), "must be equal to or after `startTime`");
    }
}

/// Validates the completed and failed indexes of an Indexed Job: `0-2,5`.
fn indexes(change: StatusChange<'_>, spec: &Value, found: &mut FieldErrors) {
    let (new, at) = (change.new, FieldPath::TOP.field("status"));
    let (completed, failed) = (text(new, "completedIndexes"), get(new, "failedIndexes"));
    let completions = get(spec, "completions").as_i64();
    let per_index = has(spec, "backoffLimitPerIndex");
    let (of_completed, of_failed) = (change.of("completedIndexes"), change.of("failedIndexes"));
    if let Some(count) = completions.filter(|_| of_completed)
        && let Err(why) = parse(completed, count)
    {
        let detail = format!("error parsing completedIndexes: {why}");
        found.invalid(&at.field("completedIndexes"), completed, detail);
    }
    if let Some(count) = completions.filter(|_| of_failed && per_index)
        && let Err(why) = parse(failed.as_str().unwrap_or_default(), count)
    {
        let detail = format!("error parsing failedIndexes: {why}");
        found.invalid(&at.field("failedIndexes"), failed.clone(), detail);
    }
    if of_completed && !completed.is_empty() && text(spec, "completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        found.invalid(&at.field("completedIndexes"), completed, detail);
    }
    if of_failed && !per_index && !failed.is_null() {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        found.invalid(&at.field("failedIndexes"), failed.clone(), detail);
    }
    if let (Some(count), Some(text), true) = (completions, failed.as_str(), of_failed || of_completed)
        && let Some(index) = overlap(&parse_indexes(completed, count), &parse_indexes(text, count))
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        found.invalid(&at.field("failedIndexes"), text, detail);
    }
}

type Interval = (i64, i64);

/// Parses increasing intervals below `count`.
fn parse(indexes: &str, count: i64) -> Result<(), String> {
    let mut last: Option<i64> = None;
    for interval in indexes.split(',').filter(|_| !indexes.is_empty()) {
        let (first, end) = parse_interval(interval, count)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        last = Some(end);
    }
    Ok(())
}

fn parse_interval(interval: &str, count: i64) -> Result<Interval, String> {
    let limits: Vec<&str> = interval.split('-').collect();
    let number = |text: &str| -> Result<i64, String> {
        let quoted = api::meta::go::quote(text);
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        if number < count { Ok(number) } else { Err(format!("too large index: {quoted}")) }
    };
    match limits.as_slice() {
        [one] => number(one).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (number(first)?, number(last)?);
            match first < last {
                true => Ok((first, last)),
                false => Err(format!("non-increasing order, previous: {first}, current: {last}")),
            }
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            api::meta::go::quote(interval)
        )),
    }
}

/// Returns the valid intervals, ignoring the others.
fn parse_indexes(indexes: &str, count: i64) -> Vec<Interval> {
    indexes.split(',').filter_map(|interval| parse_interval(interval, count).ok()).collect()
}

/// Returns the first index that two increasing lists of intervals have in common.
fn overlap(one: &[Interval], other: &[Interval]) -> Option<i64> {
    let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        if a.0 <= b.1 && b.0 <= a.1 {
            return Some(a.0.max(b.0));
        }
        match a.0 <= b.0 {
            true => left.next(),
            false => right.next(),
        };
    }
    None
}

/// Checks that a Job with met success criteria has not failed, and vice versa.
fn criteria(status: &Value, found: &mut FieldErrors) {
    let is_met = is_true(status, "SuccessCriteriaMet");
    if is_met && is_true(status, "Failed") {
        not_possible(found, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if is_met && is_true(status, "FailureTarget") {
        not_possible(found, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
}
