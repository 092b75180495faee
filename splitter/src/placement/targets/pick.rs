//! Chooses among the clusters that are open: those it runs on first, then evenly over groups, then by free capacity.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::fleet::{Division, PlacementSpec, Spread};

use super::evaluate::EvaluatedCluster;
use super::{Extent, PlacementRequest};

/// The chosen clusters, as tier and index in `judged`. A later tier is used only while the earlier ones lack capacity,
/// so it is left first when they have enough again.
pub(super) fn tiers(
    spec: &PlacementSpec,
    work: &PlacementRequest,
    judged: &[EvaluatedCluster],
) -> Vec<(usize, usize)> {
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    for tier in 0..=spec.fallback_groups.len() {
        // A target that no tier selects any more, because a label changed, counts as first tier.
        let here = |one: &EvaluatedCluster| one.tier.unwrap_or_default() == tier && one.is_open();
        let open: Vec<usize> = (0..judged.len()).filter(|at| here(&judged[*at])).collect();
        let found: Vec<(usize, usize)> =
            within(spec, work, judged, &open).into_iter().map(|at| (tier, at)).collect();
        if work.extent == Extent::Single && !chosen.is_empty() {
            // A single target is moved to a later tier only if that has enough capacity.
            if !found.is_empty() && holds(spec, work, judged, &found) {
                return found;
            }
            continue;
        }
        chosen.extend(found);
        if !chosen.is_empty() && holds(spec, work, judged, &chosen) {
            break;
        }
    }
    chosen
}

/// Whether the chosen clusters have enough capacity. Unknown capacity counts as enough.
fn holds(
    spec: &PlacementSpec,
    work: &PlacementRequest,
    judged: &[EvaluatedCluster],
    chosen: &[(usize, usize)],
) -> bool {
    let capacities = || chosen.iter().map(|(_, at)| judged[*at].capacity);
    let whole = work.extent != Extent::Divided || spec.division == Division::Duplicate;
    match whole {
        true => capacities().all(|capacity| capacity.is_none_or(|capacity| capacity >= work.replicas)),
        false => {
            let room = |capacity: Option<u32>| capacity.map_or(u64::MAX, u64::from);
            capacities().map(room).fold(0, u64::saturating_add) >= u64::from(work.replicas)
        }
    }
}

/// Chooses as many of the open clusters as the policy says, one at a time.
fn within(
    spec: &PlacementSpec,
    work: &PlacementRequest,
    judged: &[EvaluatedCluster],
    open: &[usize],
) -> Vec<usize> {
    let number = number(spec, work);
    let mut groups = Groups::new(&spec.spread, judged, open);
    let mut chosen: Vec<usize> = Vec::new();
    while chosen.len() < number {
        let left = number - chosen.len();
        let fitting = open.iter().filter(|at| !chosen.contains(at) && groups.admit(**at, left));
        let best = fitting.min_by_key(|at| {
            let one = &judged[**at];
            (one.stays.is_none(), groups.taken(**at), !one.beside, one.avoided, Reverse(one.score), one.tie)
        });
        let Some(best) = best else { break };
        groups.take(*best);
        chosen.push(*best);
    }
    if groups.are_enough() { chosen } else { Vec::new() }
}

/// The largest number of clusters.
pub(super) fn number(spec: &PlacementSpec, work: &PlacementRequest) -> usize {
    let asked = spec.number_of_clusters.map(|number| usize::try_from(number).unwrap_or_default());
    let possible = (work.extent == Extent::Single).then_some(1);
    asked.into_iter().chain(possible).min().unwrap_or(usize::MAX)
}

/// How many clusters were chosen of each group, for every spread constraint.
struct Groups<'a> {
    constraints: Vec<SpreadConstraint<'a>>,
}

struct SpreadConstraint<'a> {
    spread: &'a Spread,
    /// The group each open cluster is in.
    of: BTreeMap<usize, &'a str>,
    taken: BTreeMap<&'a str, u64>,
}

impl<'a> Groups<'a> {
    fn new(spread: &'a [Spread], judged: &'a [EvaluatedCluster], open: &[usize]) -> Groups<'a> {
        let constraint = |spread: &'a Spread| {
            let label = |at: &usize| judged[*at].candidate.cluster.metadata.labels.get(&spread.label);
            let of: BTreeMap<usize, &str> =
                open.iter().filter_map(|at| Some((*at, label(at)?.as_str()))).collect();
            let taken = of.values().map(|group| (*group, 0)).collect();
            SpreadConstraint { spread, of, taken }
        };
        Groups { constraints: spread.iter().map(constraint).collect() }
    }

    /// Whether the constraints allow one more, with this many left to choose.
    fn admit(&self, at: usize, left: usize) -> bool {
        self.constraints.iter().all(|constraint| constraint.admits(at, left as u64))
    }

    fn taken(&self, at: usize) -> u64 {
        let taken = |constraint: &SpreadConstraint| {
            constraint.of.get(&at).and_then(|group| constraint.taken.get(group)).copied()
        };
        self.constraints.iter().filter_map(taken).sum()
    }

    fn take(&mut self, at: usize) {
        for constraint in &mut self.constraints {
            if let Some(taken) = constraint.of.get(&at).and_then(|group| constraint.taken.get_mut(group)) {
                *taken += 1;
            }
        }
    }

    fn are_enough(&self) -> bool {
        self.constraints
            .iter()
            .all(|constraint| constraint.used() >= count(constraint.spread.min_groups).unwrap_or_default())
    }
}

impl SpreadConstraint<'_> {
    fn used(&self) -> u64 {
        self.taken.values().filter(|taken| **taken > 0).count() as u64
    }

    fn admits(&self, at: usize, left: u64) -> bool {
        let Some(taken) = self.of.get(&at).and_then(|group| self.taken.get(group)) else { return false };
        let is_new = *taken == 0;
        let missing = count(self.spread.min_groups).unwrap_or_default().saturating_sub(self.used());
        let least = self.taken.values().min().copied().unwrap_or_default();
        let fits_groups = !is_new || count(self.spread.max_groups).is_none_or(|max| self.used() < max);
        // With a maximum of groups, the unused ones stay unused, and do not count for the skew.
        let least = match count(self.spread.max_groups) {
            Some(max) if self.used() >= max => {
                self.taken.values().filter(|taken| **taken > 0).min().copied().unwrap_or_default()
            }
            _ => least,
        };
        let fits_skew = count(self.spread.max_skew).is_none_or(|skew| taken + 1 - least.min(*taken) <= skew);
        fits_groups && fits_skew && (is_new || left > missing)
    }
}

fn count(number: Option<i64>) -> Option<u64> {
    number.map(|number| u64::try_from(number).unwrap_or_default())
}
