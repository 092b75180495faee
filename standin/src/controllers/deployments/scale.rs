//! The replicas of each ReplicaSet of a rollout.

use serde_json::Value;

use super::{MAX, Rollout, Sizes, size};
use crate::objects::fields::{annotation, count, resolve_int_or_percent, text};

/// Returns `maxSurge` and `maxUnavailable` in pods. A percentage of surge is rounded up and one of unavailable pods
/// down. If both are 0, one pod may be unavailable, because the rollout could not progress otherwise.
pub(super) fn surge_and_unavailable(deployment: &Value, desired: i64) -> (i64, i64) {
    if text(deployment, "/spec/strategy/type") == "Recreate" || desired == 0 {
        return (0, 0);
    }
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let surge = resolve_int_or_percent(&rolling["maxSurge"], desired, true);
    let unavailable = resolve_int_or_percent(&rolling["maxUnavailable"], desired, false);
    match (surge, unavailable) {
        (0, 0) => (0, 1),
        (surge, unavailable) => (surge, unavailable.min(desired)),
    }
}

/// Returns the replicas of the new ReplicaSet: the desired number, as far as `maxSurge` allows.
pub(super) fn scaled_up(rollout: &Rollout<'_>, now: i64) -> i64 {
    if now >= rollout.desired {
        return rollout.desired;
    }
    let all: i64 = rollout.sets().map(size).sum();
    let headroom = (rollout.desired + rollout.surge - all).max(0);
    rollout.desired.min(now + headroom)
}

/// Scales old ReplicaSets down while enough pods stay available: first unhealthy pods, then the oldest ReplicaSet.
pub(super) fn scale_down_old(rollout: &Rollout<'_>, new: &Value, sizes: &mut Sizes) {
    let available = |set: &Value| count(set, "/status/availableReplicas");
    let min_available = rollout.desired - rollout.unavailable;
    let all: i64 = rollout.sets().map(size).sum();
    let mut removable = all - min_available - (size(new) - available(new));
    if removable <= 0 {
        return;
    }
    for set in &rollout.old {
        let unhealthy = (sizes.of(set) - available(set)).clamp(0, removable);
        if unhealthy > 0 {
            sizes.set(set, sizes.of(set) - unhealthy);
            removable -= unhealthy;
        }
    }
    let total_available: i64 = rollout.sets().map(available).sum();
    let mut spare = (total_available - min_available).max(0);
    for set in &rollout.old {
        let step = sizes.of(set).min(spare);
        if step > 0 {
            sizes.set(set, sizes.of(set) - step);
            spare -= step;
        }
    }
}

/// Scales a Deployment whose desired number changed while several ReplicaSets have pods: each changes in proportion to
/// its size, so that the rollout continues from where it was.
pub(super) fn scale_proportionally(rollout: &Rollout<'_>, sizes: &mut Sizes) {
    let active: Vec<&Value> = rollout.sets().filter(|set| size(set) > 0).collect();
    if active.len() <= 1 {
        let only = active.first().copied().or(rollout.new).or(rollout.old.last().copied());
        return only.map_or((), |set| sizes.set(set, rollout.desired));
    }
    if rollout.new.is_some_and(|new| is_saturated(rollout, new)) {
        return rollout.old.iter().for_each(|set| sizes.set(set, 0));
    }
    if rollout.is_recreate() {
        return;
    }
    let total: i64 = active.iter().map(|set| size(set)).sum();
    let target_total = if rollout.desired > 0 { rollout.desired + rollout.surge } else { 0 };
    let change = target_total - total;
    let mut sets = active;
    // The largest first. Among equal ones, the newer is first when scaling up and the older when scaling down.
    sets.sort_by_key(|set| -size(set));
    if change > 0 {
        sets.reverse();
        sets.sort_by_key(|set| -size(set));
    }
    let mut distributed = 0;
    for set in &sets {
        let change_of_set = proportion(rollout, set, target_total);
        let step = match change > 0 {
            true => change_of_set.clamp(0, change - distributed),
            false => change_of_set.clamp(change - distributed, 0),
        };
        sizes.set(set, size(set) + step);
        distributed += step;
    }
    // The first ReplicaSet gets the remainder of the rounding.
    if let Some(first) = sets.first().filter(|_| change != distributed) {
        sizes.set(first, sizes.of(first) + change - distributed);
    }
}

fn is_saturated(rollout: &Rollout<'_>, new: &Value) -> bool {
    size(new) == rollout.desired && count(new, "/status/availableReplicas") == rollout.desired
}

/// Returns the change of one ReplicaSet that keeps its proportion of the total.
fn proportion(rollout: &Rollout<'_>, set: &Value, target_total: i64) -> i64 {
    if rollout.desired == 0 {
        return -size(set);
    }
    let recorded = annotation(set, MAX).and_then(|text| text.parse().ok());
    let before: i64 = recorded.unwrap_or_else(|| count(rollout.deployment, "/status/replicas"));
    match before {
        0 => 0,
        // Rounded to the nearest integer.
        before => (2 * size(set) * target_total + before) / (2 * before) - size(set),
    }
}
