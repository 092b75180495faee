//! Logs a warning about the same object at most once a minute.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use api::meta::hash::hash;

use super::lock;

/// A failing object is retried every minute, or on every event. One line a minute says as much.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// Objects whose last warning is remembered: less than a megabyte at some 50 bytes each.
const REMEMBERED_MAX: usize = 16_384;

/// When the last warning about each object was logged, by a hash of what it is about: tenants choose names and texts, and so
/// their length. Two that collide share a minute.
#[derive(Debug, Default)]
pub(crate) struct RepeatedWarnings(Mutex<HashMap<u64, Instant>>);

impl RepeatedWarnings {
    /// Whether a warning about the object may be logged now. If so, the next one may be a minute later.
    pub(crate) fn is_due(&self, about: &[&str], now: Instant) -> bool {
        let about = hash(about);
        let mut logged = lock(&self.0);
        let is_recent = |at: &Instant| now.duration_since(*at) < REPEAT_AFTER;
        if logged.get(&about).is_some_and(is_recent) {
            return false;
        }
        if logged.len() >= REMEMBERED_MAX {
            logged.retain(|_, at| is_recent(at));
        }
        // With that many failing objects, a repeated line costs less than unbounded memory.
        if logged.len() >= REMEMBERED_MAX {
            logged.clear();
        }
        logged.insert(about, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_repeated_after_a_minute_and_memory_is_bounded() {
        let (warnings, start) = (RepeatedWarnings::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let check = |object: &str, seconds: u64, expected: bool| {
            assert_eq!(warnings.is_due(&[object], after(seconds)), expected, "{object} after {seconds} s");
        };
        check("web", 0, true);
        check("web", 59, false);
        check("db", 59, true);
        check("web", 60, true);
        check("web", 61, false);
        for number in 0..3 * REMEMBERED_MAX {
            assert!(warnings.is_due(&[&format!("app-{number}")], after(62)));
            assert!(lock(&warnings.0).len() <= REMEMBERED_MAX, "{number}");
        }
    }
}
