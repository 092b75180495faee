//! Divides a StatefulSet: every ordinal is on exactly one target.
//!
//! ```text
//!   0 1 2 3 4 5 6 7        grow: at the end       shrink: from the end       a target leaves: another takes its range
//!   └─east─┘└─west─┘
//! ```
//!
//! Each target has one contiguous range, and the ranges follow each other in the order of the targets, so the order and
//! the shares of a record define them. Pods have names, volumes and peers by ordinal, so a range stays where it is:
//! growth goes to the target with the highest ordinals, and then to targets without any. That may be less even than a
//! new division, but a new division would move pods with their volumes at every scaling.

use api::fleet::Target;
use api::meta::hash::hash;
use serde_json::Value;

use super::{Dividend, DivisionPlan, REPLICAS, TargetPatch, number};
use crate::division::pick::Pick;
use crate::division::shares::{WeightedCluster, divide};

const START: &str = "/spec/ordinals/start";
const PARTITION: &str = "/spec/updateStrategy/rollingUpdate/partition";

/// Ordinals from `start` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrdinalRange {
    pub start: u32,
    pub len: u32,
}

impl OrdinalRange {
    pub fn end(self) -> u32 {
        self.start.saturating_add(self.len)
    }
}

pub(super) fn plan(dividend: &Dividend, picks: &[Pick], recorded: &[Target]) -> DivisionPlan {
    let object = dividend.object;
    let total = dividend.scaled.unwrap_or_else(|| number(object, REPLICAS, 1));
    let share = |target: &Target| target.share.map_or(0, |share| u32::try_from(share).unwrap_or_default());
    let recorded: Vec<(&str, u32)> =
        recorded.iter().map(|target| (target.cluster.as_str(), share(target))).collect();
    let members: Vec<WeightedCluster> = picks.iter().map(Pick::member).collect();
    let laid = layout(total, dividend.key, &members, &recorded);
    let first = number(object, START, 0);
    let ranges = ranges(first, &laid);
    let alone = ranges.iter().filter(|(_, range)| range.len > 0).count() <= 1 && picks.len() <= 1;
    let patch = |range: &OrdinalRange| match alone {
        true => TargetPatch::default().set(REPLICAS, range.len),
        false => divided(object, first, *range),
    };
    let assigned: u32 = laid.iter().map(|(_, len)| len).sum();
    DivisionPlan {
        patches: ranges.iter().map(|(cluster, range)| ((*cluster).to_owned(), patch(range))).collect(),
        total: Some(total),
        shares: laid.iter().map(|(cluster, len)| ((*cluster).to_owned(), *len)).collect(),
        pending: total - assigned,
    }
}

fn divided(object: &Value, first: u32, range: OrdinalRange) -> TargetPatch {
    let patch = TargetPatch::default().set(REPLICAS, range.len).set(START, range.start);
    match object.pointer(PARTITION) {
        // The partition is relative to the first ordinal of each target.
        Some(_) => {
            let partition = number(object, PARTITION, 0).saturating_sub(range.start - first).min(range.len);
            patch.set(PARTITION, partition)
        }
        None => patch,
    }
}

/// Turns shares into consecutive ranges.
pub fn ranges<'a>(first: u32, laid: &[(&'a str, u32)]) -> Vec<(&'a str, OrdinalRange)> {
    let mut start = first;
    let range = |(cluster, len): &(&'a str, u32)| {
        let range = OrdinalRange { start, len: *len };
        start = range.end();
        (*cluster, range)
    };
    laid.iter().map(range).collect()
}

/// The number of ordinals of each cluster, in the order of the ordinals, starting from the record.
pub fn layout<'a>(
    total: u32,
    key: &str,
    members: &[WeightedCluster<'a>],
    recorded: &[(&'a str, u32)],
) -> Vec<(&'a str, u32)> {
    let mut laid = inherit(key, members, recorded);
    let now: u32 = laid.iter().map(|(_, len)| len).sum();
    match total < now {
        true => shrink(&mut laid, now - total),
        false => grow(&mut laid, total, key, members),
    }
    laid
}

/// The recorded ranges, with those of clusters that are no longer chosen given to others: as a whole to a cluster
/// without ordinals, or else to a neighbour, whose range it continues.
fn inherit<'a>(
    key: &str,
    members: &[WeightedCluster<'a>],
    recorded: &[(&'a str, u32)],
) -> Vec<(&'a str, u32)> {
    let is_member = |cluster: &str| members.iter().any(|member| member.cluster == cluster);
    let mut free: Vec<&WeightedCluster> = members
        .iter()
        .filter(|member| !recorded.iter().any(|(cluster, len)| *cluster == member.cluster && *len > 0))
        .collect();
    free.sort_by_key(|member| (std::cmp::Reverse(member.weight), hash(&[key, member.cluster])));
    let mut laid: Vec<(&str, u32)> = Vec::new();
    let mut orphaned = 0;
    for (cluster, len) in recorded.iter().filter(|(_, len)| *len > 0) {
        if is_member(cluster) {
            laid.push((*cluster, len + std::mem::take(&mut orphaned)));
        } else if let Some(at) = free.iter().position(|member| member.most() >= *len) {
            laid.push((free.remove(at).cluster, *len));
        } else if let Some(last) = laid.last_mut() {
            last.1 += len;
        } else {
            orphaned += len;
        }
    }
    // Clusters without ordinals come last, in a fixed order, and get the next ones.
    laid.extend(free.iter().map(|member| (member.cluster, 0)));
    laid
}

fn shrink(laid: &mut [(&str, u32)], mut by: u32) {
    for (_, len) in laid.iter_mut().rev() {
        let taken = by.min(*len);
        *len -= taken;
        by -= taken;
    }
}

fn grow<'a>(laid: &mut [(&'a str, u32)], total: u32, key: &str, members: &[WeightedCluster<'a>]) {
    let of = |cluster: &str| members.iter().find(|member| member.cluster == cluster);
    let least = |(cluster, len): &(&'a str, u32)| match of(cluster) {
        Some(member) => WeightedCluster { min: member.min.max(*len), ..member.clone() },
        None => WeightedCluster::held(cluster, *len),
    };
    let weighted: Vec<WeightedCluster> = laid.iter().map(least).collect();
    let desired = divide(total, key, &weighted).of;
    let mut left = total - laid.iter().map(|(_, len)| len).sum::<u32>();
    let last = laid.iter().rposition(|(_, len)| *len > 0).unwrap_or_default();
    for (slot, desired) in laid.iter_mut().zip(&desired).skip(last) {
        let more = desired.saturating_sub(slot.1).min(left);
        slot.1 += more;
        left -= more;
    }
    // Ordinals cannot be inserted between ranges, so the rest goes to the end.
    let last = laid.iter().rposition(|(_, len)| *len > 0).unwrap_or_default();
    for slot in laid.iter_mut().skip(last) {
        let more = of(slot.0).map_or(0, WeightedCluster::most).saturating_sub(slot.1).min(left);
        slot.1 += more;
        left -= more;
    }
}

/// Which target updates now: as in one StatefulSet from the highest ordinal down, so the last that has not finished.
pub fn next_to_update<'a>(targets: &[(&'a str, OrdinalRange, bool)]) -> Option<&'a str> {
    let unfinished = targets.iter().filter(|(_, range, done)| !done && range.len > 0);
    unfinished.max_by_key(|(_, range, _)| range.start).map(|(cluster, _, _)| *cluster)
}

/// One step of handing a range over, from its highest ordinal down: the next range of each target. An ordinal starts on
/// the new target only when its pod is confirmed to be deleted on the old one.
pub fn hand_over(
    from: OrdinalRange,
    to: OrdinalRange,
    highest_is_gone: bool,
) -> (OrdinalRange, OrdinalRange) {
    // The old target has released an ordinal that the new target does not have yet.
    let between = to.start.saturating_sub(from.end());
    match between {
        0 if from.len > 0 => (OrdinalRange { len: from.len - 1, ..from }, to),
        0 => (from, to),
        _ if highest_is_gone => (from, OrdinalRange { start: to.start - between, len: to.len + between }),
        _ => (from, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division::tests::{picks, recorded, target_specs};
    use proptest::prelude::*;
    use serde_json::json;

    fn names(laid: &[(&str, u32)]) -> Vec<(String, u32)> {
        laid.iter().map(|(cluster, len)| ((*cluster).to_owned(), *len)).collect()
    }

    #[test]
    fn ranges_stay_where_they_are() {
        let two = [WeightedCluster::new("a").weighing(3), WeightedCluster::new("b").weighing(2)];
        let check = |total: u32,
                     members: &[WeightedCluster<'static>],
                     recorded: &[(&'static str, u32)],
                     expected: &[(&str, u32)]| {
            let laid = layout(total, "shop/db", members, recorded);
            assert_eq!(names(&laid), names(expected), "{total} over {members:?} from {recorded:?}");
        };
        check(5, &two, &[], &[("a", 3), ("b", 2)]);
        check(0, &two, &[("a", 3), ("b", 2)], &[("a", 0), ("b", 0)]);
        // The highest ordinals are removed first, on whichever target they are.
        check(4, &two, &[("a", 3), ("b", 2)], &[("a", 3), ("b", 1)]);
        check(2, &two, &[("a", 3), ("b", 2)], &[("a", 2), ("b", 0)]);
        // New ordinals are added at the end, though a's share would be greater.
        check(7, &two, &[("a", 3), ("b", 2)], &[("a", 3), ("b", 4)]);
        check(5, &two, &[("a", 1), ("b", 0)], &[("a", 3), ("b", 2)]);
        // Bounds are kept; ordinals that fit nowhere are pending.
        let bounded = [
            WeightedCluster { max: Some(3), ..WeightedCluster::new("a") },
            WeightedCluster { max: Some(3), ..WeightedCluster::new("b") },
        ];
        check(9, &bounded, &[("a", 2), ("b", 2)], &[("a", 2), ("b", 3)]);
        // A target leaves: one without ordinals takes its range, or a neighbour does.
        check(
            5,
            &[WeightedCluster::new("b"), WeightedCluster::new("c")],
            &[("a", 3), ("b", 2)],
            &[("c", 3), ("b", 2)],
        );
        check(5, &[WeightedCluster::new("b")], &[("a", 3), ("b", 2)], &[("b", 5)]);
        check(
            6,
            &[WeightedCluster::new("a"), WeightedCluster::new("c")],
            &[("a", 2), ("b", 2), ("c", 2)],
            &[("a", 4), ("c", 2)],
        );
        check(5, &[], &[("a", 3), ("b", 2)], &[]);
    }

    #[test]
    fn a_stateful_set_is_divided_by_its_ordinals() {
        let set = |spec: Value| json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec });
        let check = |spec: Value, over: &[(&str, u64)], from: &[(&str, i64)], expected: &[(&str, Value)]| {
            let found = target_specs(&set(spec.clone()), &picks(over), &recorded(from));
            let expected: Vec<_> =
                expected.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect();
            assert_eq!(found, expected, "{spec}");
        };
        let patch = |len: u32, start: u32| json!({ "replicas": len, "ordinals": { "start": start } });
        check(
            json!({ "replicas": 5 }),
            &[("a", 3), ("b", 2)],
            &[("a", 3), ("b", 2)],
            &[("a", patch(3, 0)), ("b", patch(2, 3))],
        );
        check(
            json!({ "replicas": 5, "ordinals": { "start": 10 } }),
            &[("a", 3), ("b", 2)],
            &[("a", 3), ("b", 2)],
            &[("a", patch(3, 10)), ("b", patch(2, 13))],
        );
        check(json!({ "replicas": 5 }), &[("a", 1)], &[], &[("a", json!({ "replicas": 5 }))]);
        // A partition refers to all ordinals: those below 4 keep the old template.
        let partitioned = |partition: u32| json!({ "rollingUpdate": { "partition": partition } });
        let with = |mut patch: Value, partition: u32| {
            patch["updateStrategy"] = partitioned(partition);
            patch
        };
        check(
            json!({ "replicas": 5, "updateStrategy": partitioned(4) }),
            &[("a", 3), ("b", 2)],
            &[("a", 3), ("b", 2)],
            &[("a", with(patch(3, 0), 3)), ("b", with(patch(2, 3), 1))],
        );
    }

    #[test]
    fn updates_go_from_the_highest_ordinal_down() {
        let range = |start, len| OrdinalRange { start, len };
        let next = |a: bool, b: bool| {
            next_to_update(&[("a", range(0, 3), a), ("b", range(3, 2), b), ("c", range(5, 0), false)])
        };
        assert_eq!((next(false, false), next(false, true), next(true, true)), (Some("b"), Some("a"), None));
    }

    #[test]
    fn a_range_is_handed_over_one_ordinal_at_a_time() {
        let range = |start, len| OrdinalRange { start, len };
        let (mut from, mut to) = (range(0, 3), range(3, 0));
        let mut story = Vec::new();
        while from.len > 0 || to.len < 3 {
            (from, to) = hand_over(from, to, false);
            assert_eq!(
                hand_over(from, to, false),
                (from, to),
                "the new target waits until the ordinal is deleted"
            );
            (from, to) = hand_over(from, to, true);
            story.push(((from.start, from.len), (to.start, to.len)));
        }
        assert_eq!(story, [((0, 2), (2, 1)), ((0, 1), (1, 2)), ((0, 0), (0, 3))]);
        assert_eq!(hand_over(from, to, true), (from, to));
    }

    proptest! {
        #[test]
        fn every_ordinal_has_one_target_and_keeps_it(
            totals in prop::collection::vec(0..30_u32, 1..8),
            weights in prop::collection::vec((1..9_u64, prop::option::of(0..12_u32)), 1..5),
        ) {
            const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
            let members: Vec<WeightedCluster> = NAMES.iter().zip(&weights)
                .map(|(name, (weight, max))| WeightedCluster { max: *max, ..WeightedCluster::new(name).weighing(*weight) }).collect();
            let mut recorded: Vec<(&str, u32)> = Vec::new();
            for total in totals {
                let laid = layout(total, "shop/db", &members, &recorded);
                let assigned: u32 = laid.iter().map(|(_, len)| len).sum();
                prop_assert!(assigned <= total);
                for (cluster, len) in &laid {
                    let member = members.iter().find(|member| member.cluster == *cluster).unwrap();
                    prop_assert!(*len <= member.most());
                }
                let owner = |laid: &[(&'static str, u32)], ordinal: u32| {
                    ranges(0, laid).iter().find(|(_, range)| (range.start..range.end()).contains(&ordinal)).map(|(name, _)| *name)
                };
                for ordinal in 0..30 {
                    let (before, after) = (owner(&recorded, ordinal), owner(&laid, ordinal));
                    prop_assert!(before.is_none() || after.is_none() || before == after, "{ordinal}: {recorded:?} {laid:?}");
                }
                recorded = laid;
            }
        }
    }
}
