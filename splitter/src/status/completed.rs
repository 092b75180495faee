//! Completed Jobs: those that are complete or have failed.
//!
//! A completed Job is not started again on another target, and does not keep a physical cluster in use: its result is
//! in its status. The splitter deletes it after `ttlSecondsAfterFinished`; the field is not propagated, because a Job
//! that is deleted downstream would be created again.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// The condition that completed the Job, if it is completed.
fn completion(object: &Value) -> Option<&Value> {
    if object["kind"] != "Job" || object["apiVersion"] != "batch/v1" {
        return None;
    }
    let mut conditions = object.pointer("/status/conditions").and_then(Value::as_array)?.iter();
    conditions.find(|condition| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    })
}

pub(crate) fn is_completed(object: &Value) -> bool {
    completion(object).is_some()
}

/// The rest of its TTL. None if it is not completed, or has no TTL.
pub(crate) fn ttl_left(object: &Value, now: Timestamp) -> Option<Duration> {
    let end = completion(object)?;
    let ttl = object.pointer("/spec/ttlSecondsAfterFinished")?.as_i64()?;
    let ended: Timestamp = end["lastTransitionTime"].as_str()?.parse().ok()?;
    let ttl = Duration::from_secs(u64::try_from(ttl).ok()?);
    let since = Duration::try_from(now.duration_since(ended)).unwrap_or_default();
    Some(ttl.saturating_sub(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_completed_job_is_kept_for_its_ttl() {
        let job = |kind: &str, status: &str, ttl: Value| {
            let at = "2026-01-01T00:00:00Z";
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "spec": { "ttlSecondsAfterFinished": ttl },
                "status": { "conditions": [{ "type": kind, "status": status, "lastTransitionTime": at }] },
            })
        };
        let check = |job: Value, after: i64, expected: Option<u64>| {
            let now = Timestamp::from_second(1_767_225_600 + after).unwrap();
            assert_eq!(ttl_left(&job, now).map(|left| left.as_secs()), expected, "{job}");
        };
        check(job("Complete", "True", json!(60)), 0, Some(60));
        check(job("Complete", "True", json!(60)), 59, Some(1));
        check(job("Failed", "True", json!(60)), 61, Some(0));
        check(job("Failed", "True", json!(0)), 0, Some(0));
        // A clock that is behind keeps the Job.
        check(job("Complete", "True", json!(60)), -5, Some(60));
        check(job("Complete", "False", json!(60)), 61, None);
        check(job("Suspended", "True", json!(60)), 61, None);
        check(job("Complete", "True", Value::Null), 61, None);
        // A Job of another group is not a Job.
        let mut other = job("Complete", "True", json!(60));
        other["apiVersion"] = "example.com/v1".into();
        check(other, 61, None);
    }
}
