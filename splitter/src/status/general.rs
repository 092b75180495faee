//! The rule for kinds and fields without rules of their own.
//!
//! Conditions are merged by type, counters of replicas added up, equal values kept, lists united, objects merged by
//! field. Values that differ are left out and reported as differences: one target's value does not speak for all.

use api::fleet::{FieldDifference, Role, TargetValue};
use api::meta::pointer;
use serde_json::{Map, Value};

use super::kinds::KindRules;
use super::{AggregatedStatus, OBSERVED, Report, UserObject, conditions};

/// Counters besides those that end in `Replicas`.
const COUNTERS: &[&str] = &["replicas", "active", "succeeded", "failed"];
/// No status is deeper than an object may be.
const DEPTH_MAX: usize = 64;

/// The status on several targets.
pub(super) fn several(kind: &KindRules, user_object: &UserObject, reports: &[&Report]) -> AggregatedStatus {
    let mut merge = StatusMerge { user_object, reports, differences: Vec::new() };
    let values: Vec<(&Report, &Value)> =
        reports.iter().filter_map(|report| Some((*report, report.status?))).collect();
    let ruled = [kind.sums, kind.updated, kind.greatest, kind.earliest, kind.latest].concat();
    let mut status = match merge.object("", &values, &ruled) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let staying = |report: &Report| report.current && report.role != Role::Leaving;
    for (fields, counted) in [(kind.sums, None), (kind.updated, Some(staying as fn(&Report) -> bool))] {
        for field in fields {
            let number = match user_object.is_duplicated {
                true => least(reports, field, counted),
                false => sum(&values, field, counted),
            };
            status.extend(number.map(|number| ((*field).to_owned(), number.into())));
        }
    }
    for field in kind.greatest {
        let greatest = values.iter().filter_map(|(report, _)| report.field(field)?.as_i64()).max();
        status.extend(greatest.map(|greatest| ((*field).to_owned(), greatest.into())));
    }
    for (fields, latest) in [(kind.latest, true), (kind.earliest, false)] {
        for field in fields {
            let times = values.iter().filter_map(|(report, _)| report.field(field)?.as_str());
            let time = if latest { times.max() } else { times.min() };
            status.extend(time.map(|time| ((*field).to_owned(), time.into())));
        }
    }
    let mut status = Value::Object(status);
    if let Some(finish) = kind.finish {
        finish(user_object, reports, &mut status);
        let fixed = status.as_object().cloned().unwrap_or_default();
        merge.differences.retain(|one| !fixed.contains_key(one.path.trim_start_matches("/status/")));
    }
    AggregatedStatus { status, differences: merge.differences, ..AggregatedStatus::default() }
}

/// None if no target has the field.
fn sum(values: &[(&Report, &Value)], field: &str, counted: Option<fn(&Report) -> bool>) -> Option<i64> {
    let reporting = values.iter().filter(|(report, _)| report.field(field).is_some());
    let mut found = reporting.peekable();
    found.peek()?;
    let counts = |report: &Report| counted.is_none_or(|counted| counted(report));
    Some(found.filter(|(report, _)| counts(report)).map(|(report, _)| report.number(field)).sum())
}

/// Counters for which a larger number is worse.
const BURDENS: &[&str] = &["replicas", "unavailableReplicas", "terminatingReplicas"];

/// The worst number of the staying targets; a target that does not count has 0. None if no target has the field.
fn least(reports: &[&Report], field: &str, counted: Option<fn(&Report) -> bool>) -> Option<i64> {
    reports.iter().find(|report| report.field(field).is_some())?;
    let counts = |report: &Report| counted.is_none_or(|counted| counted(report));
    let staying = reports.iter().filter(|report| report.role != Role::Leaving);
    let numbers = staying.map(|report| if counts(report) { report.number(field) } else { 0 });
    if BURDENS.contains(&field) { numbers.max() } else { numbers.min() }
}

struct StatusMerge<'a> {
    user_object: &'a UserObject<'a>,
    reports: &'a [&'a Report<'a>],
    differences: Vec<FieldDifference>,
}

impl StatusMerge<'_> {
    fn object(&mut self, path: &str, values: &[(&Report, &Value)], without: &[&str]) -> Value {
        let mut names: Vec<&String> = Vec::new();
        for name in values.iter().filter_map(|(_, value)| value.as_object()).flat_map(Map::keys) {
            if !names.contains(&name) && !without.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let mut merged = Map::new();
        for name in names {
            let reporting: Vec<(&Report, &Value)> = values
                .iter()
                .filter_map(|(report, value)| Some((*report, value.get(name)?)))
                .filter(|(_, value)| !value.is_null())
                .collect();
            if let Some(value) = self.field(path, name, &reporting) {
                merged.insert(name.clone(), value);
            }
        }
        Value::Object(merged)
    }

    fn field(&mut self, path: &str, name: &str, values: &[(&Report, &Value)]) -> Option<Value> {
        let here = format!("{path}/{}", pointer::escape(name));
        let (_, first) = values.first()?;
        let all = |is: fn(&Value) -> bool| values.iter().all(|(_, value)| is(value));
        if path.is_empty() && name == "conditions" && all(Value::is_array) {
            return Some(Value::Array(conditions::merged(self.user_object, self.reports, &[])));
        }
        if name == OBSERVED && all(Value::is_i64) {
            return self.observed(values).map(Value::from);
        }
        let counts = COUNTERS.contains(&name) || name.ends_with("Replicas");
        if counts && all(Value::is_i64) {
            return Some(values.iter().filter_map(|(_, value)| value.as_i64()).sum::<i64>().into());
        }
        if values.iter().all(|(_, value)| value == first) {
            return Some((*first).clone());
        }
        if all(Value::is_object) && here.matches('/').count() < DEPTH_MAX {
            return Some(self.object(&here, values, &[]));
        }
        if all(Value::is_array) {
            return Some(united(values));
        }
        let value = |(report, value): &(&Report, &Value)| TargetValue {
            cluster: report.cluster.to_owned(),
            value: (*value).clone(),
        };
        let (path, values) = (format!("/status{here}"), values.iter().map(value).collect());
        self.differences.push(FieldDifference { path, values });
        None
    }

    /// The generation that all staying targets have observed. While all are arriving, theirs.
    fn observed(&self, values: &[(&Report, &Value)]) -> Option<i64> {
        let before = self.user_object.observed_before();
        let steady = self.reports.iter().any(|report| report.role == Role::Steady);
        let counts = |report: &&&Report| match report.role {
            Role::Steady => true,
            Role::Arriving => !steady,
            Role::Leaving => false,
        };
        let of = |report: &&Report| {
            let reported = values.iter().find(|(other, _)| other.cluster == report.cluster);
            let observed = reported.and_then(|(_, value)| value.as_i64()).unwrap_or_default();
            report.mapped(observed, before)
        };
        let least = self.reports.iter().filter(counts).map(of).min().unwrap_or(before);
        (least > 0).then_some(least)
    }
}

/// Every item once, in the order of clusters.
fn united(values: &[(&Report, &Value)]) -> Value {
    let mut items: Vec<Value> = Vec::new();
    for item in values.iter().filter_map(|(_, value)| value.as_array()).flatten() {
        if !items.contains(item) {
            items.push(item.clone());
        }
    }
    Value::Array(items)
}
