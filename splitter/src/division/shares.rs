//! Divides a number over clusters.
//!
//! ```text
//!   10 over 170 : 110 : 60   ──►   5 / 3 / 2
//! ```
//!
//! Bounded Webster (Sainte-Laguë): every cluster has its minimum; then one replica at a time goes to the cluster with
//! the greatest `weight / (2·share + 1)` among those below their bounds. Ties go to the cluster with the smaller share,
//! then to the one that a hash of the workload's and the cluster's name prefers. With this method one more replica in
//! total takes none away from any cluster, a heavier weight never yields less, and a cluster that leaves hands over its
//! share and nothing else.
//!
//! Integers only, compared by cross-multiplication. Replicas that fit nowhere are *pending*: they are counted, never
//! dropped.

use std::cmp::Ordering;

use api::meta::hash::hash;

/// A cluster that may get a share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WeightedCluster<'a> {
    pub cluster: &'a str,
    /// 0 excludes the cluster, whatever its minimum.
    pub weight: u64,
    pub min: u32,
    /// The maximum of the policy.
    pub max: Option<u32>,
    /// How many replicas fit. None: unknown, and not a bound.
    pub capacity: Option<u32>,
}

impl<'a> WeightedCluster<'a> {
    /// With weight 1 and no bounds.
    pub fn new(cluster: &'a str) -> WeightedCluster<'a> {
        WeightedCluster { cluster, weight: 1, min: 0, max: None, capacity: None }
    }

    /// Keeps its share: a cordoned or briefly silent cluster neither gains nor loses.
    pub fn held(cluster: &'a str, share: u32) -> WeightedCluster<'a> {
        WeightedCluster { cluster, weight: 1, min: share, max: Some(share), capacity: None }
    }

    pub fn weighing(self, weight: u64) -> WeightedCluster<'a> {
        WeightedCluster { weight, ..self }
    }

    pub(crate) fn most(&self) -> u32 {
        let bound = self.max.unwrap_or(u32::MAX).min(self.capacity.unwrap_or(u32::MAX));
        if self.weight == 0 { 0 } else { bound }
    }

    fn least(&self) -> u32 {
        self.min.min(self.most())
    }
}

/// The shares in the order of the clusters, and how many fit nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    pub of: Vec<u32>,
    pub pending: u32,
}

/// Divides `total`. The key (`namespace/name`) decides ties, so that not every app prefers the same cluster.
pub fn divide(total: u32, key: &str, members: &[WeightedCluster]) -> Shares {
    let clusters: Vec<BoundedWeight> = members.iter().map(|member| BoundedWeight::of(member, key)).collect();
    let least: u64 = clusters.iter().map(|cluster| u64::from(cluster.least)).sum();
    let of = match least > u64::from(total) {
        // The minimums cannot be met: they become the weights, and no cluster gets more than its minimum.
        true => distribute(total, &clusters.iter().map(BoundedWeight::scaled).collect::<Vec<_>>()),
        false => distribute(total, &clusters),
    };
    let assigned: u64 = of.iter().map(|share| u64::from(*share)).sum();
    let pending = u64::from(total) - assigned;
    Shares { of, pending: u32::try_from(pending).expect("no more than the total is pending") }
}

/// The weight and the bounds of a cluster.
struct BoundedWeight {
    weight: u64,
    least: u32,
    most: u32,
    tie: u64,
}

impl BoundedWeight {
    fn of(member: &WeightedCluster, key: &str) -> BoundedWeight {
        let tie = hash(&[key, member.cluster]);
        BoundedWeight { weight: member.weight, least: member.least(), most: member.most(), tie }
    }

    fn scaled(&self) -> BoundedWeight {
        BoundedWeight { weight: u64::from(self.least), least: 0, most: self.least, tie: self.tie }
    }

    /// The share of this cluster once all have what comes at `weight / (2·share + 1) ≥ heaviest / level` or before.
    fn at(&self, level: u128, heaviest: u64) -> u32 {
        let earned = match u128::from(self.weight).checked_mul(level) {
            Some(product) => (product / u128::from(heaviest)).div_ceil(2),
            None => u128::MAX,
        };
        u32::try_from(earned).unwrap_or(u32::MAX).clamp(self.least, self.most)
    }
}

/// Assigns one replica at a time; those that certainly come first are assigned at once, so that two billion take no
/// longer than two.
fn distribute(total: u32, clusters: &[BoundedWeight]) -> Vec<u32> {
    let heaviest = clusters.iter().map(|cluster| cluster.weight).max().unwrap_or_default().max(1);
    let mut shares = at_level(total, heaviest, clusters);
    let assigned: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    for _ in assigned..u64::from(total) {
        let open = (0..clusters.len()).filter(|at| shares[*at] < clusters[*at].most);
        let Some(first) = open.min_by(|a, b| order(&clusters[*a], shares[*a], &clusters[*b], shares[*b]))
        else {
            break;
        };
        shares[first] += 1;
    }
    shares
}

/// The shares at the highest level that gives out at most the total. The next level gives each cluster at most one more,
/// because none is heavier than the heaviest; so fewer replicas than clusters are left to give.
fn at_level(total: u32, heaviest: u64, clusters: &[BoundedWeight]) -> Vec<u32> {
    let at =
        |level: u128| -> Vec<u32> { clusters.iter().map(|cluster| cluster.at(level, heaviest)).collect() };
    let fits = |level: u128| at(level).iter().map(|share| u64::from(*share)).sum::<u64>() <= u64::from(total);
    // At the highest level even a cluster of weight 1 has earned more than any total.
    let (mut low, mut high) = (0, u128::from(heaviest) << 34);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    if fits(high) { at(high) } else { at(low) }
}

/// Orders clusters by who gets the next replica.
fn order(a: &BoundedWeight, a_has: u32, b: &BoundedWeight, b_has: u32) -> Ordering {
    let priority =
        |cluster: &BoundedWeight, other: u32| u128::from(cluster.weight) * (2 * u128::from(other) + 1);
    priority(b, a_has).cmp(&priority(a, b_has)).then(a_has.cmp(&b_has)).then(a.tie.cmp(&b.tie))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    fn weighing(weights: &[u64]) -> Vec<WeightedCluster<'static>> {
        NAMES.iter().zip(weights).map(|(name, weight)| WeightedCluster::new(name).weighing(*weight)).collect()
    }

    #[test]
    fn replicas_are_divided_by_weight_and_bounds() {
        let check = |total: u32, members: &[WeightedCluster], expected: &[u32]| {
            let shares = divide(total, "shop/web", members);
            assert_eq!((shares.of.as_slice(), shares.pending), (expected, 0), "{total} over {members:?}");
        };
        let three = weighing(&[170, 110, 60]);
        check(0, &three, &[0, 0, 0]);
        check(1, &three, &[1, 0, 0]);
        check(2, &three, &[1, 1, 0]);
        check(3, &three, &[1, 1, 1]);
        check(4, &three, &[2, 1, 1]);
        check(5, &three, &[2, 2, 1]);
        check(6, &three, &[3, 2, 1]);
        check(7, &three, &[4, 2, 1]);
        check(8, &three, &[4, 3, 1]);
        check(9, &three, &[4, 3, 2]);
        check(10, &three, &[5, 3, 2]);
        check(12, &three, &[6, 4, 2]);
        check(13, &three, &[7, 4, 2]);
        check(2, &weighing(&[2, 1]), &[1, 1]);
        check(9, &weighing(&[1, 3]), &[2, 7]);
        // A tie goes to the cluster with the smaller share.
        check(2, &weighing(&[3, 1]), &[1, 1]);
        check(2, &weighing(&[1, 3]), &[1, 1]);
        check(12, &weighing(&[6, 12, 18]), &[2, 4, 6]);
        let [a, b, c] = [WeightedCluster::new("a"), WeightedCluster::new("b"), WeightedCluster::new("c")];
        check(10, &[WeightedCluster { max: Some(2), ..a }, b, WeightedCluster { min: 1, ..c }], &[2, 4, 4]);
    }

    #[test]
    fn minimums_that_cannot_be_met_are_scaled_and_balanced() {
        let four = |name| WeightedCluster { min: 4, ..WeightedCluster::new(name) };
        let mut shares = divide(5, "shop/web", &[four("a"), four("b")]).of;
        shares.sort_unstable();
        assert_eq!(shares, [2, 3]);
        let shares =
            divide(3, "shop/web", &[WeightedCluster { min: 8, ..WeightedCluster::new("a") }, four("b")]).of;
        assert_eq!(shares, [2, 1]);
    }

    #[test]
    fn replicas_that_fit_nowhere_are_pending() {
        let two = |name| WeightedCluster { max: Some(2), ..WeightedCluster::new(name) };
        assert_eq!(divide(7, "shop/web", &[two("a"), two("b")]), Shares { of: vec![2, 2], pending: 3 });
        assert_eq!(divide(7, "shop/web", &[]), Shares { of: vec![], pending: 7 });
        let excluded = WeightedCluster { min: 3, ..WeightedCluster::new("a") }.weighing(0);
        assert_eq!(divide(7, "shop/web", &[excluded]), Shares { of: vec![0], pending: 7 });
    }

    /// Karmada let a cordoned cluster's replicas go when the total was raised (1640), and gave it more of them when another
    /// one left (6951). Here it keeps its share when the total grows or shrinks.
    #[test]
    fn a_held_cluster_neither_gains_nor_loses() {
        let members = [WeightedCluster::held("a", 3), WeightedCluster::new("b"), WeightedCluster::new("c")];
        let check = |total, expected: [u32; 3]| {
            assert_eq!(divide(total, "shop/web", &members).of, expected, "{total}");
        };
        for total in [3, 5, 9, 100] {
            assert_eq!(divide(total, "shop/web", &members).of[0], 3, "{total}");
        }
        check(9, [3, 3, 3]);
        check(3, [3, 0, 0]);
        check(2, [2, 0, 0]);
        assert_eq!(divide(9, "shop/web", &members[..2]).of, [3, 6]);
    }

    #[test]
    fn billions_are_divided_as_fast_as_ten() {
        let shares = divide(u32::MAX, "shop/web", &weighing(&[1, u64::MAX, 7]));
        assert_eq!(shares.of, [0, u32::MAX, 0]);
        let shares = divide(u32::MAX, "shop/web", &weighing(&[1, 1, 1]));
        assert_eq!((shares.pending, shares.of), (0, vec![u32::MAX / 3; 3]));
        let bounded = WeightedCluster { max: Some(5), ..WeightedCluster::new("b").weighing(u64::MAX) };
        assert_eq!(divide(u32::MAX, "x", &[WeightedCluster::new("a"), bounded]).of, [u32::MAX - 5, 5]);
    }

    #[test]
    fn not_every_app_prefers_the_same_cluster() {
        let winners: std::collections::BTreeSet<usize> = (0..20)
            .filter_map(|app| {
                divide(1, &format!("shop/{app}"), &weighing(&[1, 1])).of.iter().position(|s| *s == 1)
            })
            .collect();
        assert_eq!(winners.len(), 2);
    }

    fn member() -> impl Strategy<Value = (u64, u32, Option<u32>, Option<u32>)> {
        let bound = || prop::option::weighted(0.3, 0..20_u32);
        (prop_oneof![4 => 0..200_u64, 1 => any::<u64>()], prop_oneof![Just(0), 0..9_u32], bound(), bound())
    }

    fn members() -> impl Strategy<Value = Vec<WeightedCluster<'static>>> {
        prop::collection::vec(member(), 0..NAMES.len()).prop_map(|rows| {
            let named = NAMES.iter().zip(rows);
            named
                .map(|(cluster, (weight, min, max, capacity))| WeightedCluster {
                    cluster,
                    weight,
                    min,
                    max,
                    capacity,
                })
                .collect()
        })
    }

    /// The definition, word by word.
    fn one_at_a_time(total: u32, members: &[WeightedCluster]) -> Vec<u32> {
        let mut clusters: Vec<BoundedWeight> =
            members.iter().map(|member| BoundedWeight::of(member, "shop/web")).collect();
        if clusters.iter().map(|cluster| cluster.least).sum::<u32>() > total {
            clusters = clusters.iter().map(BoundedWeight::scaled).collect();
        }
        let mut shares: Vec<u32> = clusters.iter().map(|cluster| cluster.least).collect();
        for _ in shares.iter().sum::<u32>()..total {
            let open = (0..clusters.len()).filter(|at| shares[*at] < clusters[*at].most);
            match open.min_by(|a, b| order(&clusters[*a], shares[*a], &clusters[*b], shares[*b])) {
                Some(first) => shares[first] += 1,
                None => break,
            }
        }
        shares
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_bound_is_passed(total in 0..60_u32, members in members()) {
            let shares = divide(total, "shop/web", &members);
            prop_assert_eq!(shares.of.iter().sum::<u32>() + shares.pending, total);
            for (share, member) in shares.of.iter().zip(&members) {
                prop_assert!(*share <= member.max.unwrap_or(u32::MAX) && *share <= member.capacity.unwrap_or(u32::MAX));
                prop_assert!(member.weight > 0 || *share == 0);
            }
            prop_assert_eq!(&shares, &divide(total, "shop/web", &members), "deterministic");
            prop_assert_eq!(shares.of, one_at_a_time(total, &members), "as defined");
        }

        #[test]
        fn one_more_replica_reduces_no_share(total in 0..60_u32, members in members()) {
            let (before, after) = (divide(total, "shop/web", &members), divide(total + 1, "shop/web", &members));
            prop_assert!(before.of.iter().zip(&after.of).all(|(before, after)| before <= after), "{before:?} {after:?}");
        }

        #[test]
        fn a_heavier_weight_never_yields_less(total in 0..60_u32, members in members(), at in 0..6_usize, more in 1..100_u64) {
            prop_assume!(at < members.len());
            let mut heavier = members.clone();
            heavier[at].weight = heavier[at].weight.saturating_add(more);
            let (before, after) = (divide(total, "shop/web", &members), divide(total, "shop/web", &heavier));
            prop_assert!(after.of[at] >= before.of[at], "{before:?} {after:?}");
        }

        #[test]
        fn a_cluster_that_leaves_hands_over_its_share_and_nothing_else(total in 0..60_u32, members in members(), at in 0..6_usize) {
            prop_assume!(at < members.len());
            let before = divide(total, "shop/web", &members);
            let mut rest = members.clone();
            rest.remove(at);
            let after = divide(total, "shop/web", &rest);
            let mut kept = before.of.clone();
            let left = kept.remove(at);
            prop_assert!(kept.iter().zip(&after.of).all(|(before, after)| before <= after), "{before:?} {after:?}");
            let gained: u32 = after.of.iter().sum::<u32>() - kept.iter().sum::<u32>();
            prop_assert_eq!(gained + after.pending - before.pending, left);
        }
    }
}
