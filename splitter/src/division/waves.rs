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
pub enum RolloutProgress {
    /// It has the old template.
    Waiting,
    /// It has the new template for this long, and is not healthy yet.
    Changing { for_s: u64 },
    /// It has been healthy with it for this long.
    Healthy { for_s: u64 },
    /// It reports a failure.
    Failed,
}

/// The targets that may start, and the progress of all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wave {
    /// The targets that may start now, in order.
    pub start: Vec<String>,
    pub done: usize,
    pub changing: usize,
    pub failed: usize,
    pub waiting: usize,
    /// Whether too many have failed. Then no further target starts until the object or the policy changes.
    pub is_stopped: bool,
}

/// The targets that may start. Without a policy all may.
pub fn next(policy: Option<&Rollout>, targets: &[(&str, RolloutProgress)]) -> Wave {
    let all = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let rule = WaveLimits::of(policy, all);
    let mut wave = Wave::default();
    let mut waiting: Vec<&str> = Vec::new();
    for (cluster, progress) in targets {
        match rule.classify(*progress) {
            WaveStage::Waits => waiting.push(cluster),
            WaveStage::Changes => wave.changing += 1,
            WaveStage::IsDone => wave.done += 1,
            WaveStage::Failed => wave.failed += 1,
        }
    }
    wave.is_stopped = wave.failed > rule.failures_max;
    // A tolerated failure does not occupy a slot.
    let slots = rule.at_once.saturating_sub(wave.changing);
    let starts = if wave.is_stopped { 0 } else { slots.min(waiting.len()) };
    wave.waiting = waiting.len() - starts;
    wave.start = waiting.into_iter().take(starts).map(str::to_owned).collect();
    wave
}

enum WaveStage {
    Waits,
    Changes,
    IsDone,
    Failed,
}

/// A policy in numbers.
struct WaveLimits {
    at_once: usize,
    failures_max: usize,
    success_s: u64,
    deadline_s: Option<u64>,
}

impl WaveLimits {
    fn of(policy: Option<&Rollout>, all: u32) -> WaveLimits {
        let Some(policy) = policy else {
            return WaveLimits {
                at_once: usize::MAX,
                failures_max: usize::MAX,
                success_s: 0,
                deadline_s: None,
            };
        };
        let portion = |portion: &Option<Portion>, round: Round| {
            let portion = serde_json::to_value(portion.as_ref()?).ok()?;
            resolved(&portion, all, round).map(|number| number as usize)
        };
        let failures_max = portion(&policy.max_failures, Round::Down).unwrap_or_default();
        // At least one, or no target would ever change.
        let at_once = portion(&policy.max_concurrency, Round::Up).unwrap_or(usize::MAX).max(1);
        WaveLimits {
            at_once,
            failures_max,
            success_s: policy.min_success_time.as_ref().map_or(0, |span| span.length().as_secs()),
            deadline_s: policy.progress_deadline.as_ref().map(|span| span.length().as_secs()),
        }
    }

    fn classify(&self, progress: RolloutProgress) -> WaveStage {
        match progress {
            RolloutProgress::Waiting => WaveStage::Waits,
            RolloutProgress::Failed => WaveStage::Failed,
            RolloutProgress::Changing { for_s }
                if self.deadline_s.is_some_and(|deadline| for_s > deadline) =>
            {
                WaveStage::Failed
            }
            RolloutProgress::Healthy { for_s } if for_s >= self.success_s => WaveStage::IsDone,
            RolloutProgress::Changing { .. } | RolloutProgress::Healthy { .. } => WaveStage::Changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RolloutProgress::{Changing, Failed, Healthy, Waiting};
    use serde_json::json;

    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

    fn policy() -> Rollout {
        let policy = json!({ "maxConcurrency": "20%", "minSuccessTime": "1m", "progressDeadline": "10m", "maxFailures": 1 });
        serde_json::from_value(policy).unwrap()
    }

    fn wave(policy: Option<&Rollout>, progress: &[RolloutProgress]) -> Wave {
        let targets: Vec<(&str, RolloutProgress)> =
            NAMES.iter().copied().zip(progress.iter().copied()).collect();
        next(policy, &targets)
    }

    #[test]
    fn targets_start_within_max_concurrency_and_min_success_time() {
        let check = |first: &[RolloutProgress], start: &[&str], counts: [usize; 4], stopped: bool| {
            let mut progress = first.to_vec();
            progress.resize(10, Waiting);
            let wave = wave(Some(&policy()), &progress);
            assert_eq!(wave.start, start, "{first:?}");
            assert_eq!([wave.done, wave.changing, wave.failed, wave.waiting], counts, "{first:?}");
            assert_eq!(wave.is_stopped, stopped, "{first:?}");
        };
        check(&[], &["a", "b"], [0, 0, 0, 8], false);
        check(&[Changing { for_s: 5 }, Changing { for_s: 5 }], &[], [0, 2, 0, 8], false);
        // Healthy, but not for long enough.
        check(&[Healthy { for_s: 59 }, Changing { for_s: 9 }], &[], [0, 2, 0, 8], false);
        check(&[Healthy { for_s: 60 }, Changing { for_s: 9 }], &["c"], [1, 1, 0, 7], false);
        // One target may fail, by its report or by the deadline. After the second failure no target starts.
        check(&[Failed, Changing { for_s: 9 }], &["c"], [0, 1, 1, 7], false);
        check(&[Failed, Changing { for_s: 601 }], &[], [0, 0, 2, 8], true);
        check(&[Healthy { for_s: 99 }; 10], &[], [10, 0, 0, 0], false);
    }

    #[test]
    fn without_a_policy_all_targets_start() {
        assert_eq!(wave(None, &[Waiting; 3]).start, ["a", "b", "c"]);
        assert_eq!(wave(None, &[Failed, Failed, Waiting]).start, ["c"]);
        let none_at_once: Rollout = serde_json::from_value(json!({ "maxConcurrency": 0 })).unwrap();
        assert_eq!(wave(Some(&none_at_once), &[Waiting; 3]).start, ["a"], "at least one target may start");
    }
}
