//! The order in which the shares of targets are written.
//!
//! Every target has its share in its own mailbox, and each is written by itself. Between two writes the pods follow
//! the writes made so far. kcp wrote every target's full number first and divided later; until then three times as many
//! pods existed. Here, in whichever order the allowed writes are made, and whichever of them fail:
//!
//! - the replicas requested of all targets never exceed the total and the allowed surge;
//! - while fewer than the total are requested, because it grew, no target is scaled down;
//! - otherwise never fewer are requested than the total without the allowed missing ones, and a write never makes fewer
//!   replicas available than that.
//!
//! So some changes take several rounds: [`next`] returns the writes that are allowed now, and is called again after
//! they have been made or a report has changed.

use std::collections::BTreeMap;

/// The present state of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservedTarget {
    /// The replicas that its mailbox requests.
    pub requested: u32,
    /// The available replicas of its last report.
    pub available: u32,
    /// The existing replicas of its last report.
    pub running: u32,
    /// Whether its mailbox object is being deleted.
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

/// The writes that are allowed now, by cluster. Empty if no change is needed, or a report has to arrive first.
pub fn next(
    observed: &BTreeMap<String, ObservedTarget>,
    desired: &BTreeMap<String, u32>,
    slack: Slack,
) -> BTreeMap<String, u32> {
    let total = sum(desired.values().copied());
    let desired_replicas = |cluster: &str| desired.get(cluster).copied().unwrap_or_default();
    let mut writes = increases(observed, desired, slack, total);
    let exceeding = observed
        .iter()
        .filter(|(cluster, observed)| observed.requested > desired_replicas(cluster) && !observed.leaving);
    let excess: Vec<(&String, ObservedTarget, u32)> = exceeding
        .map(|(cluster, observed)| (cluster, *observed, observed.requested - desired_replicas(cluster)))
        .collect();
    writes.extend(decreases(observed, &excess, slack, total));
    writes
}

fn sum(numbers: impl Iterator<Item = u32>) -> u64 {
    numbers.map(u64::from).sum()
}

/// Scale-ups, as long as the requested replicas without any scale-down stay within total and surge.
fn increases(
    observed: &BTreeMap<String, ObservedTarget>,
    desired: &BTreeMap<String, u32>,
    slack: Slack,
    total: u64,
) -> BTreeMap<String, u32> {
    let occupied = |observed: &ObservedTarget| {
        if slack.exclusive { observed.requested.max(observed.running) } else { observed.requested }
    };
    let taken = sum(observed.values().map(occupied));
    let mut headroom = (total + u64::from(slack.surge)).saturating_sub(taken);
    let mut writes = BTreeMap::new();
    for (cluster, desired) in desired {
        let requested = observed.get(cluster).map_or(0, |observed| observed.requested);
        let more = u64::from(desired.saturating_sub(requested)).min(headroom);
        if more > 0 {
            headroom -= more;
            writes.insert(cluster.clone(), requested + u32::try_from(more).expect("no more than a share"));
        }
    }
    writes
}

/// Scale-downs, as long as enough replicas stay requested and available without any scale-up. If there are too few
/// already, a target only gives up unavailable ones.
fn decreases(
    observed: &BTreeMap<String, ObservedTarget>,
    excess: &[(&String, ObservedTarget, u32)],
    slack: Slack,
    total: u64,
) -> BTreeMap<String, u32> {
    let least = total.saturating_sub(u64::from(slack.missing));
    // A mailbox object that is being deleted still has pods, but they do not count, even if the target is desired again.
    let staying = || observed.values().filter(|observed| !observed.leaving);
    let requested = sum(staying().map(|observed| observed.requested));
    let available = sum(staying().map(|observed| observed.available.min(observed.requested)));
    let mut requested_to_release = if requested < total { 0 } else { requested - least };
    let mut available_to_release = available - available.min(least);
    let mut writes = BTreeMap::new();
    for (cluster, observed, excess) in excess {
        let idle = u64::from(observed.requested - observed.available.min(observed.requested));
        let fewer = u64::from(*excess).min(requested_to_release).min(idle + available_to_release);
        if fewer > 0 {
            requested_to_release -= fewer;
            available_to_release -= fewer.saturating_sub(idle);
            writes.insert(
                (*cluster).clone(),
                observed.requested - u32::try_from(fewer).expect("no more than a share"),
            );
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn observed(rows: &[(&str, u32, u32)]) -> BTreeMap<String, ObservedTarget> {
        let row = |(cluster, requested, available): &(&str, u32, u32)| {
            (
                (*cluster).to_owned(),
                ObservedTarget {
                    requested: *requested,
                    available: *available,
                    running: *available,
                    leaving: false,
                },
            )
        };
        rows.iter().map(row).collect()
    }

    fn numbers(rows: &[(&str, u32)]) -> BTreeMap<String, u32> {
        rows.iter().map(|(cluster, number)| ((*cluster).to_owned(), *number)).collect()
    }

    #[test]
    fn only_writes_that_keep_the_bounds_are_allowed() {
        let check =
            |now: &[(&str, u32, u32)], desired: &[(&str, u32)], slack: Slack, expected: &[(&str, u32)]| {
                assert_eq!(
                    next(&observed(now), &numbers(desired), slack),
                    numbers(expected),
                    "{now:?} -> {desired:?}"
                );
            };
        let careful = Slack::new(0, 1);
        // Growing: all targets at once, each by its share. kcp requested the whole number of every target first.
        check(&[], &[("a", 2), ("b", 1)], careful, &[("a", 2), ("b", 1)]);
        check(&[("a", 2, 2), ("b", 1, 1)], &[("a", 4), ("b", 3)], careful, &[("a", 4), ("b", 3)]);
        // Shrinking: at once, whether anything is available or not.
        check(&[("a", 4, 4), ("b", 3, 3)], &[("a", 2), ("b", 1)], careful, &[("a", 2), ("b", 1)]);
        check(&[("a", 4, 0), ("b", 3, 0)], &[("a", 2), ("b", 1)], careful, &[("a", 2), ("b", 1)]);
        // Moving: never an increase and a decrease at once.
        check(&[("a", 4, 4)], &[("b", 4)], careful, &[("a", 3)]);
        check(&[("a", 3, 3)], &[("b", 4)], careful, &[("b", 1)]);
        check(&[("a", 3, 3), ("b", 1, 0)], &[("b", 4)], careful, &[]);
        check(&[("a", 3, 3), ("b", 1, 1)], &[("b", 4)], careful, &[("a", 2)]);
        check(&[("a", 4, 4)], &[("b", 4)], Slack::new(4, 0), &[("b", 4)]);
        check(&[("a", 4, 4), ("b", 4, 2)], &[("b", 4)], Slack::new(4, 0), &[("a", 2)]);
        // Unavailable replicas are removed first.
        check(&[("a", 4, 1), ("b", 4, 3)], &[("b", 4)], Slack::new(4, 0), &[("a", 1)]);
        // Steady: no writes.
        check(&[("a", 4, 0)], &[("a", 4)], careful, &[]);
        // Exclusive: the old replica must have terminated.
        let mut one = observed(&[("a", 0, 0), ("b", 0, 0)]);
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
        let mut now = observed(&[("a", 2, 2), ("b", 3, 3), ("c", 3, 3)]);
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

    /// A random event of the simulation.
    #[derive(Clone, Debug)]
    enum SimulatedEvent {
        /// The desired shares change.
        SetDesired(Vec<u32>),
        /// One of the allowed writes is carried out; the others of that round may be lost.
        Write(usize),
        /// A target reports, catching up by so many pods, or having lost them.
        Report { at: usize, available: u32 },
    }

    fn event() -> impl Strategy<Value = SimulatedEvent> {
        prop_oneof![
            1 => prop::collection::vec(0..8_u32, 4).prop_map(SimulatedEvent::SetDesired),
            6 => any::<usize>().prop_map(SimulatedEvent::Write),
            4 => (0..4_usize, 0..9_u32).prop_map(|(at, available)| SimulatedEvent::Report { at, available }),
        ]
    }

    fn totals(now: &BTreeMap<String, ObservedTarget>) -> (u64, u64) {
        (
            sum(now.values().map(|observed| observed.requested)),
            sum(now.values().map(|observed| observed.available.min(observed.requested))),
        )
    }

    proptest! {
        /// Replays a history with the writes of each round in any order, some of them lost, and reports that lag.
        #[test]
        fn every_write_keeps_the_replica_bounds(events in prop::collection::vec(event(), 1..60), surge in 0..4_u32, missing in 0..4_u32) {
            let slack = Slack::new(surge, missing);
            let (mut now, mut desired) = (observed(&[]), numbers(&[]));
            let mut round: Vec<(String, u32)> = Vec::new();
            let mut grows = false;
            for event in events {
                let total = sum(desired.values().copied());
                match event {
                    SimulatedEvent::SetDesired(shares) => {
                        desired = NAMES.iter().map(|name| (*name).to_owned()).zip(shares).collect();
                        // Writes of the old decision are dropped, as in a controller that reconciles from the new state.
                        round.clear();
                    }
                    SimulatedEvent::Report { at, available } => {
                        if let Some(observed) = now.get_mut(NAMES[at]) {
                            observed.available = available.min(observed.requested);
                            observed.running = observed.requested;
                        }
                        round.clear();
                    }
                    SimulatedEvent::Write(which) => {
                        if round.is_empty() {
                            round = next(&now, &desired, slack).into_iter().collect();
                            grows = totals(&now).0 < total;
                        }
                        if round.is_empty() { continue }
                        let (cluster, requested) = round.remove(which % round.len());
                        let (requested_before, available_before) = totals(&now);
                        let observed = now.entry(cluster).or_default();
                        observed.requested = requested;
                        // The worst case: removed replicas were available and terminate at once.
                        observed.available = observed.available.min(requested);
                        let (requested_after, available_after) = totals(&now);
                        let least = total.saturating_sub(u64::from(slack.missing));
                        prop_assert!(requested_after <= requested_before.max(total + u64::from(surge)), "too many: {now:?} {desired:?}");
                        prop_assert!(requested_after >= requested_before.min(least), "too few: {now:?} {desired:?}");
                        prop_assert!(!grows || requested_after >= requested_before, "fewer while growing: {now:?} {desired:?}");
                        prop_assert!(available_after >= available_before.min(least), "taken down: {now:?} {desired:?}");
                    }
                }
            }
        }

        /// Every change converges if the targets apply the requested replicas.
        #[test]
        fn every_change_converges(
            from in prop::collection::vec(0..8_u32, 4),
            to in prop::collection::vec(0..8_u32, 4),
            slack in prop_oneof![(0..3_u32, 0..3_u32).prop_map(|(a, b)| Slack::new(a, b)), Just(Slack::exclusive())],
        ) {
            let desired: BTreeMap<String, u32> = NAMES.iter().map(|name| (*name).to_owned()).zip(to).collect();
            let mut now: BTreeMap<String, ObservedTarget> = NAMES.iter().map(|name| (*name).to_owned())
                .zip(from.into_iter().map(|n| ObservedTarget { requested: n, available: n, running: n, leaving: false })).collect();
            for _ in 0..100 {
                for (cluster, requested) in next(&now, &desired, slack) {
                    now.entry(cluster).or_default().requested = requested;
                }
                for observed in now.values_mut() {
                    (observed.available, observed.running) = (observed.requested, observed.requested);
                }
            }
            let requested: BTreeMap<String, u32> = now.into_iter().map(|(cluster, observed)| (cluster, observed.requested)).collect();
            prop_assert_eq!(requested, desired);
        }
    }
}
