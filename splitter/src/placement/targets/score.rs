//! The free capacity of a cluster, compared with the others.
//!
//! The score is its share of all free capacity, in thousandths, of processors and memory equally: 500 means that it has
//! half of the free capacity of the fleet. A cluster of unknown capacity counts as an average one.

use super::evaluate::EvaluatedCluster;

const COMPARED: [&str; 2] = ["cpu", "memory"];

/// Scores the clusters that may be chosen, against each other.
pub(super) fn assign(evaluated: &mut [EvaluatedCluster]) {
    let scores: Vec<Option<u64>> = evaluated.iter().map(|one| of(one, evaluated)).collect();
    let known: Vec<u64> = scores.iter().flatten().copied().collect();
    let average = known.iter().sum::<u64>().checked_div(known.len() as u64).unwrap_or_default();
    for (one, score) in evaluated.iter_mut().zip(scores) {
        one.score = one.is_open().then_some(score.unwrap_or(average));
    }
}

fn of(one: &EvaluatedCluster, all: &[EvaluatedCluster]) -> Option<u64> {
    let free = one.free.as_ref().filter(|_| one.is_open())?;
    let share_of_total = |resource: &&str| {
        let of_all = all.iter().filter(|other| other.is_open());
        let total: i128 = of_all.filter_map(|other| other.free.as_ref()?.get(*resource)).sum();
        Some((free.get(*resource)? * 1_000).checked_div(total).unwrap_or_default())
    };
    let shares: Vec<i128> = COMPARED.iter().filter_map(share_of_total).collect();
    let average = shares.iter().sum::<i128>().checked_div(shares.len() as i128)?;
    u64::try_from(average).ok()
}
