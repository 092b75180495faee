//! Checks a recorded run.
//!
//! Linearizability is hard to check in general, because the order of writes must be guessed. Here it need not be:
//! revisions are the order. So it is enough to put all writes in that order and to check each call:
//!
//! * real time: a call that begins after a revision was known writes a newer one, or reads at least that one;
//! * expectations: every write found what it expected, every conflict did not;
//! * reads: every result is the state at its revision;
//! * watches: every write is delivered once and in order, nothing else is, and nothing after the watch was complete.

mod log;
#[cfg(test)]
mod tests;
mod watched;

use super::{Call, History, Instant, Outcome, What};
use crate::range::Key;
use crate::store::{At, Change, Entry, Event, Revision};
use log::Log;

/// A broken promise, with its evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// An acknowledged write is not in the history.
    LostWrite { event: Event },
    /// This write was not requested, or its writer got an error that excludes it.
    Phantom { event: Event },
    /// Two different writes have one revision.
    ReusedRevision { one: Event, other: Event },
    /// The result of a commit does not fit the request.
    WrongAnswer { asked: String, event: Event },
    /// The write replaced another entry than the one before it: a lost update.
    WrongPrevious { event: Event, really: Option<Entry> },
    /// A write got a revision that a client had already observed as past when it began.
    WrittenIntoThePast { event: Event, known: Revision },
    /// A read, or the current entry in a conflict, is older than what was known when the call began.
    StaleRead { read: Revision, known: Revision, what: String },
    /// A read returned something else than the state at its revision.
    WrongRead { key: Key, read: At<Option<Entry>>, really: Option<Entry> },
    /// A write conflicted although the entry in the conflict meets its expectation.
    FalseConflict { told: At<Option<Entry>>, asked: String },
    /// Watch: an event was delivered again.
    Duplicated { event: Event },
    /// Watch: an event was delivered after a newer one.
    Reordered { event: Event, newer: Revision },
    /// Watch: an event was never delivered, although the watch claimed to be complete beyond it.
    Missed { event: Event },
    /// Watch: an event was delivered after the watch claimed to be complete beyond it.
    Outrun { event: Event, said: Revision },
    /// Watch: it claimed to be complete up to `said`, and later only up to `now`.
    WentBack { said: Revision, now: Revision },
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
    let mut known: Vec<(Instant, Revision)> = Vec::new();
    for call in &history.calls {
        known.extend(call.ended.zip(revision(&call.what)));
    }
    for watched in &history.watches {
        known.extend(watched.batches.iter().map(|(when, batch)| (*when, batch.through)));
    }
    known.sort();
    let mut calls: Vec<_> = history.calls.iter().enumerate().collect();
    calls.sort_by_key(|(_, call)| call.began);

    let mut violations = Vec::new();
    let (mut known, mut floor) = (known.into_iter().peekable(), history.start.revision);
    for (place, call) in calls {
        while let Some((_, revision)) = known.next_if(|(when, _)| *when < call.began) {
            floor = floor.max(revision);
        }
        violations.extend(match &call.what {
            // A write without a result happened, if at all, after its call began.
            What::Commit { outcome: Outcome::Committed(_) | Outcome::Unknown, .. } => log
                .event_of(place)
                .filter(|event| event.revision <= floor)
                .map(|event| Violation::WrittenIntoThePast { event: event.clone(), known: floor }),
            What::ListAt { .. } => None,
            what => revision(what).filter(|read| *read < floor).map(|read| Violation::StaleRead {
                read,
                known: floor,
                what: format!("{what:?}"),
            }),
        });
    }
    violations
}

/// Returns the newest revision that this call's client knows once the call has returned.
fn revision(what: &What) -> Option<Revision> {
    match what {
        What::Commit { outcome: Outcome::Committed(event), .. } => Some(event.revision),
        What::Commit { outcome: Outcome::Conflict(told), .. } => Some(told.revision),
        What::Commit { .. } => None,
        What::Get { answer, .. } => Some(answer.revision),
        What::List { answer } | What::ListAt { answer } => Some(answer.revision),
    }
}

/// Checks that a result is the state at its revision.
fn answer(call: &Call, log: &Log) -> Vec<Violation> {
    let differs = |key: &Key, read: At<Option<Entry>>| {
        let really = log.at(key, read.revision).cloned();
        (really != read.value).then(|| Violation::WrongRead { key: key.clone(), read, really })
    };
    match &call.what {
        What::Get { key, answer } => differs(key, answer.clone()).into_iter().collect(),
        What::List { answer } | What::ListAt { answer } => {
            let listed = |key: &Key| answer.value.iter().find(|entry| entry.key() == key).cloned();
            let keys = log.keys().chain(answer.value.iter().map(|entry| entry.key()));
            let mut wrong: Vec<_> = keys
                .filter_map(|key| differs(key, At { revision: answer.revision, value: listed(key) }))
                .collect();
            wrong.dedup();
            wrong
        }
        What::Commit { key, expect, change, outcome: Outcome::Conflict(told) } => {
            let absent = told.value.is_none() && *change == Change::Delete;
            let unfounded =
                (expect.holds(told.value.as_ref()) && !absent).then(|| Violation::FalseConflict {
                    told: told.clone(),
                    asked: format!("{change:?} of {key:?} expecting {expect:?}"),
                });
            differs(key, told.clone()).into_iter().chain(unfounded).collect()
        }
        What::Commit { .. } => Vec::new(),
    }
}
