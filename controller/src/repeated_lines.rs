//! Logs lines about the same subject at most once a minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::meta::hash::hash;

/// A failing object is retried every minute, or on every event. One line a minute is enough.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// Subjects whose last line is remembered: less than a megabyte at some 50 bytes each.
const REMEMBERED_MAX: usize = 16_384;

/// When the last line about each subject was logged, by a hash of the subject: tenants choose names and texts, and so
/// their length. Two that collide share a minute.
#[derive(Debug, Default)]
pub struct RepeatedLines(Mutex<HashMap<u64, Instant>>);

impl RepeatedLines {
    /// Reports whether a line about the subject may be logged now. If so, the next one may be a minute later.
    pub fn is_due(&self, about: &[&str], now: Instant) -> bool {
        let about = hash(about);
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn a_line_is_repeated_after_a_minute_and_memory_is_bounded() {
        let (lines, start) = (RepeatedLines::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let check = |object: &str, seconds: u64, expected: bool| {
            assert_eq!(lines.is_due(&[object], after(seconds)), expected, "{object} after {seconds} s");
        };
        check("web", 0, true);
        check("web", 59, false);
        check("db", 59, true);
        check("web", 60, true);
        check("web", 61, false);
        for number in 0..3 * REMEMBERED_MAX {
            assert!(lines.is_due(&[&format!("app-{number}")], after(62)));
            assert!(lines.0.lock().unwrap().len() <= REMEMBERED_MAX, "{number}");
        }
    }
}
