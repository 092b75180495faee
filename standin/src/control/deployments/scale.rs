//! How large each ReplicaSet of a rollout should be.

use serde_json::Value;

use super::{MAX, Rollout, Sizes, size};
use crate::object::{annotation, count, text};

/// How many pods above and below the wanted number a rollout may go: `maxSurge` and `maxUnavailable`, in pods. A share
/// of surge is rounded up and one of absence down; if both come out as nothing, one pod may be missing, or it would
/// never move.
pub(super) fn bounds(deployment: &Value, wanted: i64) -> (i64, i64) {
    if text(deployment, "/spec/strategy/type") == "Recreate" || wanted == 0 {
        return (0, 0);
    }
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let surge = resolved(&rolling["maxSurge"], wanted, true);
    let unavailable = resolved(&rolling["maxUnavailable"], wanted, false);
    match (surge, unavailable) {
        (0, 0) => (0, 1),
        (surge, unavailable) => (surge, unavailable.min(wanted)),
    }
}

/// A number, or a share of `whole`; a quarter if nobody said.
pub(crate) fn resolved(value: &Value, whole: i64, up: bool) -> i64 {
    let percent = match value {
        Value::Number(number) => return number.as_i64().unwrap_or_default(),
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(25),
        _ => 25,
    };
    (whole * percent + if up { 99 } else { 0 }) / 100
}

/// The size of the new one: as many as wanted, as far as the surge allows.
pub(super) fn grown(rollout: &Rollout<'_>, now: i64) -> i64 {
    if now >= rollout.wanted {
        return rollout.wanted;
    }
    let all: i64 = rollout.sets().map(size).sum();
    let room = (rollout.wanted + rollout.surge - all).max(0);
    rollout.wanted.min(now + room)
}

/// Takes old ones down as far as enough pods stay available: first pods that do not work anyway, oldest set first.
pub(super) fn shrink(rollout: &Rollout<'_>, new: &Value, sizes: &mut Sizes) {
    let available = |set: &Value| count(set, "/status/availableReplicas");
    let least = rollout.wanted - rollout.unavailable;
    let all: i64 = rollout.sets().map(size).sum();
    let mut most = all - least - (size(new) - available(new));
    if most <= 0 {
        return;
    }
    for set in &rollout.old {
        let broken = (sizes.of(set) - available(set)).clamp(0, most);
        if broken > 0 {
            sizes.set(set, sizes.of(set) - broken);
            most -= broken;
        }
    }
    let sum: i64 = rollout.sets().map(available).sum();
    let mut spare = (sum - least).max(0);
    for set in &rollout.old {
        let step = sizes.of(set).min(spare);
        if step > 0 {
            sizes.set(set, sizes.of(set) - step);
            spare -= step;
        }
    }
}

/// Somebody changed the number while several ReplicaSets have pods: each changes by its share, so that the rollout
/// goes on from where it was.
pub(super) fn in_proportion(rollout: &Rollout<'_>, sizes: &mut Sizes) {
    let active: Vec<&Value> = rollout.sets().filter(|set| size(set) > 0).collect();
    if active.len() <= 1 {
        let only = active.first().copied().or(rollout.new).or(rollout.old.last().copied());
        return only.map_or((), |set| sizes.set(set, rollout.wanted));
    }
    if rollout.new.is_some_and(|new| is_saturated(rollout, new)) {
        return rollout.old.iter().for_each(|set| sizes.set(set, 0));
    }
    if rollout.is_recreate() {
        return;
    }
    let total: i64 = active.iter().map(|set| size(set)).sum();
    let whole = if rollout.wanted > 0 { rollout.wanted + rollout.surge } else { 0 };
    let change = whole - total;
    let mut sets = active;
    // The largest first; of equals the newer one grows first, and the older one shrinks first.
    sets.sort_by_key(|set| -size(set));
    if change > 0 {
        sets.reverse();
        sets.sort_by_key(|set| -size(set));
    }
    let mut given = 0;
    for set in &sets {
        let share = share(rollout, set, whole);
        let step = if change > 0 { share.clamp(0, change - given) } else { share.clamp(change - given, 0) };
        sizes.set(set, size(set) + step);
        given += step;
    }
    // What rounding has left goes to the first.
    if let Some(first) = sets.first().filter(|_| change != given) {
        sizes.set(first, sizes.of(first) + change - given);
    }
}

fn is_saturated(rollout: &Rollout<'_>, new: &Value) -> bool {
    size(new) == rollout.wanted && count(new, "/status/availableReplicas") == rollout.wanted
}

/// By how much one set changes so that it keeps its part of the whole.
fn share(rollout: &Rollout<'_>, set: &Value, whole: i64) -> i64 {
    if rollout.wanted == 0 {
        return -size(set);
    }
    let noted = annotation(set, MAX).and_then(|text| text.parse().ok());
    let before: i64 = noted.unwrap_or_else(|| count(rollout.deployment, "/status/replicas"));
    match before {
        0 => 0,
        // Rounded to the nearest.
        before => (2 * size(set) * whole + before) / (2 * before) - size(set),
    }
}
