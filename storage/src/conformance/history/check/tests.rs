//! Tests of the checker: a correct history passes, and each kind of violation is found.

use super::*;
use crate::conformance::history::{Recorder, WatchHistory};
use crate::memory::Memory;
use crate::range::Range;
use crate::store::watch::Batch;
use crate::store::{CommitError, Expect, Store};

/// Records four writes to two keys with all kinds of reads, one call after the other.
async fn truth() -> History {
    let store = Memory::new();
    let before = store.commit("run/old".into(), Expect::Absent, put("old")).await.expect("absent");
    let recorder = Recorder::start(&store, Range::prefix("run/")).await.expect("memory answers");
    let commit = |key: &str, expect, change| recorder.commit(&store, Key::from(key), expect, change);
    let one = commit("run/a", Expect::Absent, put("one")).await.expect("absent");
    let lost = commit("run/a", Expect::Absent, put("never")).await;
    assert!(matches!(lost, Err(CommitError::Conflict { .. })));
    let mut watch = recorder.watch(&store, Range::prefix("run/"), before.revision).await.expect("kept");
    watch.next().await.expect("kept");
    commit("run/b", Expect::Absent, put("two")).await.expect("absent");
    recorder.get(&store, "run/a".into()).await.expect("answered");
    commit("run/a", Expect::Revision(one.revision), put("three")).await.expect("unchanged");
    recorder.list(&store, None, None).await.expect("answered");
    commit("run/old", Expect::Revision(before.revision), Change::Delete).await.expect("unchanged");
    recorder.list(&store, Some(1), Some(one.revision)).await.expect("kept");
    watch.next().await.expect("kept");
    recorder.finish(&store).await.expect("kept")
}

fn put(value: &'static str) -> Change {
    Change::Put(value.into())
}

/// Returns the nth acknowledged commit.
fn acknowledged(history: &mut History, nth: usize) -> &mut Call {
    let committed =
        |call: &&mut Call| matches!(call.operation, Operation::Commit { outcome: Outcome::Committed(_), .. });
    history.calls.iter_mut().filter(committed).nth(nth).expect("four exist")
}

fn event(call: &mut Call) -> &mut Event {
    match &mut call.operation {
        Operation::Commit { outcome: Outcome::Committed(event), .. } => event,
        other => panic!("{other:?}"),
    }
}

fn answer_with(call: &mut Call, answer: Outcome) {
    match &mut call.operation {
        Operation::Commit { outcome, .. } => *outcome = answer,
        other => panic!("{other:?}"),
    }
}

fn is(is_operation: fn(&Operation) -> bool) -> impl FnMut(&&mut Call) -> bool {
    move |call| is_operation(&call.operation)
}

/// Changes the event of a revision wherever a watch delivered it; `None` removes it.
fn rewatch(history: &mut History, revision: u64, change: impl Fn(&Event) -> Option<Event>) {
    for watched in &mut history.watches {
        for (_, batch) in &mut watched.batches {
            let changed = batch.events.iter();
            let changed = changed.filter_map(|event| {
                if event.revision.0 == revision { change(event) } else { Some(event.clone()) }
            });
            batch.events = changed.collect();
        }
    }
}

/// Returns the watch that is not the witness.
fn watched(history: &mut History) -> &mut WatchHistory {
    history.watches.iter_mut().find(|watched| !watched.witness).expect("one exists")
}

fn second_batch(history: &mut History) -> &mut Batch {
    &mut watched(history)
        .batches
        .iter_mut()
        .filter(|(_, batch)| !batch.events.is_empty())
        .nth(1)
        .expect("two")
        .1
}

type Lie = (&'static str, fn(&mut History), &'static str);

const LIES: &[Lie] = &[
    ("an acknowledged write is nowhere", |h| rewatch(h, 3, |_| None), "LostWrite"),
    ("a watch leaves one out", |h| drop(second_batch(h).events.remove(1)), "Missed"),
    ("a watch repeats one", |h| repeat(second_batch(h)), "Duplicated"),
    ("a watch swaps two", |h| second_batch(h).events.swap(0, 1), "Reordered"),
    ("a watch claims too much too early", |h| watched(h).batches[0].1.through.0 += 2, "Outrun"),
    ("a watch claims less than before", |h| watched(h).batches[1].1.through.0 = 2, "WentBack"),
    ("a watch delivers a neighbour", |h| watched(h).range = Range::prefix("run/a"), "OutOfRange"),
    ("a watch stops", |h| watched(h).stuck_before = Some(Revision(9)), "Stuck"),
    ("two writes have one revision", |h| event(acknowledged(h, 1)).revision.0 -= 1, "ReusedRevision"),
    ("one write is acknowledged to two writers", |h| duplicate_write(h), "ReusedRevision"),
    ("a write that was not requested", |h| unask(h), "Phantom"),
    ("a write that was denied", |h| answer_with(acknowledged(h, 1), Outcome::NotWritten), "Phantom"),
    ("an answer to something else", |h| event(acknowledged(h, 0)).current = None, "WrongAnswer"),
    ("a lost update", |h| lost_update(h), "WrongPrevious"),
    ("a write older than what was known", |h| acknowledged(h, 0).began = 1 << 40, "WrittenIntoThePast"),
    ("an unknown write older than what was known", |h| late_unknown(h), "WrittenIntoThePast"),
    ("a stale get", |h| stale(h, |operation| matches!(operation, Operation::Get { .. })), "StaleRead"),
    ("a stale list", |h| stale(h, |operation| matches!(operation, Operation::List { .. })), "StaleRead"),
    ("a stale conflict", |h| stale(h, is_conflict), "StaleRead"),
    ("a read of something else", |h| misread(h), "WrongRead"),
    (
        "a list without one",
        |h| short_list(h, |operation| matches!(operation, Operation::List { .. })),
        "WrongRead",
    ),
    (
        "a past list without one",
        |h| short_list(h, |operation| matches!(operation, Operation::ListAt { .. })),
        "WrongRead",
    ),
    ("a conflict that was none", |h| false_conflict(h), "FalseConflict"),
];

#[tokio::test]
async fn a_true_history_passes_and_every_falsified_one_is_reported() {
    let truth = truth().await;
    let summary = truth.check().expect("the truth");
    assert_eq!((summary.committed, summary.conflicts, summary.reads), (4, 1, 4), "{summary}");
    for (story, falsify, name) in LIES {
        let mut lie = truth.clone();
        falsify(&mut lie);
        let named: Vec<_> = check(&lie).iter().map(|violation| format!("{violation:?}")).collect();
        assert!(named.iter().any(|text| text.starts_with(name)), "{story}: expected {name}, got {named:#?}");
    }
}

#[tokio::test]
async fn a_write_without_an_answer_may_have_happened_or_not() {
    let mut happened = truth().await;
    for nth in [3, 2, 1, 0] {
        answer_with(acknowledged(&mut happened, nth), Outcome::Unknown);
    }
    assert_eq!(check(&happened), [], "all four writes without a result happened");

    let mut never = truth().await;
    let mut unanswered = acknowledged(&mut never, 0).clone();
    (unanswered.began, unanswered.ended) = (5, None);
    answer_with(&mut unanswered, Outcome::Unknown);
    if let Operation::Commit { change, .. } = &mut unanswered.operation {
        *change = put("never seen");
    }
    never.calls.push(unanswered);
    assert_eq!(check(&never), [], "a write without a result need not have happened");
}

/// A crash lost the newest acknowledged write, and the store reused its revision.
#[tokio::test]
async fn a_store_that_forgets_its_newest_write_is_caught() {
    let mut history = truth().await;
    let newest = acknowledged(&mut history, 3).clone();
    rewatch(&mut history, 5, |_| None);
    history.calls.retain(|call| call.began <= newest.began);
    let violations = check(&history);
    let event = event(acknowledged(&mut history, 3)).clone();
    assert!(violations.contains(&Violation::LostWrite { event }), "{violations:#?}");
}

fn unask(history: &mut History) {
    let began = acknowledged(history, 1).began;
    history.calls.retain(|call| call.began != began);
}

fn repeat(batch: &mut Batch) {
    let repeated = batch.events[0].clone();
    batch.events.insert(1, repeated);
}

fn duplicate_write(history: &mut History) {
    let repeated = acknowledged(history, 0).clone();
    history.calls.push(repeated);
}

/// Key `a` changes from one to three; its event has no previous entry.
fn lost_update(history: &mut History) {
    let call = acknowledged(history, 2);
    event(call).previous = None;
    let wrong = event(call).clone();
    if let Operation::Commit { expect, .. } = &mut call.operation {
        *expect = Expect::Absent;
    }
    rewatch(history, wrong.revision.0, |_| Some(wrong.clone()));
}

fn late_unknown(history: &mut History) {
    let call = acknowledged(history, 0);
    (call.began, call.ended) = (1 << 40, None);
    answer_with(call, Outcome::Unknown);
}

fn is_conflict(operation: &Operation) -> bool {
    matches!(operation, Operation::Commit { outcome: Outcome::Conflict(_), .. })
}

/// Makes a read begin and end long after everything else.
fn stale(history: &mut History, is_operation: fn(&Operation) -> bool) {
    let call = history.calls.iter_mut().find(is(is_operation)).expect("one exists");
    (call.began, call.ended) = (1 << 40, Some(1 << 41));
}

fn misread(history: &mut History) {
    let call = history
        .calls
        .iter_mut()
        .find(is(|operation| matches!(operation, Operation::Get { .. })))
        .expect("one exists");
    if let Operation::Get { answer, .. } = &mut call.operation {
        answer.value = None;
    }
}

fn short_list(history: &mut History, is_operation: fn(&Operation) -> bool) {
    let call = history.calls.iter_mut().find(is(is_operation)).expect("one exists");
    if let Operation::List { answer } | Operation::ListAt { answer } = &mut call.operation {
        answer.value.pop();
    }
}

fn false_conflict(history: &mut History) {
    let call = history.calls.iter_mut().find(is(is_conflict)).expect("one exists");
    if let Operation::Commit { expect, outcome: Outcome::Conflict(reported), .. } = &mut call.operation {
        *expect = Expect::Revision(reported.value.as_ref().expect("the winner").revision());
    }
}
