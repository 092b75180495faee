//! The status of a divided Job.

use serde_json::Value;

use super::{Report, UserObject, conditions};

/// Complete when all targets are; Failed when all have finished and one has failed. Not at the first failure: the other
/// targets still work, and their completions count.
pub(super) fn finish(user_object: &UserObject, reports: &[&Report], status: &mut Value) {
    let has = |report: &Report, name: &str| {
        conditions::find(report, name).is_some_and(|condition| condition["status"] == "True")
    };
    let any = |names: &[&str]| reports.iter().any(|report| names.iter().any(|name| has(report, name)));
    let all = |names: &[&str]| reports.iter().all(|report| names.iter().any(|name| has(report, name)));
    let over = all(&["Complete", "Failed"]);
    let ending = all(&["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"]);
    let states = [
        ("SuccessCriteriaMet", all(&["SuccessCriteriaMet", "Complete"]) && any(&["SuccessCriteriaMet"])),
        ("FailureTarget", ending && any(&["FailureTarget"])),
        ("Complete", all(&["Complete"])),
        ("Failed", over && any(&["Failed"])),
        ("Suspended", all(&["Suspended"])),
    ];
    let known: Vec<&str> = states.iter().map(|(name, _)| *name).collect();
    let mut list: Vec<Value> = Vec::new();
    for (name, _) in states.iter().filter(|(_, holds)| *holds) {
        let having: Vec<&Report> = reports.iter().filter(|report| has(report, name)).copied().collect();
        list.push(conditions::one(user_object, &having, name));
    }
    list.extend(conditions::merged(user_object, reports, &known));
    set(status, "conditions", (!list.is_empty()).then_some(Value::Array(list)));
    let completed = reports.iter().filter_map(|report| report.field("completionTime")?.as_str()).max();
    set(status, "completionTime", completed.filter(|_| all(&["Complete"])).map(Value::from));
    for field in ["completedIndexes", "failedIndexes"] {
        set(status, field, indexes(reports, field).map(Value::from));
    }
}

fn set(status: &mut Value, field: &str, value: Option<Value>) {
    match (value, status.as_object_mut()) {
        (Some(value), Some(fields)) => drop(fields.insert(field.to_owned(), value)),
        (None, Some(fields)) => drop(fields.remove(field)),
        (_, None) => {}
    }
}

/// Merges indexes such as `0-2,5` of all targets, each shifted by its first index.
fn indexes(reports: &[&Report], field: &str) -> Option<String> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for report in reports {
        let text = report.field(field).and_then(Value::as_str).unwrap_or_default();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number =
                |text: &str| text.trim().parse::<u64>().ok().map(|n| n + u64::from(report.index_start));
            ranges.extend(number(first).zip(number(last)));
        }
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    let text = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    (!joined.is_empty()).then(|| joined.iter().map(text).collect::<Vec<_>>().join(","))
}
