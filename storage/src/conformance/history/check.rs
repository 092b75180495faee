//! Checks a recorded run.
//!
//! Linearizability is hard to check in general, because the order of writes must be guessed. Here it need not be:
//! revisions are the order. So it is enough to put all writes in that order and to check each call:
//!
//! * real time: a call that begins after a revision was observed writes a newer one, or reads at least that one;
//! * expectations: every write found what it expected, every conflict did not;
//! * reads: every result is the state at its revision;
//! * watches: every write is delivered once and in order, nothing else is, and nothing after the watch was complete.

mod log;
#[cfg(test)]
mod tests;
mod watched;

use super::{Call, History, Instant, Operation, Outcome};
use crate::range::Key;
use crate::store::{At, Change, Entry, Event, Revision};
use log::Log;

/// A violated guarantee, with its evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// An acknowledged write is not in the history.
    LostWrite { event: Event },
    /// This write was not requested, or its writer got an error that excludes it.
    Phantom { event: Event },
    /// Two different writes have one revision.
    ReusedRevision { one: Event, other: Event },
    /// The result of a commit does not fit the request.
    WrongAnswer { request: String, event: Event },
    /// The write replaced another entry than the one before it: a lost update.
    WrongPrevious { event: Event, really: Option<Entry> },
    /// A write got a revision that a client had already observed as past when it began.
    WrittenIntoThePast { event: Event, observed: Revision },
    /// A read, or the current entry in a conflict, is older than what had been observed when the call began.
    StaleRead { read: Revision, observed: Revision, operation: String },
    /// A read returned something else than the state at its revision.
    WrongRead { key: Key, read: At<Option<Entry>>, really: Option<Entry> },
    /// A write conflicted although the entry in the conflict meets its expectation.
    FalseConflict { reported: At<Option<Entry>>, request: String },
    /// Watch: an event was delivered again.
    Duplicated { event: Event },
    /// Watch: an event was delivered after a newer one.
    Reordered { event: Event, newer: Revision },
    /// Watch: an event was never delivered, although the watch claimed to be complete beyond it.
    Missed { event: Event },
    /// Watch: an event was delivered after the watch claimed to be complete beyond it.
    Outrun { event: Event, claimed: Revision },
    /// Watch: it claimed to be complete up to `claimed`, and later only up to `now`.
    WentBack { claimed: Revision, now: Revision },
    /// Watch: an event has a key outside the watched range.
    OutOfRange { event: Event },
    /// Watch: it stopped at `at`, although there were more events.
    Stuck { at: Revision, goal: Revision },
}

pub(super) fn check(history: &History) -> Vec<Violation> {
    let (log, mut violations) = Log::of(history);
    violations.extend(log.chain());
    violations.extend(real_time(history, &log));
    violations.extend(history.calls.iter().flat_map(|call| answer(call, &log)));
    violations.extend(history.watches.iter().flat_map(|watched| watched::check(watched, &log)));
    violations
}

/// Checks that a call that begins after a revision was observed does not fall behind it.
fn real_time(history: &History, log: &Log) -> Vec<Violation> {
    let mut observed: Vec<(Instant, Revision)> = Vec::new();
    for call in &history.calls {
        observed.extend(call.ended.zip(revision(&call.operation)));
    }
    for watched in &history.watches {
        observed.extend(watched.batches.iter().map(|(when, batch)| (*when, batch.through)));
    }
    observed.sort();
    let mut calls: Vec<_> = history.calls.iter().enumerate().collect();
    calls.sort_by_key(|(_, call)| call.began);

    let mut violations = Vec::new();
    let (mut observed, mut floor) = (observed.into_iter().peekable(), history.start.revision);
    for (place, call) in calls {
        while let Some((_, revision)) = observed.next_if(|(when, _)| *when < call.began) {
            floor = floor.max(revision);
        }
        violations.extend(match &call.operation {
            // A write without a result happened, if at all, after its call began.
            Operation::Commit { outcome: Outcome::Committed(_) | Outcome::Unknown, .. } => log
                .event_of(place)
                .filter(|event| event.revision <= floor)
                .map(|event| Violation::WrittenIntoThePast { event: event.clone(), observed: floor }),
            Operation::ListAt { .. } => None,
            operation => revision(operation).filter(|read| *read < floor).map(|read| Violation::StaleRead {
                read,
                observed: floor,
                operation: format!("{operation:?}"),
            }),
        });
    }
    violations
}

/// Returns the newest revision that the client has observed once the call has returned.
fn revision(operation: &Operation) -> Option<Revision> {
    match operation {
        Operation::Commit { outcome: Outcome::Committed(event), .. } => Some(event.revision),
        Operation::Commit { outcome: Outcome::Conflict(reported), .. } => Some(reported.revision),
        Operation::Commit { .. } => None,
        Operation::Get { answer, .. } => Some(answer.revision),
        Operation::List { answer } | Operation::ListAt { answer } => Some(answer.revision),
    }
}

/// Checks that a result is the state at its revision.
fn answer(call: &Call, log: &Log) -> Vec<Violation> {
    let differs = |key: &Key, read: At<Option<Entry>>| {
        let really = log.at(key, read.revision).cloned();
        (really != read.value).then(|| Violation::WrongRead { key: key.clone(), read, really })
    };
    match &call.operation {
        Operation::Get { key, answer } => differs(key, answer.clone()).into_iter().collect(),
        Operation::List { answer } | Operation::ListAt { answer } => {
            let listed = |key: &Key| answer.value.iter().find(|entry| entry.key() == key).cloned();
            let keys = log.keys().chain(answer.value.iter().map(|entry| entry.key()));
            let mut wrong: Vec<_> = keys
                .filter_map(|key| differs(key, At { revision: answer.revision, value: listed(key) }))
                .collect();
            wrong.dedup();
            wrong
        }
        Operation::Commit { key, expect, change, outcome: Outcome::Conflict(reported) } => {
            let absent = reported.value.is_none() && *change == Change::Delete;
            let unfounded =
                (expect.holds(reported.value.as_ref()) && !absent).then(|| Violation::FalseConflict {
                    reported: reported.clone(),
                    request: format!("{change:?} of {key:?} expecting {expect:?}"),
                });
            differs(key, reported.clone()).into_iter().chain(unfounded).collect()
        }
        Operation::Commit { .. } => Vec::new(),
    }
}
