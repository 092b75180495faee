//! The log lines of containers: those of the current and of the previous run, at most `LINES_MAX` each.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use tokio::sync::watch;

/// The limit for one run of a container. A simulated container writes a few; a thousand are some 100 KiB.
const LINES_MAX: usize = 1000;

/// A line, and the time at which it was written.
pub(crate) type Line = (Timestamp, String);

#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// By pod uid and container.
    runs: Mutex<HashMap<(String, String), Runs>>,
    /// Counts changes, which wakes followers.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Runs {
    restarts: i64,
    current: Run,
    previous: Option<Run>,
}

#[derive(Debug, Default)]
struct Run {
    lines: VecDeque<Line>,
    /// The number of older lines that were dropped.
    dropped: usize,
}

impl Logs {
    pub(crate) fn write(&self, pod: &str, container: &str, restarts: i64, at: Timestamp, line: String) {
        let mut all = self.runs();
        let runs = all.entry((pod.to_owned(), container.to_owned())).or_default();
        if restarts > runs.restarts {
            runs.restarts = restarts;
            runs.previous = Some(std::mem::take(&mut runs.current));
        }
        runs.current.lines.push_back((at, line));
        if runs.current.lines.len() > LINES_MAX {
            runs.current.lines.pop_front();
            runs.current.dropped += 1;
        }
        drop(all);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Returns the lines of a container after the first `seen`, and the number of all lines.
    pub(crate) fn read(&self, pod: &str, container: &str, seen: usize) -> (Vec<Line>, usize) {
        let all = self.runs();
        let Some(runs) = all.get(&(pod.to_owned(), container.to_owned())) else { return (Vec::new(), seen) };
        let skipped = seen.saturating_sub(runs.current.dropped);
        let lines = runs.current.lines.iter().skip(skipped).cloned().collect();
        (lines, runs.current.dropped + runs.current.lines.len())
    }

    /// Returns the lines of the previous run, if there was one.
    pub(crate) fn previous(&self, pod: &str, container: &str) -> Option<Vec<Line>> {
        let all = self.runs();
        let previous = all.get(&(pod.to_owned(), container.to_owned()))?.previous.as_ref()?;
        Some(previous.lines.iter().cloned().collect())
    }

    /// Returns whether the pod exists and has written something.
    pub(crate) fn contains_pod(&self, pod: &str) -> bool {
        self.runs().keys().any(|(uid, _)| uid == pod)
    }

    pub(crate) fn remove_pod(&self, pod: &str) {
        self.runs().retain(|(uid, _), _| uid != pod);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that changes whenever a line is written or a pod is removed.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<(String, String), Runs>> {
        self.runs.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_are_kept_and_the_oldest_lines_are_dropped_first() {
        let logs = Logs::default();
        let now = Timestamp::UNIX_EPOCH;
        logs.write("pod", "web", 0, now, "first run".to_owned());
        assert_eq!(logs.previous("pod", "web"), None);
        for line in 0..LINES_MAX + 5 {
            logs.write("pod", "web", 1, now, line.to_string());
        }
        assert_eq!(logs.previous("pod", "web").unwrap()[0].1, "first run");
        let (lines, seen) = logs.read("pod", "web", 0);
        assert_eq!((lines.len(), lines[0].1.as_str(), seen), (LINES_MAX, "5", LINES_MAX + 5));
        assert_eq!(logs.read("pod", "web", seen), (Vec::new(), seen));
        logs.remove_pod("pod");
        assert!(!logs.contains_pod("pod"));
    }
}
