//! Checks the events of one watch: Ordered, Unique, Reliable, Bookmarkable.

use std::collections::HashSet;

use super::super::WatchHistory;
use super::Violation;
use super::log::Log;
use crate::store::Revision;

pub(super) fn check(watched: &WatchHistory, log: &Log) -> Vec<Violation> {
    let mut violations = delivered(watched);
    violations.extend(missed(watched, log));
    let stuck = watched.stuck_before.map(|goal| Violation::Stuck { at: watched.through(), goal });
    violations.extend(stuck);
    violations
}

/// Checks the events in the order in which they were delivered.
fn delivered(watched: &WatchHistory) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen = HashSet::new();
    let (mut newest, mut claimed) = (watched.after, watched.after);
    for (_, batch) in &watched.batches {
        for event in &batch.events {
            let (event, revision) = (event.clone(), event.revision);
            if !watched.range.contains(event.key.as_bytes()) {
                violations.push(Violation::OutOfRange { event });
            } else if !seen.insert(revision) {
                violations.push(Violation::Duplicated { event });
            } else if revision <= newest {
                violations.push(Violation::Reordered { event, newer: newest });
            } else if revision <= claimed {
                violations.push(Violation::Outrun { event, claimed });
            }
            newest = newest.max(revision);
        }
        if batch.through < claimed.max(newest) {
            violations.push(Violation::WentBack { claimed: claimed.max(newest), now: batch.through });
        }
        claimed = claimed.max(batch.through);
    }
    violations
}

/// Checks that no event up to the revision where the watch claimed to be complete is missing. The witness was read to
/// the end, so no event at all may be missing there.
fn missed(watched: &WatchHistory, log: &Log) -> Vec<Violation> {
    let seen: HashSet<Revision> =
        watched.batches.iter().flat_map(|(_, batch)| &batch.events).map(|event| event.revision).collect();
    let end = if watched.witness { Revision(u64::MAX) } else { watched.through() };
    let expected = log.after(watched.after).take_while(|event| event.revision <= end);
    let missed = expected
        .filter(|event| watched.range.contains(event.key.as_bytes()) && !seen.contains(&event.revision))
        .map(|event| match watched.witness && log.is_acknowledged(event) {
            true => Violation::LostWrite { event: event.clone() },
            false => Violation::Missed { event: event.clone() },
        });
    missed.collect()
}
