//! Compaction: compacted revisions get `Compacted`, and nothing else is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::key_space::{KeySpace, after, assert_same};
use crate::store::{Event, Page, ReadError, Revision};

/// Checks that `outcome` is `Compacted`, and returns the oldest revision kept.
#[track_caller]
fn compacted<T: std::fmt::Debug>(outcome: Result<T, ReadError>, requested_at: Revision) -> Revision {
    match outcome {
        Err(ReadError::Compacted { requested, oldest }) => {
            assert_eq!(requested, requested_at);
            assert!(oldest > requested, "{oldest:?} is not newer than {requested:?}");
            oldest
        }
        other => panic!("{requested_at:?} is compacted, but the answer is {other:?}"),
    }
}

async fn list_at(space: &KeySpace, revision: Revision) -> Result<Vec<crate::Entry>, ReadError> {
    let page = Page { at: Some(revision), ..Page::default() };
    space.store.list(space.all(), page).await.map(|read| read.value.entries)
}

async fn compact(space: &KeySpace, through: Revision) {
    space.store.compact(through).await.expect("compaction is accepted");
}

async fn some_history(space: &KeySpace) -> Vec<Event> {
    let mut events = vec![space.put("old", "never touched again").await];
    for nth in 0..20 {
        events.push(space.put(&format!("{}", nth % 4), format!("{nth}")).await);
    }
    events.push(space.delete("3").await);
    events
}

pub(super) async fn compacted_revisions_are_refused_and_current_entries_remain(space: KeySpace) {
    let before = space.head().await;
    let events = some_history(&space).await;
    let now = space.list(Page::default()).await.value;
    let through = events[10].revision;
    let then = list_at(&space, through).await.expect("not yet compacted");
    compact(&space, through).await;

    for old in [before, events[0].revision, events[9].revision] {
        assert!(compacted(list_at(&space, old).await, old) >= through);
        let oldest = compacted(space.try_follow(space.all(), old).await, old);
        assert!(oldest >= through);
        list_at(&space, oldest).await.expect("the oldest revision kept can be listed");
        space.try_follow(space.all(), oldest).await.expect("and watched from");
    }
    assert_eq!(list_at(&space, through).await, Ok(then), "exactly the revision of the compaction is kept");
    let rest = space.follow(space.all(), through).await.take(events.len() - 11).await;
    assert_same("after exactly the compacted revision", &rest, &events[11..]);
    assert_eq!(space.list(Page::default()).await.value, now, "current entries survive");
    assert_eq!(space.get("old").await.value, events[0].current);
}

pub(super) async fn compaction_beyond_the_newest_removes_all_history(space: KeySpace) {
    for beyond in [Revision(space.head().await.0 + 1_000_000), Revision(u64::MAX)] {
        let events = some_history(&space).await;
        let head = space.head().await;
        compact(&space, beyond).await;
        for old in [events[0].revision, events[events.len() - 2].revision] {
            let oldest = compacted(list_at(&space, old).await, old);
            assert!(oldest >= head && oldest < beyond, "{oldest:?} is not in the future");
            compacted(space.try_follow(space.all(), old).await, old);
        }
        // Revisions in the future are not compacted in advance.
        let read = space.list(Page::default()).await;
        let mut follower = space.follow(space.all(), read.revision).await;
        let next = space.put("next", "one").await;
        assert_same("after compaction", &follower.take(1).await, std::slice::from_ref(&next));
        let entries = list_at(&space, read.revision).await.expect("the newest revision then is kept");
        assert_eq!(entries, read.value.entries);
    }
}

pub(super) async fn compaction_never_goes_back(space: KeySpace) {
    let events = some_history(&space).await;
    let (low, high) = (events[5].revision, events[12].revision);
    compact(&space, high).await;
    for through in [low, high, Revision::ZERO] {
        compact(&space, through).await;
        assert!(compacted(list_at(&space, low).await, low) >= high);
        list_at(&space, high).await.expect("still the oldest kept");
    }
    let rest = space.follow(space.all(), high).await.take(events.len() - 13).await;
    assert_same("the rest", &rest, &events[13..]);
}

/// Unread events of a watch are compacted. The watch must return `Compacted`, and must not claim to be complete up to a
/// revision that it never delivered: a client would resume from there and miss events without noticing.
pub(super) async fn a_watch_behind_compaction_returns_compacted_and_claims_nothing(space: KeySpace) {
    let start = space.head().await;
    let mut calls_through_first = space.follow(space.all(), start).await;
    let mut reads_first = space.follow(space.all(), start).await;
    let mut narrow = space.follow(space.range("0"), start).await;
    let events = some_history(&space).await;
    // One watch reads a little, so that it has a position in the middle.
    let first = reads_first.next().await.expect("kept").events;
    assert_same("the beginning", &first, &events[..first.len()]);
    let later = space.load("0", 2, 20, 3).await;
    compact(&space, Revision(u64::MAX)).await;

    let middle = events.get(first.len()).unwrap_or(&later[0]);
    let unread = [events[0].revision, middle.revision, events[1].revision];
    for (follower, unread) in
        [&mut calls_through_first, &mut reads_first, &mut narrow].into_iter().zip(unread)
    {
        for _ in 0..3 {
            let through = follower.through();
            assert!(through < unread, "{through:?} is claimed, but {unread:?} was never delivered");
            let outcome = follower.next().await;
            assert!(matches!(outcome, Err(ReadError::Compacted { .. })), "{outcome:?}");
        }
    }
    // The error is final: a new write must not revive the watch with a gap.
    space.put("0", "after").await;
    for follower in [&mut calls_through_first, &mut reads_first, &mut narrow] {
        let outcome = follower.next().await;
        assert!(matches!(outcome, Err(ReadError::Compacted { .. })), "{outcome:?}");
    }
}

pub(super) async fn a_watch_that_kept_up_continues(space: KeySpace) {
    let start = space.head().await;
    let mut all = space.follow(space.all(), start).await;
    let mut idle = space.follow(space.range("idle"), start).await;
    for _ in 0..5 {
        let events = some_history(&space).await;
        let head = space.head().await;
        assert_same("kept up", &all.until(head).await.expect("kept"), &events);
        assert_same("idle", &idle.until(head).await.expect("kept"), &[]);
        compact(&space, head).await;
    }
    let last = space.put("idle", "no more").await;
    assert_same("all", &all.take(1).await, std::slice::from_ref(&last));
    assert_same("idle", &idle.take(1).await, std::slice::from_ref(&last));
}

/// Readers race with compaction: each gets either all of its span or `Compacted`, never an incomplete span.
pub(super) async fn a_watch_during_compaction_never_has_a_gap(space: KeySpace) {
    let (mut compacted_reads, mut complete) = (0, 0);
    for round in 0..12 {
        let start = space.head().await;
        let events = Arc::new(space.load("k", 4, 30, 4).await);
        let head = space.head().await;
        let mut readers = JoinSet::new();
        let ready = Arc::new(AtomicU64::new(0));
        for nth in 0..8_usize {
            let from = events.get(nth * 5).map_or(start, |event| event.revision);
            let (space, events, ready) = (space.clone(), events.clone(), ready.clone());
            readers.spawn(async move {
                ready.fetch_add(1, Ordering::AcqRel);
                let outcome = match space.try_follow(space.all(), from).await {
                    Ok(mut follower) => follower.until(head).await,
                    Err(error) => Err(error),
                };
                match outcome {
                    Ok(delivered) => assert_same(&format!("round {round}"), &delivered, after(&events, from)),
                    Err(ReadError::Compacted { .. }) => return false,
                    Err(error) => panic!("round {round}: {error}"),
                }
                true
            });
        }
        while ready.load(Ordering::Acquire) < round % 8 {
            tokio::task::yield_now().await;
        }
        // In one large step, so that it overtakes readers in the middle of their span.
        let through = events[events.len() * (round as usize + 4) / 16].revision;
        compact(&space, through).await;
        let outcomes = readers.join_all().await;
        complete += outcomes.iter().filter(|outcome| **outcome).count();
        compacted_reads += outcomes.iter().filter(|outcome| !**outcome).count();
    }
    println!("              reads during compaction: {complete} complete, {compacted_reads} compacted");
}

/// Counts the values that are still referenced.
struct Counted {
    _guard: Arc<()>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &[b'x'; 500]
    }
}

/// Regression: deleting 100,000 objects left all their memory behind. Once they are deleted and their history is
/// compacted, nothing holds them: not the tail, not the snapshot of an unfinished list, not a watch.
pub(super) async fn deleted_and_compacted_values_are_released(space: KeySpace) {
    let guard = Arc::new(());
    let value = || Bytes::from_owner(Counted { _guard: guard.clone() });
    let mut watch = space.follow(space.all(), space.head().await).await;
    for nth in 0..100 {
        drop(space.put(&format!("{nth:03}"), value()).await);
        // Half of them are written again: overwritten values must be released too.
        if nth % 2 == 0 {
            drop(space.put(&format!("{nth:03}"), value()).await);
        }
    }
    let page = Page { limit: Some(10), ..Page::default() };
    assert!(space.list(page).await.value.more);
    for nth in 0..100 {
        drop(space.delete(&format!("{nth:03}")).await);
    }
    drop(watch.next().await.expect("something happened"));
    compact(&space, Revision(u64::MAX)).await;
    assert_eq!(Arc::strong_count(&guard) - 1, 0, "values are still referenced");
}
