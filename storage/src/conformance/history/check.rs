//! Judges a recorded run.
//!
//! Linearizability is hard to check in general, because the order of writes must be guessed. Here it need not
//! be: revisions are the order. So it is enough to put all writes in that order and to look at each call:
//!
//! * real time: what begins after something was known has a newer revision, or reads at least that one;
//! * expectations: every write found what it expected, every conflict did not;
//! * reads: every answer is the state at its revision;
//! * watches: every write once, in order, nothing else, and nothing after it was said to be complete.

mod log;
#[cfg(test)]
mod tests;
mod watched;

use super::{Call, History, Instant, Outcome, What};
use crate::range::Key;
use crate::store::{At, Change, Entry, Event, Revision};
use log::Log;

/// A broken promise, with what shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// An acknowledged write is not in the history.
    LostWrite { event: Event },
    /// This write was not requested, or its writer got an error that excludes it.
    Phantom { event: Event },
    /// Two different writes have one revision.
    ReusedRevision { one: Event, other: Event },
    /// The acknowledgement does not fit the request.
    WrongAnswer { asked: String, event: Event },
    /// The write did not follow on what was there: a lost update.
    WrongPrevious { event: Event, really: Option<Entry> },
    /// A write got a revision that a client had already observed as past when it began.
    WrittenIntoThePast { event: Event, known: Revision },
    /// A read, or the answer to a loser, is older than what was known when it began.
    StaleRead { read: Revision, known: Revision, what: String },
    /// What was read is not what was there at that revision.
    WrongRead { key: Key, read: At<Option<Entry>>, really: Option<Entry> },
    /// A write lost although what it was told would have let it win.
    FalseConflict { told: At<Option<Entry>>, asked: String },
    /// Watch: an event came again.
    Duplicated { event: Event },
    /// Watch: an event came after a newer one.
    Reordered { event: Event, newer: Revision },
    /// Watch: an event never came, although the watch said to be complete beyond it.
    Missed { event: Event },
    /// Watch: an event came after the watch had said to be complete beyond it.
    Outrun { event: Event, said: Revision },
    /// Watch: it said to be complete up to `said`, and later only up to `now`.
    WentBack { said: Revision, now: Revision },
    /// Watch: an event of a key that is not watched.
    OutOfRange { event: Event },
    /// Watch: it stopped at `at`, although there was more.
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

/// A call that begins after a revision was observed must not fall behind it.
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
            // A write without an answer happened, if it did, after it was asked for.
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

/// The newest revision this call's client knows of, once it is answered.
fn revision(what: &What) -> Option<Revision> {
    match what {
        What::Commit { outcome: Outcome::Committed(event), .. } => Some(event.revision),
        What::Commit { outcome: Outcome::Conflict(told), .. } => Some(told.revision),
        What::Commit { .. } => None,
        What::Get { answer, .. } => Some(answer.revision),
        What::List { answer } | What::ListAt { answer } => Some(answer.revision),
    }
}

/// Whether an answer is true at its revision.
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
