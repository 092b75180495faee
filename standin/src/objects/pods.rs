//! The state of a pod, read from its status.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::fields::{condition, count, is_true, list, text, timestamp};
use crate::clock::later;

/// Returns whether all containers have terminated for good.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns from when on a pod counts as available: ready for `minReadySeconds`. `None` while it is not ready.
pub(crate) fn available_at(pod: &Value, min_ready_s: i64) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|_| is_true(pod, "Ready"))?;
    match u64::try_from(min_ready_s) {
        Ok(0) | Err(_) => Some(Timestamp::MIN),
        Ok(min_ready_s) => {
            let since = timestamp(ready, "/lastTransitionTime")?;
            Some(later(since, Duration::from_secs(min_ready_s)))
        }
    }
}

/// Returns the highest restart count among the containers of a pod.
pub(crate) fn restarts(pod: &Value) -> i64 {
    let statuses = list(pod, "/status/containerStatuses").iter();
    statuses.map(|status| count(status, "/restartCount")).max().unwrap_or_default()
}
