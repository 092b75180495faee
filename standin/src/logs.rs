//! What containers wrote: the lines of this run and of the one before, as far as there is room.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use tokio::sync::watch;

/// Lines of one run of a container. A container here writes a few; a thousand are some 100 KiB.
const LINES_MAX: usize = 1000;

/// A line, and when it was written.
pub(crate) type Line = (Timestamp, String);

#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// By pod uid and container.
    runs: Mutex<HashMap<(String, String), Runs>>,
    /// Counts lines, so that who follows hears of them.
    news: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Runs {
    restarts: i64,
    now: Run,
    before: Option<Run>,
}

#[derive(Debug, Default)]
struct Run {
    lines: VecDeque<Line>,
    /// Lines that there was no room for any more.
    dropped: usize,
}

impl Logs {
    pub(crate) fn write(&self, pod: &str, container: &str, restarts: i64, at: Timestamp, line: String) {
        let mut all = self.runs();
        let runs = all.entry((pod.to_owned(), container.to_owned())).or_default();
        if restarts > runs.restarts {
            runs.restarts = restarts;
            runs.before = Some(std::mem::take(&mut runs.now));
        }
        runs.now.lines.push_back((at, line));
        if runs.now.lines.len() > LINES_MAX {
            runs.now.lines.pop_front();
            runs.now.dropped += 1;
        }
        drop(all);
        self.news.send_modify(|count| *count += 1);
    }

    /// A container's lines from the `seen`th on, and how many there have been.
    pub(crate) fn read(&self, pod: &str, container: &str, seen: usize) -> (Vec<Line>, usize) {
        let all = self.runs();
        let Some(runs) = all.get(&(pod.to_owned(), container.to_owned())) else { return (Vec::new(), seen) };
        let skipped = seen.saturating_sub(runs.now.dropped);
        let lines = runs.now.lines.iter().skip(skipped).cloned().collect();
        (lines, runs.now.dropped + runs.now.lines.len())
    }

    /// The lines of the run before this one, if there was one.
    pub(crate) fn previous(&self, pod: &str, container: &str) -> Option<Vec<Line>> {
        let all = self.runs();
        let before = all.get(&(pod.to_owned(), container.to_owned()))?.before.as_ref()?;
        Some(before.lines.iter().cloned().collect())
    }

    /// Whether there is such a container still.
    pub(crate) fn knows(&self, pod: &str) -> bool {
        self.runs().keys().any(|(known, _)| known == pod)
    }

    pub(crate) fn forget(&self, pod: &str) {
        self.runs().retain(|(known, _), _| known != pod);
        self.news.send_modify(|count| *count += 1);
    }

    /// Tells of news from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<(String, String), Runs>> {
        self.runs.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_and_the_one_before_are_kept_and_the_oldest_lines_go_first() {
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
        logs.forget("pod");
        assert!(!logs.knows("pod"));
    }
}
