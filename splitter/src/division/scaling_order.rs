//! The order in which the shares of targets are written.
//!
//! Every target has its share in its own mailbox, and each is written by itself. Between two writes the pods follow
//! what has been written so far. kcp wrote every target's full number first and divided later; until then there were
//! three times as many pods. Here, in whichever order the allowed writes are made, and whichever of them fail:
//!
//! - targets together are never asked for more than the total and the allowed surge;
//! - while they are asked for less than the total, because it grew, none is asked for less than before;
//! - otherwise they are never asked for less than the total without the allowed missing ones, and a write never makes
//!   fewer replicas available than that.
//!
//! So some changes take several rounds: [`next`] returns the writes that are allowed now, and is called again after
//! they have been made or a report has changed.

use std::collections::BTreeMap;

/// The present state of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservedTarget {
    /// The replicas that its mailbox requests.
    pub asked: u32,
    /// The available replicas of its last report.
    pub available: u32,
    /// The existing replicas of its last report.
    pub running: u32,
    /// Whether its copy is being deleted.
    pub leaving: bool,
}

/// How many replicas may be surplus or missing during a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slack {
    surge: u32,
    missing: u32,
    exclusive: bool,
}

impl Slack {
    /// With both 0 nothing could move, so then one may be missing, as in a Deployment.
    pub fn new(surge: u32, missing: u32) -> Slack {
        let missing = if surge == 0 && missing == 0 { 1 } else { missing };
        Slack { surge, missing, exclusive: false }
    }

    /// For exclusive workloads: replicas are started only when those they replace have terminated.
    pub fn exclusive() -> Slack {
        Slack { surge: 0, missing: u32::MAX, exclusive: true }
    }
}

/// The writes that are allowed now, by cluster. Empty when nothing has to change, or a report has to come first.
pub fn next(
    seen: &BTreeMap<String, ObservedTarget>,
    wanted: &BTreeMap<String, u32>,
    slack: Slack,
) -> BTreeMap<String, u32> {
    let total = sum(wanted.values().copied());
    let want = |cluster: &str| wanted.get(cluster).copied().unwrap_or_default();
    let mut writes = increases(seen, wanted, slack, total);
    let lowered = seen.iter().filter(|(cluster, seen)| seen.asked > want(cluster) && !seen.leaving);
    let excess: Vec<(&String, ObservedTarget, u32)> =
        lowered.map(|(cluster, seen)| (cluster, *seen, seen.asked - want(cluster))).collect();
    writes.extend(lowers(seen, &excess, slack, total));
    writes
}

fn sum(numbers: impl Iterator<Item = u32>) -> u64 {
    numbers.map(u64::from).sum()
}

/// Scale-ups, as long as the requested replicas without any scale-down stay within total and surge.
fn increases(
    seen: &BTreeMap<String, ObservedTarget>,
    wanted: &BTreeMap<String, u32>,
    slack: Slack,
    total: u64,
) -> BTreeMap<String, u32> {
    let occupied =
        |seen: &ObservedTarget| if slack.exclusive { seen.asked.max(seen.running) } else { seen.asked };
    let taken = sum(seen.values().map(occupied));
    let mut room = (total + u64::from(slack.surge)).saturating_sub(taken);
    let mut writes = BTreeMap::new();
    for (cluster, wanted) in wanted {
        let asked = seen.get(cluster).map_or(0, |seen| seen.asked);
        let more = u64::from(wanted.saturating_sub(asked)).min(room);
        if more > 0 {
            room -= more;
            writes.insert(cluster.clone(), asked + u32::try_from(more).expect("no more than a share"));
        }
    }
    writes
}

/// Scale-downs, as long as enough replicas stay requested and available without any scale-up. If there are too few
/// already, a target only gives up unavailable ones.
fn lowers(
    seen: &BTreeMap<String, ObservedTarget>,
    excess: &[(&String, ObservedTarget, u32)],
    slack: Slack,
    total: u64,
) -> BTreeMap<String, u32> {
    let least = total.saturating_sub(u64::from(slack.missing));
    // A copy that is being deleted still has pods, but does not count, even if the target is wanted again.
    let staying = || seen.values().filter(|seen| !seen.leaving);
    let asked = sum(staying().map(|seen| seen.asked));
    let available = sum(staying().map(|seen| seen.available.min(seen.asked)));
    let mut asks_to_give = if asked < total { 0 } else { asked - least };
    let mut available_to_give = available - available.min(least);
    let mut writes = BTreeMap::new();
    for (cluster, seen, excess) in excess {
        let idle = u64::from(seen.asked - seen.available.min(seen.asked));
        let fewer = u64::from(*excess).min(asks_to_give).min(idle + available_to_give);
        if fewer > 0 {
            asks_to_give -= fewer;
            available_to_give -= fewer.saturating_sub(idle);
            writes
                .insert((*cluster).clone(), seen.asked - u32::try_from(fewer).expect("no more than a share"));
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(rows: &[(&str, u32, u32)]) -> BTreeMap<String, ObservedTarget> {
        let row = |(cluster, asked, available): &(&str, u32, u32)| {
            (
                (*cluster).to_owned(),
                ObservedTarget { asked: *asked, available: *available, running: *available, leaving: false },
            )
        };
        rows.iter().map(row).collect()
    }

    fn numbers(rows: &[(&str, u32)]) -> BTreeMap<String, u32> {
        rows.iter().map(|(cluster, number)| ((*cluster).to_owned(), *number)).collect()
    }

    #[test]
    fn the_writes_allowed_now() {
        let check = |now: &[(&str, u32, u32)],
                     wanted: &[(&str, u32)],
                     slack: Slack,
                     expected: &[(&str, u32)]| {
            assert_eq!(next(&seen(now), &numbers(wanted), slack), numbers(expected), "{now:?} -> {wanted:?}");
        };
        let careful = Slack::new(0, 1);
        // Growing: all at once, each its part. kcp asked every target for the whole number first.
        check(&[], &[("a", 2), ("b", 1)], careful, &[("a", 2), ("b", 1)]);
        check(&[("a", 2, 2), ("b", 1, 1)], &[("a", 4), ("b", 3)], careful, &[("a", 4), ("b", 3)]);
        // Shrinking: at once, whether anything is available or not.
        check(&[("a", 4, 4), ("b", 3, 3)], &[("a", 2), ("b", 1)], careful, &[("a", 2), ("b", 1)]);
        check(&[("a", 4, 0), ("b", 3, 0)], &[("a", 2), ("b", 1)], careful, &[("a", 2), ("b", 1)]);
        // Moving: never both.
        check(&[("a", 4, 4)], &[("b", 4)], careful, &[("a", 3)]);
        check(&[("a", 3, 3)], &[("b", 4)], careful, &[("b", 1)]);
        check(&[("a", 3, 3), ("b", 1, 0)], &[("b", 4)], careful, &[]);
        check(&[("a", 3, 3), ("b", 1, 1)], &[("b", 4)], careful, &[("a", 2)]);
        check(&[("a", 4, 4)], &[("b", 4)], Slack::new(4, 0), &[("b", 4)]);
        check(&[("a", 4, 4), ("b", 4, 2)], &[("b", 4)], Slack::new(4, 0), &[("a", 2)]);
        // What does not work is given up first.
        check(&[("a", 4, 1), ("b", 4, 3)], &[("b", 4)], Slack::new(4, 0), &[("a", 1)]);
        // Steady: nothing.
        check(&[("a", 4, 0)], &[("a", 4)], careful, &[]);
        // Exclusively: the old one must be gone.
        let mut one = seen(&[("a", 0, 0), ("b", 0, 0)]);
        one.get_mut("a").unwrap().running = 1;
        assert_eq!(next(&one, &numbers(&[("b", 1)]), Slack::exclusive()), numbers(&[]));
        one.get_mut("a").unwrap().running = 0;
        assert_eq!(next(&one, &numbers(&[("b", 1)]), Slack::exclusive()), numbers(&[("b", 1)]));
        check(&[("a", 1, 1)], &[("b", 1)], Slack::exclusive(), &[("a", 0)]);
    }

    /// A workload left a target and was sent back at once. The pods being deleted were taken for the new ones, so the
    /// other targets scaled down too early.
    #[test]
    fn targets_do_not_scale_down_for_pods_that_are_being_deleted() {
        let mut now = seen(&[("a", 2, 2), ("b", 3, 3), ("c", 3, 3)]);
        now.get_mut("a").unwrap().leaving = true;
        assert_eq!(
            next(&now, &numbers(&[("a", 6)]), Slack::new(0, 0)).get("b"),
            Some(&2),
            "one may be missing"
        );
        let all = Slack::new(6, 0);
        assert_eq!(next(&now, &numbers(&[("a", 6)]), all), numbers(&[("a", 6)]));
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// What an adversary does next.
    #[derive(Clone, Debug)]
    enum Act {
        /// The user wants other shares.
        Want(Vec<u32>),
        /// One of the allowed writes is carried out; the others of that round may be lost.
        Write(usize),
        /// A target reports, catching up by so many pods, or having lost them.
        Report { at: usize, available: u32 },
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            1 => prop::collection::vec(0..8_u32, 4).prop_map(Act::Want),
            6 => any::<usize>().prop_map(Act::Write),
            4 => (0..4_usize, 0..9_u32).prop_map(|(at, available)| Act::Report { at, available }),
        ]
    }

    fn totals(now: &BTreeMap<String, ObservedTarget>) -> (u64, u64) {
        (
            sum(now.values().map(|seen| seen.asked)),
            sum(now.values().map(|seen| seen.available.min(seen.asked))),
        )
    }

    proptest! {
        /// Replays a history with the writes of each round in any order, some of them lost, and reports that lag.
        #[test]
        fn no_moment_is_wrong(acts in prop::collection::vec(act(), 1..60), surge in 0..4_u32, missing in 0..4_u32) {
            let slack = Slack::new(surge, missing);
            let (mut now, mut wanted) = (seen(&[]), numbers(&[]));
            let mut round: Vec<(String, u32)> = Vec::new();
            let mut grows = false;
            for act in acts {
                let total = sum(wanted.values().copied());
                match act {
                    Act::Want(shares) => {
                        wanted = NAMES.iter().map(|name| (*name).to_owned()).zip(shares).collect();
                        // Writes of the old decision are dropped, as a controller that reads again does.
                        round.clear();
                    }
                    Act::Report { at, available } => {
                        if let Some(seen) = now.get_mut(NAMES[at]) {
                            seen.available = available.min(seen.asked);
                            seen.running = seen.asked;
                        }
                        round.clear();
                    }
                    Act::Write(which) => {
                        if round.is_empty() {
                            round = next(&now, &wanted, slack).into_iter().collect();
                            grows = totals(&now).0 < total;
                        }
                        if round.is_empty() { continue }
                        let (cluster, asked) = round.remove(which % round.len());
                        let (asked_before, available_before) = totals(&now);
                        let seen = now.entry(cluster).or_default();
                        seen.asked = asked;
                        // At once, in the worst case.
                        seen.available = seen.available.min(asked);
                        let (asked_after, available_after) = totals(&now);
                        let least = total.saturating_sub(u64::from(slack.missing));
                        prop_assert!(asked_after <= asked_before.max(total + u64::from(surge)), "too many: {now:?} {wanted:?}");
                        prop_assert!(asked_after >= asked_before.min(least), "too few: {now:?} {wanted:?}");
                        prop_assert!(!grows || asked_after >= asked_before, "fewer while growing: {now:?} {wanted:?}");
                        prop_assert!(available_after >= available_before.min(least), "taken down: {now:?} {wanted:?}");
                    }
                }
            }
        }

        /// And it always gets there, if targets do as they are asked.
        #[test]
        fn every_change_comes_to_an_end(
            from in prop::collection::vec(0..8_u32, 4),
            to in prop::collection::vec(0..8_u32, 4),
            slack in prop_oneof![(0..3_u32, 0..3_u32).prop_map(|(a, b)| Slack::new(a, b)), Just(Slack::exclusive())],
        ) {
            let wanted: BTreeMap<String, u32> = NAMES.iter().map(|name| (*name).to_owned()).zip(to).collect();
            let mut now: BTreeMap<String, ObservedTarget> = NAMES.iter().map(|name| (*name).to_owned())
                .zip(from.into_iter().map(|n| ObservedTarget { asked: n, available: n, running: n, leaving: false })).collect();
            for _ in 0..100 {
                for (cluster, asked) in next(&now, &wanted, slack) {
                    now.entry(cluster).or_default().asked = asked;
                }
                for seen in now.values_mut() {
                    (seen.available, seen.running) = (seen.asked, seen.asked);
                }
            }
            let asked: BTreeMap<String, u32> = now.into_iter().map(|(cluster, seen)| (cluster, seen.asked)).collect();
            prop_assert_eq!(asked, wanted);
        }
    }
}
