//! Merges the conditions of several targets.
//!
//! By type: any False is False, else any Unknown is Unknown, else True. A target without a report is Unknown. The
//! newest transition gives the reason, and the message names the clusters it is about.

use serde_json::{Map, Value, json};

use super::{OBSERVED, Report, UserObject};

/// Longer messages are not read.
const MESSAGE_CHARS_MAX: usize = 2000;

pub(super) fn of<'a>(report: &Report<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    report.status.and_then(|status| status.get("conditions")?.as_array()).into_iter().flatten()
}

pub(super) fn find<'a>(report: &Report<'a>, name: &str) -> Option<&'a Value> {
    api::meta::conditions::find_in(report.status?, name)
}

/// All condition types, in the order of their first occurrence.
pub(super) fn merged(user_object: &UserObject, reports: &[&Report], without: &[&str]) -> Vec<Value> {
    let mut names: Vec<&str> = Vec::new();
    for name in
        reports.iter().flat_map(|report| of(report)).filter_map(|condition| condition["type"].as_str())
    {
        if !names.contains(&name) && !without.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| one(user_object, reports, name)).collect()
}

/// Merges one condition type.
pub(super) fn one(user_object: &UserObject, reports: &[&Report], name: &str) -> Value {
    let found: Vec<(&Report, &Value)> =
        reports.iter().filter_map(|report| Some((*report, find(report, name)?))).collect();
    let is = |expected: &str| found.iter().any(|(_, condition)| condition["status"] == expected);
    let unreported: Vec<&str> =
        reports.iter().filter(|report| report.status.is_none()).map(|report| report.cluster).collect();
    let status = match (is("False"), is("Unknown"), unreported.is_empty()) {
        (true, _, _) => "False",
        (false, true, _) | (false, false, false) => "Unknown",
        (false, false, true) => "True",
    };
    let mut deciding: Vec<&(&Report, &Value)> =
        found.iter().filter(|(_, condition)| condition["status"] == status).collect();
    deciding.sort_by_key(|(_, condition)| text(condition, "lastTransitionTime"));
    let Some((_, newest)) = deciding.last() else {
        let message = format!("no report yet from {}", unreported.join(", "));
        return kept_or_new(user_object, name, status, "NotReported", message);
    };
    let mut merged = (*newest).clone();
    merged["message"] = message(&found, &deciding).into();
    for time in ["lastUpdateTime", "lastProbeTime", "lastHeartbeatTime"] {
        let latest = found.iter().map(|(_, condition)| text(condition, time)).max().unwrap_or_default();
        if !latest.is_empty() {
            merged[time] = latest.into();
        }
    }
    let before = user_object.observed_before();
    let observed = |(report, condition): &(&Report, &Value)| {
        Some(report.mapped(condition.get(OBSERVED)?.as_i64()?, before))
    };
    if let Some(least) = found.iter().filter_map(observed).min() {
        merged[OBSERVED] = least.into();
    }
    merged
}

fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A message that is the same everywhere appears once; others are prefixed with the cluster.
fn message(all: &[(&Report, &Value)], deciding: &[&(&Report, &Value)]) -> String {
    let first = text(deciding[0].1, "message");
    let same = deciding.len() == all.len() && deciding.iter().all(|(_, one)| text(one, "message") == first);
    if same && deciding[0].1["status"] == "True" {
        return first.to_owned();
    }
    let mut named: Vec<(&str, &str)> =
        deciding.iter().map(|(report, condition)| (report.cluster, text(condition, "message"))).collect();
    named.sort_unstable();
    let sentence = |(cluster, message): &(&str, &str)| match message.is_empty() {
        true => (*cluster).to_owned(),
        false => format!("{cluster}: {message}"),
    };
    let joined = named.iter().map(sentence).collect::<Vec<_>>().join("; ");
    joined.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// A condition of the splitter. It keeps its times while it does not change.
pub(super) fn kept_or_new(
    user_object: &UserObject,
    name: &str,
    status: &str,
    reason: &str,
    message: String,
) -> Value {
    let old = user_object.before("/conditions").and_then(Value::as_array).into_iter().flatten();
    let old = old.into_iter().find(|condition| condition["type"] == name);
    let time = |field: &str, same: bool| match old.filter(|_| same).and_then(|old| old.get(field)) {
        Some(time) => time.clone(),
        None => json!(user_object.now),
    };
    let same_status = old.is_some_and(|old| old["status"] == status);
    let same = same_status && old.is_some_and(|old| old["reason"] == reason && old["message"] == *message);
    let mut condition = Map::new();
    condition.insert("type".to_owned(), name.into());
    condition.insert("status".to_owned(), status.into());
    condition.insert("reason".to_owned(), reason.into());
    condition.insert("lastTransitionTime".to_owned(), time("lastTransitionTime", same_status));
    if user_object.object["kind"] == "Deployment" {
        condition.insert("lastUpdateTime".to_owned(), time("lastUpdateTime", same));
    }
    condition.insert("message".to_owned(), message.into());
    Value::Object(condition)
}
