//! The keys of one case in a store, and readers that check everything they read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::range::{Key, Range};
use crate::store::watch::{Batch, Watch};
use crate::store::{
    At, Change, CommitError, Entry, Event, Expect, Listing, Page, ReadError, Revision, Store,
};

/// An event is delivered within milliseconds; after this time it is lost.
const DELIVERY_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    pub(super) store: Arc<dyn Store>,
    prefix: String,
}

impl KeySpace {
    /// Creates a key space with a new prefix, so that a store that outlives the run can be used again.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        static SPACES: AtomicU64 = AtomicU64::new(0);
        let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let nth = SPACES.fetch_add(1, Ordering::Relaxed);
        KeySpace { store, prefix: format!("case/{nanos:x}.{nth}/") }
    }

    pub(super) fn key(&self, name: impl AsRef<[u8]>) -> Key {
        [self.prefix.as_bytes(), name.as_ref()].concat().into()
    }

    /// Returns the range of keys of this space that begin with `start`.
    pub(super) fn range(&self, start: impl AsRef<[u8]>) -> Range {
        Range::prefix(self.key(start))
    }

    pub(super) fn all(&self) -> Range {
        self.range("")
    }

    pub(super) async fn commit(
        &self,
        name: impl AsRef<[u8]>,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        self.store.commit(self.key(name), expect, change).await
    }

    /// Changes a key regardless of its state. Deleting an absent key is no change and has no event.
    pub(super) async fn change(&self, name: &str, change: Change) -> Option<Event> {
        let mut expect = Expect::Absent;
        loop {
            match self.commit(name, expect, change.clone()).await {
                Ok(event) => return Some(event),
                Err(CommitError::Conflict { current }) => match current.value {
                    Some(entry) => expect = Expect::Revision(entry.revision()),
                    None if change == Change::Delete => return None,
                    None => expect = Expect::Absent,
                },
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }

    pub(super) async fn put(&self, name: &str, value: impl Into<Bytes>) -> Event {
        self.change(name, Change::Put(value.into())).await.expect("a put always ends in an event")
    }

    pub(super) async fn delete(&self, name: &str) -> Event {
        self.change(name, Change::Delete).await.expect("the case has put this key before")
    }

    pub(super) async fn get(&self, name: impl AsRef<[u8]>) -> At<Option<Entry>> {
        self.store.get(&self.key(name)).await.expect("a get is answered")
    }

    pub(super) async fn head(&self) -> Revision {
        self.get("no such key").await.revision
    }

    pub(super) async fn list(&self, page: Page) -> At<Listing> {
        self.store.list(self.all(), page).await.expect("a list is answered")
    }

    pub(super) async fn follow(&self, range: Range, after: Revision) -> Follower {
        self.try_follow(range, after).await.expect("the revision can be watched")
    }

    pub(super) async fn try_follow(&self, range: Range, after: Revision) -> Result<Follower, ReadError> {
        let watch = self.store.watch(range.clone(), after).await?;
        Ok(Follower { watch, range, delivered_through: after })
    }

    /// Runs `writers` concurrent writers, each with `each` writes to `keys` shared keys below `start`. Returns all
    /// their events in order.
    pub(super) async fn load(&self, start: &str, writers: usize, each: usize, keys: usize) -> Vec<Event> {
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let (space, start) = (self.clone(), start.to_string());
            tasks.spawn(async move {
                let mut events = Vec::new();
                for nth in 0..each {
                    let name = format!("{start}{}", (writer * 7 + nth * 3) % keys);
                    let change = match nth % 5 {
                        4 => Change::Delete,
                        _ => Change::Put(format!("{writer}.{nth}").into()),
                    };
                    events.extend(space.change(&name, change).await);
                    // A store in memory never waits; without this the writers would run one after another.
                    tokio::task::yield_now().await;
                }
                events
            });
        }
        let mut events = tasks.join_all().await.concat();
        events.sort_by_key(|event| event.revision);
        events
    }
}

/// Reads a watch and checks with every batch that it is Ordered, Unique and Bookmarkable.
#[derive(Debug)]
pub(super) struct Follower {
    watch: Watch,
    range: Range,
    /// The newest revision that this watch has delivered or claimed to be complete up to.
    delivered_through: Revision,
}

impl Follower {
    pub(super) async fn next(&mut self) -> Result<Batch, ReadError> {
        // No await after this one: the case that cancels `next` must lose nothing here.
        let batch = self.watch.next().await?;
        assert!(!batch.events.is_empty(), "an empty batch");
        for event in &batch.events {
            let delivered_through = self.delivered_through;
            assert!(
                event.revision > delivered_through,
                "{event:?} comes after {delivered_through:?} was delivered or reported as complete"
            );
            assert!(self.range.contains(event.key.as_bytes()), "{event:?} is not in {:?}", self.range);
            self.delivered_through = event.revision;
        }
        assert!(
            batch.through >= self.delivered_through,
            "{:?} ends before its last event {:?}",
            batch.through,
            self.delivered_through
        );
        self.delivered_through = batch.through;
        Ok(batch)
    }

    pub(super) fn through(&mut self) -> Revision {
        let through = self.watch.through();
        assert!(
            through >= self.delivered_through,
            "reported {:?} before and {through:?} now",
            self.delivered_through
        );
        self.delivered_through = through;
        through
    }

    /// Reads until `count` events were delivered.
    pub(super) async fn take(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        let deadline = Instant::now() + DELIVERY_LIMIT;
        while events.len() < count {
            let Ok(batch) = tokio::time::timeout_at(deadline, self.next()).await else {
                panic!(
                    "{} of {count} events in {DELIVERY_LIMIT:?}, delivered through {:?}",
                    events.len(),
                    self.delivered_through
                );
            };
            events.extend(batch.expect("the history is kept").events);
        }
        events
    }

    /// Reads until the watch claims to be complete up to `goal`.
    pub(super) async fn until(&mut self, goal: Revision) -> Result<Vec<Event>, ReadError> {
        let mut events = Vec::new();
        let started = Instant::now();
        // `through` moves while `next` is polled, even if `next` has nothing to return. The timeout doubles each time,
        // so that a slow read of old history is not cancelled for ever.
        let mut patience = Duration::from_millis(1);
        while self.through() < goal {
            assert!(
                started.elapsed() < DELIVERY_LIMIT,
                "{:?} never reached {goal:?}",
                self.delivered_through
            );
            match timeout(patience, self.next()).await {
                Ok(batch) => events.extend(batch?.events),
                Err(_) => patience *= 2,
            }
        }
        Ok(events)
    }
}

/// Compares without printing thousands of equal events.
#[track_caller]
pub(super) fn assert_same(description: &str, seen: &[Event], expected: &[Event]) {
    let differs = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
    let at = differs.unwrap_or(seen.len().min(expected.len()));
    assert!(
        seen == expected,
        "{description}: {} events, expected {}; from number {at} on:\n  actual   {:?}\n  expected {:?}",
        seen.len(),
        expected.len(),
        seen[at..].iter().take(3).collect::<Vec<_>>(),
        expected[at..].iter().take(3).collect::<Vec<_>>(),
    );
}

/// Returns the events after `revision`.
pub(super) fn after(events: &[Event], revision: Revision) -> &[Event] {
    &events[events.partition_point(|event| event.revision <= revision)..]
}
