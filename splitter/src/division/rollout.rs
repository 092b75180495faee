//! A rolling update over several targets, within the bounds of one.
//!
//! A Deployment limits how many pods may be unavailable (`maxUnavailable`) and surplus (`maxSurge`) during an update.
//! The Deployment of each target keeps to its own bounds, so the bounds of all targets together must not exceed those
//! of the user: they are resolved to numbers for the whole, and divided. A target without a grant waits for its turn: it
//! keeps the old template until another target has finished. So ten targets with one pod each and `maxUnavailable: 1`
//! never have two pods down.

use std::collections::BTreeMap;

use serde_json::Value;

use super::TargetPatch;
use crate::division::shares::{WeightedCluster, divide};

/// The bounds of a rolling update, in replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RolloutBounds {
    pub surge: u32,
    pub unavailable: u32,
}

const SURGE: &str = "/spec/strategy/rollingUpdate/maxSurge";
const UNAVAILABLE: &str = "/spec/strategy/rollingUpdate/maxUnavailable";

/// The bounds of a Deployment with this many replicas. None if its strategy is Recreate.
pub fn bounds(deployment: &Value, total: u32) -> Option<RolloutBounds> {
    let is_deployment = deployment["kind"] == "Deployment";
    if !is_deployment || deployment.pointer("/spec/strategy/type").is_some_and(|kind| kind == "Recreate") {
        return None;
    }
    let portion = |pointer: &str| deployment.pointer(pointer).cloned().unwrap_or_else(|| "25%".into());
    let surge = resolved(&portion(SURGE), total, Round::Up).unwrap_or_default();
    let unavailable = resolved(&portion(UNAVAILABLE), total, Round::Down).unwrap_or_default();
    // As in Kubernetes: with both 0, no pod could ever be replaced.
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    Some(RolloutBounds { surge, unavailable })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    Up,
    Down,
}

/// A number, or a percentage of a total. None if it is neither.
pub fn resolved(portion: &Value, total: u32, round: Round) -> Option<u32> {
    if let Some(number) = portion.as_i64() {
        return Some(u32::try_from(number.max(0)).unwrap_or(u32::MAX));
    }
    let percent: u64 = portion.as_str()?.strip_suffix('%')?.parse().ok()?;
    let hundredths = percent.checked_mul(u64::from(total))?;
    let number = match round {
        Round::Up => hundredths.div_ceil(100),
        Round::Down => hundredths / 100,
    };
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The bounds granted to one target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutGrant {
    pub surge: u32,
    pub unavailable: u32,
    /// Whether it may get the new template.
    pub may_update: bool,
}

impl RolloutGrant {
    /// The bounds of a Deployment must not both be 0. A waiting target changes nothing, so its bounds do not matter.
    pub(super) fn write_into(self, patch: TargetPatch) -> TargetPatch {
        let unavailable = if self.surge == 0 { self.unavailable.max(1) } else { self.unavailable };
        patch.set(SURGE, self.surge).set(UNAVAILABLE, unavailable)
    }

    /// The fields with these bounds.
    pub fn patch(self) -> TargetPatch {
        self.write_into(TargetPatch::default())
    }
}

/// The stage of a target in a rollout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RolloutStage {
    /// It has the old template.
    Waiting,
    /// It has the new template and these bounds, and is not finished.
    Rolling(RolloutBounds),
    /// All replicas are updated and available.
    Done,
}

#[derive(Clone, Debug)]
pub struct RolloutTarget<'a> {
    pub cluster: &'a str,
    pub share: u32,
    /// Its unavailable replicas.
    pub down: u32,
    /// Whether some of them are degraded, and not just starting.
    pub is_degraded: bool,
    pub stage: RolloutStage,
}

impl<'a> RolloutTarget<'a> {
    /// No replica is available, so updating takes none down, and the new template may fix it.
    fn is_down(&self) -> bool {
        self.down >= self.share
    }

    /// Some replicas are available and some are not.
    fn is_partially_down(&self) -> bool {
        self.down > 0 && !self.is_down()
    }

    /// The replicas that are unavailable, or may become so at any moment.
    fn spent(&self) -> u32 {
        match self.stage {
            RolloutStage::Rolling(granted) => granted.unavailable.max(self.down),
            RolloutStage::Waiting | RolloutStage::Done => self.down,
        }
    }

    fn member(&self, takes_part: bool, min: u32) -> WeightedCluster<'a> {
        let max = if takes_part && self.stage == RolloutStage::Waiting { self.share } else { 0 };
        WeightedCluster {
            max: Some(max),
            min,
            ..WeightedCluster::new(self.cluster).weighing(u64::from(self.share))
        }
    }
}

/// The bounds of every target without a rollout, in proportion to its share.
pub(super) fn apportion(
    bounds: RolloutBounds,
    key: &str,
    shares: &BTreeMap<String, u32>,
) -> BTreeMap<String, RolloutGrant> {
    let turns: Vec<RolloutTarget> = shares
        .iter()
        .map(|(cluster, share)| RolloutTarget {
            cluster,
            share: *share,
            down: 0,
            is_degraded: false,
            stage: RolloutStage::Waiting,
        })
        .collect();
    shares.keys().cloned().zip(self::turns(bounds, key, &turns)).collect()
}

/// Which targets may update now, and with which bounds. Targets that are rolling keep their bounds until they have
/// finished; unavailable replicas elsewhere count too, because users do not care which template a missing pod would have
/// had.
pub fn turns(bounds: RolloutBounds, key: &str, targets: &[RolloutTarget]) -> Vec<RolloutGrant> {
    let surging = |turn: &RolloutTarget| match turn.stage {
        RolloutStage::Rolling(granted) => granted.surge,
        RolloutStage::Waiting | RolloutStage::Done => 0,
    };
    let unavailable_left = left(bounds.unavailable, targets.iter().map(RolloutTarget::spent));
    let surge_left = left(bounds.surge, targets.iter().map(surging));
    let up: Vec<WeightedCluster> = targets.iter().map(|turn| turn.member(turn.down == 0, 0)).collect();
    let mut unavailable = divide(unavailable_left, key, &up).of;
    grant_partially_down(bounds, targets, &mut unavailable);
    // Surge goes first to targets without unavailable budget, so that more can update at once.
    let first = |at: usize| u32::from(unavailable[at] == 0);
    let all: Vec<WeightedCluster> =
        targets.iter().enumerate().map(|(at, turn)| turn.member(!turn.is_down(), first(at))).collect();
    let surge = divide(surge_left, key, &all).of;

    let grant = |(turn, (unavailable, surge)): (&RolloutTarget, (u32, u32))| match turn.stage {
        RolloutStage::Rolling(granted) => {
            RolloutGrant { surge: granted.surge, unavailable: granted.unavailable, may_update: true }
        }
        RolloutStage::Waiting if turn.share == 0 => {
            RolloutGrant { surge: 0, unavailable: 0, may_update: true }
        }
        RolloutStage::Waiting if turn.is_down() => {
            RolloutGrant { surge: 0, unavailable: turn.share, may_update: true }
        }
        RolloutStage::Waiting => RolloutGrant { surge, unavailable, may_update: surge + unavailable > 0 },
        RolloutStage::Done => RolloutGrant { surge: 0, unavailable: 0, may_update: true },
    };
    targets.iter().zip(unavailable.into_iter().zip(surge)).map(grant).collect()
}

/// Replicas that are unavailable at a target can be replaced without taking others down. But the bounds stay granted
/// when they are available again, so they have to fit with what is unavailable elsewhere. A degraded target may be fixed
/// by the new template and must not wait for other degraded ones: its bounds have to fit with what was granted to
/// others, and if more is unavailable than that, one target updates at a time.
fn grant_partially_down(bounds: RolloutBounds, targets: &[RolloutTarget], unavailable: &mut [u32]) {
    let all: u32 = targets.iter().map(RolloutTarget::spent).sum();
    let is_rolling = |turn: &&RolloutTarget| matches!(turn.stage, RolloutStage::Rolling(_));
    let mut granted: u32 = targets.iter().filter(is_rolling).map(RolloutTarget::spent).sum();
    for (turn, unavailable) in targets.iter().zip(unavailable) {
        let alone = turn.down.min(bounds.unavailable);
        let fits = match turn.is_degraded {
            true => granted == 0 || granted + alone <= bounds.unavailable,
            false => all <= bounds.unavailable,
        };
        if turn.stage == RolloutStage::Waiting && turn.is_partially_down() && fits {
            (*unavailable, granted) = (alone, granted + alone);
        }
    }
}

fn left(bound: u32, spent: impl Iterator<Item = u32>) -> u32 {
    spent.fold(bound, u32::saturating_sub)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn percentages_are_resolved_for_all_replicas_together() {
        let check = |spec: Value, total: u32, surge: u32, unavailable: u32| {
            let object = json!({ "kind": "Deployment", "spec": { "strategy": { "rollingUpdate": spec } } });
            assert_eq!(
                bounds(&object, total),
                Some(RolloutBounds { surge, unavailable }),
                "{object} {total}"
            );
        };
        check(json!({}), 10, 3, 2);
        check(json!({}), 1, 1, 0);
        check(json!({ "maxSurge": 0, "maxUnavailable": 1 }), 10, 0, 1);
        check(json!({ "maxSurge": 0, "maxUnavailable": "5%" }), 10, 0, 1);
        check(json!({ "maxSurge": "100%", "maxUnavailable": 0 }), 7, 7, 0);
        check(json!({ "maxSurge": "nonsense", "maxUnavailable": -3 }), 7, 0, 1);
    }

    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

    /// A simulation of the worst case: every rolling target has as many pods down, and as many surplus pods, as it was
    /// granted. Returns the largest numbers.
    fn roll_out(bounds: RolloutBounds, shares: &[u32], mut choose: impl FnMut(usize) -> usize) -> (u32, u32) {
        let mut turns_left: Vec<RolloutTarget> = NAMES
            .iter()
            .zip(shares)
            .map(|(cluster, share)| RolloutTarget {
                cluster,
                share: *share,
                down: 0,
                is_degraded: false,
                stage: RolloutStage::Waiting,
            })
            .collect();
        let (mut most_down, mut most_extra) = (0, 0);
        while turns_left.iter().any(|turn| turn.stage != RolloutStage::Done) {
            for (turn, grant) in
                turns(bounds, "shop/web", &turns_left.clone()).into_iter().zip(&mut turns_left)
            {
                if turn.may_update && grant.stage == RolloutStage::Waiting {
                    let granted = RolloutBounds { surge: turn.surge, unavailable: turn.unavailable };
                    grant.stage = RolloutStage::Rolling(granted);
                    grant.down = granted.unavailable.min(grant.share);
                }
            }
            let sum = |of: fn(&RolloutBounds) -> u32| -> u32 {
                let granted = turns_left.iter().filter_map(|turn| match &turn.stage {
                    RolloutStage::Rolling(granted) => Some(of(granted)),
                    _ => None,
                });
                granted.sum()
            };
            most_down = most_down.max(turns_left.iter().map(|turn| turn.down).sum());
            most_extra = most_extra.max(sum(|granted| granted.surge));
            let rolling: Vec<usize> = (0..turns_left.len())
                .filter(|at| matches!(turns_left[*at].stage, RolloutStage::Rolling(_)))
                .collect();
            assert!(!rolling.is_empty(), "no target may update: {turns_left:?}");
            let finished = &mut turns_left[rolling[choose(rolling.len())]];
            (finished.stage, finished.down) = (RolloutStage::Done, 0);
        }
        (most_down, most_extra)
    }

    #[test]
    fn ten_targets_with_one_pod_each_never_have_two_down() {
        assert_eq!(roll_out(RolloutBounds { surge: 0, unavailable: 1 }, &[1; 10], |_| 0), (1, 0));
    }

    #[test]
    fn targets_without_a_grant_wait() {
        let turn = |cluster, share, down, stage| RolloutTarget {
            cluster,
            share,
            down,
            is_degraded: down > 0,
            stage,
        };
        let go = |turns: &[RolloutTarget]| -> Vec<bool> {
            self::turns(RolloutBounds { surge: 0, unavailable: 1 }, "shop/web", turns)
                .iter()
                .map(|grant| grant.may_update)
                .collect()
        };
        let granted = RolloutStage::Rolling(RolloutBounds { surge: 0, unavailable: 1 });
        assert_eq!(go(&[turn("a", 1, 1, granted), turn("b", 1, 0, RolloutStage::Waiting)]), [true, false]);
        assert_eq!(
            go(&[turn("a", 1, 0, RolloutStage::Done), turn("b", 1, 0, RolloutStage::Waiting)]),
            [true, true]
        );
        // A pod that is down on a finished target counts: nothing else updates until it is back.
        assert_eq!(
            go(&[turn("a", 1, 1, RolloutStage::Done), turn("b", 1, 0, RolloutStage::Waiting)]),
            [true, false]
        );
        // A degraded target updates first: the new template may fix it, and no further pod goes down.
        assert_eq!(
            go(&[turn("a", 1, 0, RolloutStage::Waiting), turn("b", 1, 1, RolloutStage::Waiting)]),
            [false, true]
        );
        assert_eq!(
            go(&[turn("a", 0, 0, RolloutStage::Waiting), turn("b", 5, 0, RolloutStage::Waiting)]),
            [true, true]
        );
    }

    fn grant_partially_down(share: u32, down: u32, is_degraded: bool) -> RolloutTarget<'static> {
        RolloutTarget { cluster: "a", share, down, is_degraded, stage: RolloutStage::Waiting }
    }

    fn check(surge: u32, unavailable: u32, turns: &[RolloutTarget], expected: &[(u32, u32)]) {
        assert_eq!(turns_of(RolloutBounds { surge, unavailable }, turns), expected, "{turns:?}");
    }

    /// Three targets grew from two pods to four and got a new template in one edit. A target that has grown takes one
    /// down, and the others have not grown yet: replicas change first.
    #[test]
    fn missing_pods_of_growing_targets_count_as_unavailable() {
        let growing = |down| grant_partially_down(4, down, false);
        check(0, 1, &[growing(2), growing(2), growing(2)], &[(0, 0), (0, 0), (0, 0)]);
        check(0, 1, &[growing(0), growing(0), growing(2)], &[(0, 0), (0, 0), (0, 0)]);
        // A missing pod can be replaced before it is available, within the bound.
        check(0, 1, &[growing(0), growing(0), growing(1)], &[(0, 0), (0, 0), (0, 1)]);
        check(0, 3, &[growing(1), growing(1), growing(1)], &[(0, 1), (0, 1), (0, 1)]);
        check(1, 0, &[growing(2), growing(2)], &[(1, 0), (0, 0)]);
    }

    /// Each target had one broken pod and a bound of one; once repaired, each took one down.
    #[test]
    fn degraded_targets_share_one_bound() {
        let degraded = |share, down| grant_partially_down(share, down, true);
        check(0, 1, &[degraded(2, 1), degraded(2, 1), degraded(2, 1)], &[(0, 1), (0, 0), (0, 0)]);
        check(0, 2, &[degraded(2, 1), degraded(2, 1), degraded(2, 1)], &[(0, 1), (0, 1), (0, 0)]);
        // No pod may become unavailable: surplus pods are created first.
        check(1, 0, &[degraded(5, 1), degraded(5, 1)], &[(1, 0), (0, 0)]);
        // A target without available pods loses none by updating.
        check(0, 1, &[degraded(3, 3), degraded(1, 1), degraded(2, 1)], &[(0, 3), (0, 1), (0, 1)]);
        // One target is already rolling.
        let rolling = RolloutStage::Rolling(RolloutBounds { surge: 0, unavailable: 1 });
        let under_way = RolloutTarget { cluster: "a", share: 2, down: 0, is_degraded: false, stage: rolling };
        check(0, 1, &[under_way, degraded(2, 1)], &[(0, 1), (0, 0)]);
    }

    fn turns_of(bounds: RolloutBounds, turns: &[RolloutTarget]) -> Vec<(u32, u32)> {
        let named: Vec<RolloutTarget> = turns
            .iter()
            .zip(NAMES)
            .map(|(turn, cluster)| RolloutTarget { cluster, ..turn.clone() })
            .collect();
        let grants = self::turns(bounds, "shop/web", &named);
        grants.iter().map(|grant| (grant.surge, grant.unavailable)).collect()
    }

    proptest! {
        #[test]
        fn a_rollout_keeps_its_bounds_and_finishes(
            shares in prop::collection::vec(0..6_u32, 1..10),
            surge in 0..5_u32,
            unavailable in 0..5_u32,
            order in prop::collection::vec(any::<usize>(), 10),
        ) {
            let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
            let mut order = order.into_iter().cycle();
            let most = roll_out(RolloutBounds { surge, unavailable }, &shares, |of| order.next().unwrap() % of);
            prop_assert!(most.0 <= unavailable && most.1 <= surge, "{most:?} of {unavailable}, {surge}");
        }
    }
}
