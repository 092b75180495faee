//! Watches: etcd's guarantees, one by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::key_space::{KeySpace, after, assert_same};
use crate::range::Range;
use crate::store::{Event, Page};

fn within(events: &[Event], range: &Range) -> Vec<Event> {
    events.iter().filter(|event| range.contains(event.key.as_bytes())).cloned().collect()
}

/// Writes some forty changes, and returns the revision before them and their events.
async fn some_history(space: &KeySpace) -> (crate::Revision, Vec<Event>) {
    let start = space.head().await;
    let mut events = Vec::new();
    for nth in 0..40 {
        let name = format!("{}/{}", ["a", "ab", "b"][nth % 3], nth % 7);
        events.push(space.put(&name, format!("{nth}")).await);
        if nth % 4 == 3 {
            events.push(space.delete(&name).await);
        }
    }
    (start, events)
}

pub(super) async fn ordered_unique_reliable_from_every_revision(space: KeySpace) {
    let (start, events) = some_history(&space).await;
    let head = space.head().await;
    let starts = std::iter::once(start).chain(events.iter().map(|event| event.revision));
    let ranges = [
        space.all(),
        space.range("a/"),
        Range::key(space.key("b/2")),
        Range::between(space.key("a/3"), space.key("ab/5")),
    ];
    for from in starts {
        for range in &ranges {
            let seen =
                space.follow(range.clone(), from).await.until(head).await.expect("nothing is compacted");
            assert_same(&format!("{range:?} after {from:?}"), &seen, after(&within(&events, range), from));
        }
    }
}

pub(super) async fn events_equal_the_results_of_their_writes(space: KeySpace) {
    let start = space.head().await;
    let mut live = space.follow(space.all(), start).await;
    let events = space.load("k", 4, 50, 3).await;
    assert_same("live", &live.take(events.len()).await, &events);
    let replayed = space.follow(space.all(), start).await.take(events.len()).await;
    assert_same("replayed", &replayed, &events);

    let mut state = BTreeMap::new();
    for event in &events {
        assert_eq!(event.previous.as_ref(), state.get(&event.key), "the previous entry of {event:?}");
        match &event.current {
            Some(entry) => {
                assert_eq!(
                    (entry.key(), entry.revision()),
                    (&event.key, event.revision),
                    "the current entry"
                );
                state.insert(event.key.clone(), entry.clone());
            }
            None => drop(state.remove(&event.key).expect("only existing keys are deleted")),
        }
    }
    let listed = space.list(Page::default()).await.value.entries;
    assert_eq!(listed, state.into_values().collect::<Vec<_>>(), "the events add up to the state");
}

pub(super) async fn a_narrow_watch_delivers_only_its_keys_and_advances(space: KeySpace) {
    let start = space.head().await;
    let mut narrow = space.follow(Range::key(space.key("own")), start).await;
    let mut expected = Vec::new();
    for round in 0..10 {
        for nth in 0..10 {
            space.put(&format!("own{nth}"), "a neighbour").await;
            space.put("ow", "another").await;
        }
        let head = space.head().await;
        let seen = narrow.until(head).await.expect("kept");
        assert!(seen.is_empty(), "round {round}: {seen:?} are outside its range");
        let own = space.put("own", format!("{round}")).await;
        assert!(narrow.through() < own.revision, "it has not been delivered yet");
        let seen = narrow.take(1).await;
        assert_same("its own", &seen, std::slice::from_ref(&own));
        assert!(narrow.through() >= own.revision);
        expected.push(own);
    }
    let all = space.follow(Range::key(space.key("own")), start).await.until(space.head().await).await;
    assert_same("replayed", &all.expect("kept"), &expected);
}

/// Reading up to a revision of the past ends there, even without events in the range, and needs no write to wake it.
/// This allows to read two watches of one store in step.
pub(super) async fn a_watch_read_up_to_a_revision_never_waits(space: KeySpace) {
    let start = space.head().await;
    let watch = async |range| space.store.watch(range, start).await.expect("the revision can be watched");
    let (mut all, mut own) = (watch(space.all()).await, watch(space.range("own")).await);
    let (mut expected, mut seen) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..20 {
        let names = [["own", "other"], ["other", "other"]][round % 2];
        for name in names {
            let event = space.put(name, format!("{round}")).await;
            expected[0].push(event.clone());
            expected[1].extend((name == "own").then_some(event));
        }
        // Now and then far behind, and only to somewhere in the middle.
        let goal = expected[0][expected[0].len() - 1 - round % 4].revision;
        if round % 5 == 4 {
            continue;
        }
        for (watch, seen) in [&mut all, &mut own].into_iter().zip(&mut seen) {
            while let Some(batch) = watch.until(goal).await.expect("nothing is compacted") {
                assert!(!batch.events.is_empty(), "an empty batch");
                seen.extend(batch.events);
            }
            assert!(watch.through() >= goal, "{:?} before {goal:?}", watch.through());
        }
    }
    let head = space.head().await;
    for (watch, seen) in [&mut all, &mut own].into_iter().zip(&mut seen) {
        while let Some(batch) = watch.until(head).await.expect("nothing is compacted") {
            seen.extend(batch.events);
        }
    }
    assert_same("all", &seen[0], &expected[0]);
    assert_same("own", &seen[1], &expected[1]);
}

/// A watch registers while writers publish. A careless engine loses the events in between.
pub(super) async fn watches_that_start_amid_writes_miss_nothing(space: KeySpace) {
    let busy = {
        let space = space.clone();
        tokio::spawn(async move { space.load("k", 4, 120, 4).await })
    };
    let mut followers = Vec::new();
    while !busy.is_finished() && followers.len() < 400 {
        let range = if followers.len() % 2 == 0 { space.all() } else { space.range("k1") };
        let from = space.head().await;
        followers.push((from, range.clone(), space.follow(range, from).await));
        tokio::task::yield_now().await;
    }
    let events = busy.await.expect("the load completes");
    let head = space.head().await;
    for (from, range, mut follower) in followers {
        let seen = follower.until(head).await.expect("nothing is compacted");
        assert_same(&format!("{range:?} after {from:?}"), &seen, after(&within(&events, &range), from));
    }
}

/// The follower checks every event against every `through` before it; this case calls `through` very often.
pub(super) async fn bookmarkable_through_never_outruns_events(space: KeySpace) {
    let start = space.head().await;
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for nth in 0..6 {
        let range = [space.all(), space.range("k1"), space.range("k2")][nth % 3].clone();
        let (space, done) = (space.clone(), done.clone());
        readers.spawn(async move {
            let mut follower = space.follow(range.clone(), start).await;
            let mut seen = Vec::new();
            while !done.load(Ordering::Acquire) {
                follower.through();
                // Often too short on purpose: `through` must be called between deliveries.
                if let Ok(batch) = tokio::time::timeout(Duration::from_micros(300), follower.next()).await {
                    let batch = batch.expect("nothing is compacted");
                    seen.extend(batch.events);
                    assert!(follower.through() >= batch.through);
                }
            }
            seen.extend(follower.until(space.head().await).await.expect("nothing is compacted"));
            (range, seen)
        });
    }
    let events = space.load("k", 6, 120, 5).await;
    done.store(true, Ordering::Release);
    for (range, seen) in readers.join_all().await {
        assert_same(&format!("{range:?}"), &seen, &within(&events, &range));
    }
}

pub(super) async fn resumable_from_every_reported_revision(space: KeySpace) {
    let start = space.head().await;
    let busy = {
        let space = space.clone();
        tokio::spawn(async move { space.load("k", 4, 60, 4).await })
    };
    let mut reported = vec![start];
    let mut follower = space.follow(space.range("k1"), start).await;
    while !busy.is_finished() {
        if let Ok(batch) = tokio::time::timeout(Duration::from_millis(2), follower.next()).await {
            reported.push(batch.expect("nothing is compacted").through);
        }
        reported.push(follower.through());
    }
    let events = within(&busy.await.expect("the load completes"), &space.range("k1"));
    reported.dedup();
    let head = space.head().await;
    // About 150 of them are enough, evenly spaced.
    for from in reported.iter().step_by(reported.len().div_ceil(150)) {
        let rest = space.follow(space.range("k1"), *from).await.until(head).await.expect("kept");
        assert_same(&format!("resumed after {from:?}"), &rest, after(&events, *from));
    }
}
