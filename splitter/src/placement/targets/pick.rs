//! Chooses among the clusters that are open: those it runs on first, then evenly over groups, then by free capacity.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::fleet::{Division, PlacementSpec, Spread};

use super::evaluate::EvaluatedCluster;
use super::{Extent, PlacementRequest};

/// The chosen clusters, as tier and index in `evaluated`. A later tier is used only while the earlier ones lack capacity,
/// so it is the first to be released once they have enough.
pub(super) fn tiers(
    spec: &PlacementSpec,
    request: &PlacementRequest,
    evaluated: &[EvaluatedCluster],
) -> Vec<(usize, usize)> {
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    for tier in 0..=spec.fallback_groups.len() {
        // A target that no tier selects any more, because a label changed, counts as first tier.
        let here = |one: &EvaluatedCluster| one.tier.unwrap_or_default() == tier && one.is_open();
        let open: Vec<usize> = (0..evaluated.len()).filter(|at| here(&evaluated[*at])).collect();
        let found: Vec<(usize, usize)> =
            within(spec, request, evaluated, &open).into_iter().map(|at| (tier, at)).collect();
        if request.extent == Extent::Single && !chosen.is_empty() {
            // A single target is moved to a later tier only if that has enough capacity.
            if !found.is_empty() && has_capacity(spec, request, evaluated, &found) {
                return found;
            }
            continue;
        }
        chosen.extend(found);
        if !chosen.is_empty() && has_capacity(spec, request, evaluated, &chosen) {
            break;
        }
    }
    chosen
}

/// Whether the chosen clusters have enough capacity. Unknown capacity counts as enough.
fn has_capacity(
    spec: &PlacementSpec,
    request: &PlacementRequest,
    evaluated: &[EvaluatedCluster],
    chosen: &[(usize, usize)],
) -> bool {
    let capacities = || chosen.iter().map(|(_, at)| evaluated[*at].capacity);
    let is_whole = request.extent != Extent::Divided || spec.division == Division::Duplicate;
    match is_whole {
        true => capacities().all(|capacity| capacity.is_none_or(|capacity| capacity >= request.replicas)),
        false => {
            let capacity_or_max = |capacity: Option<u32>| capacity.map_or(u64::MAX, u64::from);
            capacities().map(capacity_or_max).fold(0, u64::saturating_add) >= u64::from(request.replicas)
        }
    }
}

/// Chooses as many of the open clusters as the policy allows, one at a time.
fn within(
    spec: &PlacementSpec,
    request: &PlacementRequest,
    evaluated: &[EvaluatedCluster],
    open: &[usize],
) -> Vec<usize> {
    let number = number(spec, request);
    let mut groups = SpreadGroups::new(&spec.spread, evaluated, open);
    let mut chosen: Vec<usize> = Vec::new();
    while chosen.len() < number {
        let left = number - chosen.len();
        let fitting = open.iter().filter(|at| !chosen.contains(at) && groups.allows(**at, left));
        let best = fitting.min_by_key(|at| {
            let one = &evaluated[**at];
            (
                one.current_share.is_none(),
                groups.taken(**at),
                !one.beside,
                one.avoided,
                Reverse(one.score),
                one.tie,
            )
        });
        let Some(best) = best else { break };
        groups.take(*best);
        chosen.push(*best);
    }
    if groups.are_enough() { chosen } else { Vec::new() }
}

/// The largest number of clusters.
pub(super) fn number(spec: &PlacementSpec, request: &PlacementRequest) -> usize {
    let requested = spec.number_of_clusters.map(|number| usize::try_from(number).unwrap_or_default());
    let possible = (request.extent == Extent::Single).then_some(1);
    requested.into_iter().chain(possible).min().unwrap_or(usize::MAX)
}

/// How many clusters were chosen of each group, for every spread constraint.
struct SpreadGroups<'a> {
    constraints: Vec<SpreadConstraint<'a>>,
}

struct SpreadConstraint<'a> {
    spread: &'a Spread,
    /// The group each open cluster is in.
    of: BTreeMap<usize, &'a str>,
    taken: BTreeMap<&'a str, u64>,
}

impl<'a> SpreadGroups<'a> {
    fn new(spread: &'a [Spread], evaluated: &'a [EvaluatedCluster], open: &[usize]) -> SpreadGroups<'a> {
        let constraint = |spread: &'a Spread| {
            let label = |at: &usize| evaluated[*at].candidate.cluster.metadata.labels.get(&spread.label);
            let of: BTreeMap<usize, &str> =
                open.iter().filter_map(|at| Some((*at, label(at)?.as_str()))).collect();
            let taken = of.values().map(|group| (*group, 0)).collect();
            SpreadConstraint { spread, of, taken }
        };
        SpreadGroups { constraints: spread.iter().map(constraint).collect() }
    }

    /// Whether the constraints allow one more, with this many left to choose.
    fn allows(&self, at: usize, left: usize) -> bool {
        self.constraints.iter().all(|constraint| constraint.allows(at, left as u64))
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

    fn allows(&self, at: usize, left: u64) -> bool {
        let Some(taken) = self.of.get(&at).and_then(|group| self.taken.get(group)) else { return false };
        let is_new = *taken == 0;
        let missing = count(self.spread.min_groups).unwrap_or_default().saturating_sub(self.used());
        let least = self.taken.values().min().copied().unwrap_or_default();
        let fits_groups = !is_new || count(self.spread.max_groups).is_none_or(|max| self.used() < max);
        // With a maximum of groups, the others are never used, and do not count for the skew.
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
