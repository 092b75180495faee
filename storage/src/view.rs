//! The current state in memory, and the recent past.
//!
//! ```text
//!   one publisher ──► Draft ──► publish ──┬─► tail: recent events, in order
//!   (the engine)                          ├─► watch index: which watches must wake
//!                                         └─► now: a new snapshot, swapped in last
//! ```
//!
//! A snapshot is a persistent ordered set: taking one is a pointer copy, and it never changes. So a get or a
//! list holds no lock while it reads, and a paged list that keeps its snapshot sees one revision throughout.
//!
//! The View never touches disk or network. Events older than the tail come from the engine's [`History`].
//! An engine publishes only durable writes.

mod cursor;
#[cfg(test)]
mod fake_engine;
mod pins;
mod tail;
#[cfg(test)]
mod tests;
mod watch_index;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use imbl::OrdSet;
use parking_lot::{Mutex, RwLock};

use crate::range::{Key, Range};
use crate::store::watch::Watch;
use crate::store::{At, Boxed, ByKey, Entry, Event, Listing, Page, ReadError, Revision};
use cursor::Cursor;
use pins::Pins;
pub(crate) use tail::TailLimits;
use tail::{Scan, Tail};
use watch_index::WatchIndex;
pub(crate) use watch_index::WatchSlot;

/// Maximum number of events read at once from the tail: some ten microseconds of work. A watcher whose client does not
/// read holds handles to this many events, two kilobytes.
const TAIL_EVENTS: usize = 64;
/// Maximum number of events read at once from history, where the first event costs more than the next ones. Their bytes
/// are not shared.
const HISTORY_EVENTS: usize = 512;

/// Events older than the tail, which only the engine has.
pub(crate) trait History: Send + Sync {
    /// Events in (`after`, `until`], oldest first. May stop early, at the `through` of the result.
    fn read(&self, after: Revision, until: Revision, limit: usize)
    -> Boxed<'_, Result<EventSpan, ReadError>>;
}

/// All events of a range of revisions that ends at `through`.
#[derive(Debug, Default)]
pub(crate) struct EventSpan {
    pub(crate) events: Vec<Event>,
    pub(crate) through: Revision,
}

/// All entries at one revision.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) entries: OrdSet<ByKey>,
}

impl Snapshot {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).map(|found| &found.0)
    }

    fn list(&self, range: &Range, page: &Page) -> Listing {
        let from = match &page.after {
            Some(after) if after >= range.start() => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(range.start().as_bytes()),
        };
        let to = range.end().map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_bytes()));
        // With both bounds given the iterator compares positions in the tree, not keys. So counting reads no key, which
        // would be most of its time.
        Listing::take(self.entries.range::<_, [u8]>((from, to)).map(|found| &found.0), page)
    }

    /// Turns this into the state at `revision`. `before` has the entry at that time of each key that changed since.
    fn undo(&mut self, before: BTreeMap<Key, Option<Entry>>, revision: Revision) {
        for (key, entry) in before {
            match entry {
                Some(entry) => self.entries.insert(ByKey(entry)),
                None => self.entries.remove(key.as_bytes()),
            };
        }
        self.revision = revision;
    }
}

/// The next state. Readers see it once it is published.
pub(crate) struct Draft {
    next: Snapshot,
    events: Vec<Event>,
}

impl Draft {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.next.get(key)
    }

    /// Returns the newest revision applied so far.
    pub(crate) fn revision(&self) -> Revision {
        self.next.revision
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Records that `key` became `value` (or was deleted) at `revision`.
    pub(crate) fn apply(&mut self, key: Key, revision: Revision, value: Option<Bytes>) -> &Event {
        debug_assert!(revision > self.next.revision, "{revision:?} after {:?}", self.next.revision);
        self.next.revision = revision;
        let current = value.map(|value| Entry::new(key.clone(), revision, value));
        let previous = match &current {
            Some(entry) => self.next.entries.insert(ByKey(entry.clone())),
            None => self.next.entries.remove(key.as_bytes()),
        };
        let previous = previous.map(|found| found.0);
        self.events.push(Event { revision, key, current, previous });
        &self.events[self.events.len() - 1]
    }
}

pub(crate) struct View {
    now: ArcSwap<Snapshot>,
    tail: RwLock<Tail>,
    watch_index: Mutex<WatchIndex>,
    pins: Mutex<Pins>,
    compacted: AtomicU64,
    history: Box<dyn History>,
    head: tokio::sync::watch::Sender<Revision>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} entries at {:?})", self.now.load().entries.len(), self.head())
    }
}

impl View {
    pub(crate) fn new(
        start: Snapshot,
        compacted: Revision,
        limits: TailLimits,
        history: Box<dyn History>,
    ) -> Arc<Self> {
        let head = start.revision;
        Arc::new(View {
            now: ArcSwap::from_pointee(start),
            tail: RwLock::new(Tail::new(head, limits)),
            watch_index: Mutex::default(),
            pins: Mutex::default(),
            compacted: AtomicU64::new(compacted.0),
            history,
            head: tokio::sync::watch::Sender::new(head),
        })
    }

    /// Returns the newest published revision.
    pub(crate) fn head(&self) -> Revision {
        self.now.load().revision
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn now(&self) -> Arc<Snapshot> {
        self.now.load_full()
    }

    /// Changes at or before this revision are compacted.
    pub(crate) fn compacted(&self) -> Revision {
        Revision(self.compacted.load(Ordering::Acquire))
    }

    /// Waits until everything up to `revision` is published.
    #[cfg(feature = "etcd")]
    pub(crate) async fn reached(&self, revision: Revision) {
        let mut head = self.head.subscribe();
        // The sender lives in self, so the wait can only end by reaching the revision.
        let _ = head.wait_for(|head| *head >= revision).await;
    }

    /// Starts the next state. There is one publisher, so the draft's base is still `now` when it is published.
    pub(crate) fn draft(&self) -> Draft {
        Draft { next: Snapshot::clone(&self.now.load()), events: Vec::new() }
    }

    /// Makes a draft the current state, complete up to `through`. The caller first returns the results of the commits
    /// and then wakes the watches.
    pub(crate) fn publish(&self, draft: Draft, through: Revision) -> Wakes {
        let Draft { mut next, events } = draft;
        debug_assert!(through >= next.revision);
        next.revision = through;
        // Held throughout, so that a watch registers before all of this or after all of it.
        let mut interest = self.watch_index.lock();
        // The order matters: a watcher that reads the new head must find the marks set and the events in the tail.
        let wakes = interest.mark(&events);
        self.tail.write().push(events, through);
        self.now.store(Arc::new(next));
        drop(interest);
        self.head.send_replace(through);
        Wakes(wakes)
    }

    /// Removes history up to `through`, or all of it if `through` is newer than the head. Returns up to where.
    ///
    /// The engine deletes its history only after this. A reader checks `compacted` after it has read, so it would take
    /// events that are deleted before for a time without events.
    pub(crate) fn forget(&self, through: Revision) -> Revision {
        let through = through.min(self.head());
        self.compacted.fetch_max(through.0, Ordering::AcqRel);
        self.tail.write().forget(through);
        let unpinned = self.pins.lock().forget(through);
        drop(unpinned);
        through
    }

    /// Makes `start` the current state after the engine has missed events. All history before it is compacted, and
    /// every watch that has not seen it is woken and gets `Compacted`.
    #[cfg(feature = "etcd")]
    pub(crate) fn replace(&self, start: Snapshot) -> Wakes {
        let revision = start.revision;
        let mut interest = self.watch_index.lock();
        let wakes = interest.mark_all(revision);
        // Compacted before anything else changes: otherwise a reader could take the gap for a time without events.
        self.compacted.fetch_max(revision.0, Ordering::AcqRel);
        let mut tail = self.tail.write();
        tail.push(Vec::new(), revision);
        tail.forget(revision);
        drop(tail);
        self.pins.lock().forget(revision);
        self.now.store(Arc::new(start));
        drop(interest);
        self.head.send_replace(revision);
        Wakes(wakes)
    }

    pub(crate) fn get(&self, key: &Key) -> At<Option<Entry>> {
        let now = self.now.load();
        At { revision: now.revision, value: now.get(key.as_bytes()).cloned() }
    }

    pub(crate) async fn list(&self, range: Range, page: Page) -> Result<At<Listing>, ReadError> {
        let snapshot = match page.at {
            Some(revision) => self.at(revision).await?,
            None => Snapshot::clone(&self.now.load()),
        };
        let listing = snapshot.list(&range, &page);
        let revision = snapshot.revision;
        if listing.more && !listing.entries.is_empty() {
            self.pins.lock().pin(snapshot);
        }
        Ok(At { revision, value: listing })
    }

    pub(crate) fn watch(self: &Arc<Self>, range: Range, after: Revision) -> Result<Watch, ReadError> {
        self.check(after)?;
        let mut interest = self.watch_index.lock();
        let slot = interest.register(range);
        // Later events will be marked in the slot; the watch reads earlier ones first.
        let head = self.head();
        drop(interest);
        Ok(Watch::new(Box::new(Cursor::new(self.clone(), slot, after, head))))
    }

    pub(crate) fn unregister(&self, slot: &Arc<WatchSlot>) {
        self.watch_index.lock().unregister(slot);
    }

    /// Events in (`after`, `until`] that `range` contains: from the tail if it reaches back that far, else
    /// from the engine. May stop early, at the `through` of the result.
    pub(crate) async fn read(
        &self,
        range: &Range,
        after: Revision,
        until: Revision,
    ) -> Result<EventSpan, ReadError> {
        self.check(after)?;
        let scan = self.tail.read().scan(range, after, until, TAIL_EVENTS);
        let span = match scan {
            Scan::Found(span) => span,
            Scan::TooOld => {
                let mut span = self.history.read(after, until, HISTORY_EVENTS).await?;
                span.events.retain(|event| range.contains(event.key.as_bytes()));
                span
            }
        };
        // A concurrent compaction may have removed events while they were read.
        self.check(after)?;
        Ok(span)
    }

    /// Returns the state at exactly `revision`: pinned by an earlier page, or the current state without later events.
    async fn at(&self, revision: Revision) -> Result<Snapshot, ReadError> {
        self.check(revision)?;
        if let Some(pinned) = self.pins.lock().get(revision) {
            return Ok(pinned);
        }
        let mut snapshot = Snapshot::clone(&self.now.load());
        // Of each key only the first change since then matters: its previous entry is the state at `revision`.
        let (mut reached, mut before) = (revision, BTreeMap::new());
        while reached < snapshot.revision {
            let span = self.read(&Range::all(), reached, snapshot.revision).await?;
            reached = span.through;
            for event in span.events {
                before.entry(event.key).or_insert(event.previous);
            }
        }
        snapshot.undo(before, revision);
        Ok(snapshot)
    }

    fn check(&self, revision: Revision) -> Result<(), ReadError> {
        let (oldest, newest) = (self.compacted(), self.head());
        if revision < oldest {
            return Err(ReadError::Compacted { requested: revision, oldest });
        }
        if revision > newest {
            return Err(ReadError::Future { requested: revision, newest });
        }
        Ok(())
    }
}

/// Watches with something new to read.
#[must_use = "watchers sleep until they are woken"]
pub(crate) struct Wakes(Vec<Arc<WatchSlot>>);

impl Wakes {
    pub(crate) fn wake(self) {
        self.0.iter().for_each(|slot| slot.wake());
    }
}
