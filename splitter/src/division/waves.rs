//! A rollout target by target.
//!
//! A Placement may limit how many targets change at the same time, how long a target must be healthy before the next
//! starts, and how many may fail before the rollout stops. This decides which targets get the new template; within
//! those, the bounds of the Deployment hold ([`super::rollout`]).
//!
//! ```text
//!   done   done   soaking   changing   waiting   waiting       maxConcurrency 2: the last two wait
//! ```

use api::fleet::{Portion, Rollout};

use super::rollout::{Round, resolved};

/// The progress of a target in a rollout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It has the old template.
    Waiting,
    /// It has the new template for this long, and is not healthy yet.
    Changing { for_s: u64 },
    /// It has been healthy with it for this long.
    Well { for_s: u64 },
    /// It reports a failure.
    Failed,
}

/// The targets that may start, and the progress of all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wave {
    /// The targets that may start now, in order.
    pub begin: Vec<String>,
    pub done: usize,
    pub changing: usize,
    pub failed: usize,
    pub waiting: usize,
    /// Whether too many have failed. Then no further target starts until the object or the policy changes.
    pub is_stopped: bool,
}

/// Which targets may begin. Without a policy all do.
pub fn next(policy: Option<&Rollout>, targets: &[(&str, Progress)]) -> Wave {
    let all = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let rule = Rule::of(policy, all);
    let mut wave = Wave::default();
    let mut waiting: Vec<&str> = Vec::new();
    for (cluster, progress) in targets {
        match rule.judge(*progress) {
            Judgement::Waits => waiting.push(cluster),
            Judgement::Changes => wave.changing += 1,
            Judgement::IsDone => wave.done += 1,
            Judgement::Failed => wave.failed += 1,
        }
    }
    wave.is_stopped = wave.failed > rule.failures_max;
    // A tolerated failure does not occupy a slot.
    let room = rule.at_once.saturating_sub(wave.changing);
    let begins = if wave.is_stopped { 0 } else { room.min(waiting.len()) };
    wave.waiting = waiting.len() - begins;
    wave.begin = waiting.into_iter().take(begins).map(str::to_owned).collect();
    wave
}

enum Judgement {
    Waits,
    Changes,
    IsDone,
    Failed,
}

/// A policy in numbers.
struct Rule {
    at_once: usize,
    failures_max: usize,
    well_s: u64,
    deadline_s: Option<u64>,
}

impl Rule {
    fn of(policy: Option<&Rollout>, all: u32) -> Rule {
        let Some(policy) = policy else {
            return Rule { at_once: usize::MAX, failures_max: usize::MAX, well_s: 0, deadline_s: None };
        };
        let portion = |portion: &Option<Portion>, round: Round| {
            let portion = serde_json::to_value(portion.as_ref()?).ok()?;
            resolved(&portion, all, round).map(|number| number as usize)
        };
        let failures_max = portion(&policy.max_failures, Round::Down).unwrap_or_default();
        // At least one, or nothing would ever change.
        let at_once = portion(&policy.max_concurrency, Round::Up).unwrap_or(usize::MAX).max(1);
        Rule {
            at_once,
            failures_max,
            well_s: policy.min_success_time.as_ref().map_or(0, |span| span.length().as_secs()),
            deadline_s: policy.progress_deadline.as_ref().map(|span| span.length().as_secs()),
        }
    }

    fn judge(&self, progress: Progress) -> Judgement {
        match progress {
            Progress::Waiting => Judgement::Waits,
            Progress::Failed => Judgement::Failed,
            Progress::Changing { for_s } if self.deadline_s.is_some_and(|deadline| for_s > deadline) => {
                Judgement::Failed
            }
            Progress::Well { for_s } if for_s >= self.well_s => Judgement::IsDone,
            Progress::Changing { .. } | Progress::Well { .. } => Judgement::Changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Progress::{Changing, Failed, Waiting, Well};
    use serde_json::json;

    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

    fn policy() -> Rollout {
        let policy = json!({ "maxConcurrency": "20%", "minSuccessTime": "1m", "progressDeadline": "10m", "maxFailures": 1 });
        serde_json::from_value(policy).unwrap()
    }

    fn wave(policy: Option<&Rollout>, progress: &[Progress]) -> Wave {
        let targets: Vec<(&str, Progress)> = NAMES.iter().copied().zip(progress.iter().copied()).collect();
        next(policy, &targets)
    }

    #[test]
    fn some_at_once_each_well_for_a_while() {
        let check = |first: &[Progress], begin: &[&str], counts: [usize; 4], stopped: bool| {
            let mut progress = first.to_vec();
            progress.resize(10, Waiting);
            let wave = wave(Some(&policy()), &progress);
            assert_eq!(wave.begin, begin, "{first:?}");
            assert_eq!([wave.done, wave.changing, wave.failed, wave.waiting], counts, "{first:?}");
            assert_eq!(wave.is_stopped, stopped, "{first:?}");
        };
        check(&[], &["a", "b"], [0, 0, 0, 8], false);
        check(&[Changing { for_s: 5 }, Changing { for_s: 5 }], &[], [0, 2, 0, 8], false);
        // Well, but not for long enough.
        check(&[Well { for_s: 59 }, Changing { for_s: 9 }], &[], [0, 2, 0, 8], false);
        check(&[Well { for_s: 60 }, Changing { for_s: 9 }], &["c"], [1, 1, 0, 7], false);
        // One may fail, by its own word or by time. With the second, nothing further begins.
        check(&[Failed, Changing { for_s: 9 }], &["c"], [0, 1, 1, 7], false);
        check(&[Failed, Changing { for_s: 601 }], &[], [0, 0, 2, 8], true);
        check(&[Well { for_s: 99 }; 10], &[], [10, 0, 0, 0], false);
    }

    #[test]
    fn without_a_policy_all_begin() {
        assert_eq!(wave(None, &[Waiting; 3]).begin, ["a", "b", "c"]);
        assert_eq!(wave(None, &[Failed, Failed, Waiting]).begin, ["c"]);
        let none_at_once: Rollout = serde_json::from_value(json!({ "maxConcurrency": 0 })).unwrap();
        assert_eq!(wave(Some(&none_at_once), &[Waiting; 3]).begin, ["a"], "or nothing would ever change");
    }
}
