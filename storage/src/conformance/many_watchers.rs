//! Many watchers, slow watchers, cancelled watchers.

use std::task::Poll;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::key_space::{KeySpace, after, assert_same};
use crate::range::Range;
use crate::store::{Event, ReadError};

/// Wake-ups are lost, if at all, between a watcher's last read and its wait. Writing one entry at a time makes every
/// lost one visible: no later write wakes the watcher.
pub(super) async fn every_single_write_wakes_its_watcher(space: KeySpace) {
    let start = space.head().await;
    let (revision_sender, mut revisions) = tokio::sync::mpsc::unbounded_channel();
    let mut watchers = JoinSet::new();
    const ROUNDS: usize = 1500;
    for (nth, range) in [space.all(), space.range("k"), Range::key(space.key("k"))].into_iter().enumerate() {
        let (space, revision_sender) = (space.clone(), revision_sender.clone());
        watchers.spawn(async move {
            let mut follower = space.follow(range, start).await;
            let mut rng = StdRng::seed_from_u64(nth as u64);
            for _ in 0..ROUNDS {
                // A different moment of the write path each time.
                for _ in 0..rng.random_range(0..4) {
                    tokio::task::yield_now().await;
                }
                if rng.random_bool(0.3) {
                    follower.through();
                }
                let [event] = &follower.take(1).await[..] else { panic!("more events than writes") };
                revision_sender.send(event.revision).expect("the writer listens");
            }
        });
    }
    drop(revision_sender);
    for round in 0..ROUNDS {
        let event = space.put("k", format!("{round}")).await;
        for _ in 0..3 {
            let revision =
                revisions.recv().await.unwrap_or_else(|| panic!("a watcher ended in round {round}"));
            assert_eq!(revision, event.revision);
        }
    }
    watchers.join_all().await;
}

/// Drops the future of `next` at random moments, under load and while old history is read.
pub(super) async fn a_cancelled_next_loses_and_doubles_nothing(space: KeySpace) {
    let start = space.head().await;
    let mut before = space.load("k", 4, 50, 4).await;
    let busy = {
        let space = space.clone();
        tokio::spawn(async move { space.load("k", 4, 150, 4).await })
    };
    let mut follower = space.follow(space.all(), start).await;
    let mut rng = StdRng::seed_from_u64(7);
    let (mut seen, mut dropped) = (Vec::new(), 0);
    while !busy.is_finished() || dropped < 50 {
        let patience = Duration::from_micros(rng.random_range(0..400));
        let next = std::pin::pin!(follower.next());
        let outcome = match rng.random_bool(0.3) {
            true => Some(futures::poll!(next)).filter(Poll::is_ready),
            false => timeout(patience, next).await.ok().map(Poll::Ready),
        };
        match outcome {
            Some(Poll::Ready(batch)) => seen.extend(batch.expect("nothing is compacted").events),
            _ => dropped += 1,
        }
    }
    before.extend(busy.await.expect("the load completes"));
    seen.extend(follower.until(space.head().await).await.expect("nothing is compacted"));
    assert_same(&format!("after {dropped} dropped calls"), &seen, &before);
}

pub(super) async fn a_stalled_watcher_delays_no_other(space: KeySpace) {
    let start = space.head().await;
    let mut stalled = space.follow(space.all(), start).await;
    let mut keeps_up = {
        let (space, range) = (space.clone(), space.all());
        tokio::spawn(async move { space.follow(range, start).await.take(1).await })
    };
    let first = space.put("first", "one").await;
    let seen = (&mut keeps_up).await.expect("the other watcher is not held up");
    assert_same("the other watcher", &seen, std::slice::from_ref(&first));
    // With a bounded queue between writer and watcher, this would hang or lose events.
    let mut events = vec![first];
    events.extend(space.load("k", 32, 100, 64).await);
    match stalled.until(space.head().await).await {
        Ok(seen) => assert_same("the stalled watcher catches up", &seen, &events),
        Err(ReadError::Compacted { oldest, .. }) => {
            // After `Compacted` it starts over from the oldest revision and misses nothing from there.
            let rest = space.follow(space.all(), oldest).await.until(space.head().await).await;
            assert_same(
                "starting over",
                &rest.expect("the oldest revision is available"),
                after(&events, oldest),
            );
        }
        Err(error) => panic!("{error}"),
    }
}

const WATCHERS: usize = 1000;

/// Starts a thousand watchers; each ends when it has received `count` events.
async fn crowd(
    space: &KeySpace,
    range: impl Fn(usize) -> Range,
    count: usize,
) -> JoinSet<(usize, Vec<Event>)> {
    let start = space.head().await;
    let mut watchers = JoinSet::new();
    for nth in 0..WATCHERS {
        let mut follower = space.follow(range(nth), start).await;
        watchers.spawn(async move { (nth, follower.take(count).await) });
    }
    watchers
}

pub(super) async fn a_thousand_watchers_of_one_range(space: KeySpace) {
    const EVENTS: usize = 30;
    let watchers = crowd(&space, |_| space.all(), EVENTS).await;
    let mut events = Vec::new();
    for nth in 0..EVENTS {
        events.push(space.put(&format!("{}", nth % 3), format!("{nth}")).await);
    }
    for (nth, seen) in watchers.join_all().await {
        assert_same(&format!("watcher {nth}"), &seen, &events);
    }
}

pub(super) async fn a_thousand_watchers_of_separate_ranges(space: KeySpace) {
    let name = |nth: usize| format!("{nth}/");
    let watchers = crowd(&space, |nth| space.range(name(nth)), 3).await;
    let mut writers = JoinSet::new();
    for round in 0..20 {
        let space = space.clone();
        writers.spawn(async move {
            let mut written = Vec::new();
            for nth in (round..WATCHERS).step_by(20) {
                let one = space.put(&format!("{}x", name(nth)), "one").await;
                let two = space.put(&format!("{}y", name(nth)), "two").await;
                let deleted = space.delete(&format!("{}x", name(nth))).await;
                written.push((nth, vec![one, two, deleted]));
            }
            written
        });
    }
    let mut written = writers.join_all().await.concat();
    written.sort_by_key(|(nth, _)| *nth);
    for (nth, seen) in watchers.join_all().await {
        assert_same(&format!("watcher {nth}"), &seen, &written[nth].1);
    }
}
