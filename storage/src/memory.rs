//! The model: the simplest implementation of the contract.
//!
//! It has one lock, one list of all events, one ordered map. It deliberately shares no code with the
//! [`View`](crate::view): the other engines are compared with it, and a model that shared their code would share their
//! bugs. It is also a good store for tests that need nothing on disk.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::range::{Key, Range};
use crate::store::watch::{Batch, Follow, Watch};
use crate::store::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Listing, Page, ReadError, Revision, Store,
    check_size,
};

/// Maximum number of events in one batch of a watch.
const BATCH_EVENTS: usize = 512;
/// With twice this many events, the older half is compacted.
const HISTORY_EVENTS: usize = 100_000;

#[derive(Clone)]
pub struct Memory(Arc<MemoryShared>);

struct MemoryShared {
    state: Mutex<MemoryState>,
    head: watch::Sender<Revision>,
}

#[derive(Default)]
struct MemoryState {
    head: Revision,
    compacted: Revision,
    entries: BTreeMap<Key, Entry>,
    /// Every event after `compacted`, oldest first.
    events: Vec<Event>,
}

impl Memory {
    pub fn new() -> Self {
        Memory(Arc::new(MemoryShared { state: Mutex::default(), head: watch::Sender::new(Revision::ZERO) }))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        write!(f, "Memory({} entries at {:?})", state.entries.len(), state.head)
    }
}

impl MemoryState {
    fn check(&self, revision: Revision) -> Result<(), ReadError> {
        if revision < self.compacted {
            return Err(ReadError::Compacted { requested: revision, oldest: self.compacted });
        }
        if revision > self.head {
            return Err(ReadError::Future { requested: revision, newest: self.head });
        }
        Ok(())
    }

    fn events_after(&self, revision: Revision) -> &[Event] {
        &self.events[self.events.partition_point(|event| event.revision <= revision)..]
    }

    fn entries_at(&self, revision: Revision) -> BTreeMap<Key, Entry> {
        let mut entries = self.entries.clone();
        for event in self.events_after(revision).iter().rev() {
            match &event.previous {
                Some(previous) => entries.insert(event.key.clone(), previous.clone()),
                None => entries.remove(&event.key),
            };
        }
        entries
    }

    fn list(&self, range: &Range, page: &Page) -> Result<At<Listing>, ReadError> {
        let revision = page.at.unwrap_or(self.head);
        self.check(revision)?;
        let past;
        let entries = if revision == self.head {
            &self.entries
        } else {
            past = self.entries_at(revision);
            &past
        };
        let is_selected =
            |key: &Key| range.contains(key.as_bytes()) && page.after.as_ref().is_none_or(|after| key > after);
        let selected = entries.iter().filter(|(key, _)| is_selected(key)).map(|(_, entry)| entry);
        Ok(At { revision, value: Listing::take(selected, page) })
    }

    fn commit(&mut self, key: Key, expect: Expect, change: Change) -> Result<Event, CommitError> {
        check_size(&key, &change)?;
        let current = self.entries.get(&key);
        if !expect.holds(current) || (current.is_none() && change == Change::Delete) {
            return Err(CommitError::Conflict {
                current: At { revision: self.head, value: current.cloned() },
            });
        }
        let revision = self.head.next();
        let (current, previous) = match change {
            Change::Put(value) => {
                let entry = Entry::new(key.clone(), revision, value);
                let previous = self.entries.insert(key.clone(), entry.clone());
                (Some(entry), previous)
            }
            Change::Delete => (None, self.entries.remove(&key)),
        };
        let event = Event { revision, key, current, previous };
        self.head = revision;
        self.events.push(event.clone());
        if self.events.len() > 2 * HISTORY_EVENTS {
            let through = self.events[HISTORY_EVENTS].revision;
            self.compact(through);
        }
        Ok(event)
    }

    fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through.min(self.head));
        let compacted_events = self.events.partition_point(|event| event.revision <= self.compacted);
        self.events.drain(..compacted_events);
    }
}

impl Store for Memory {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        Box::pin(async {
            let state = self.0.state.lock();
            Ok(At { revision: state.head, value: state.entries.get(key).cloned() })
        })
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        Box::pin(async move { self.0.state.lock().list(&range, &page) })
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            let event = self.0.state.lock().commit(key, expect, change)?;
            // Two commits may arrive here in either order; the head only moves forward.
            self.0.head.send_if_modified(|head| {
                let newer = event.revision > *head;
                *head = event.revision.max(*head);
                newer
            });
            Ok(event)
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        Box::pin(async move {
            self.0.state.lock().check(after)?;
            let (shared, head) = (self.0.clone(), self.0.head.subscribe());
            Ok(Watch::new(Box::new(Cursor { shared, head, range, through: after })))
        })
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        Box::pin(async move {
            self.0.state.lock().compact(through);
            Ok(())
        })
    }
}

struct Cursor {
    shared: Arc<MemoryShared>,
    head: watch::Receiver<Revision>,
    range: Range,
    through: Revision,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?} after {:?})", self.range, self.through)
    }
}

impl Cursor {
    async fn next(&mut self, goal: Option<Revision>) -> Result<Option<Batch>, ReadError> {
        loop {
            self.head.borrow_and_update();
            if goal.is_some_and(|goal| self.through >= goal) {
                return Ok(None);
            }
            let events = self.read()?;
            if !events.is_empty() {
                return Ok(Some(Batch { events, through: self.through }));
            }
            if goal.is_some_and(|goal| self.through >= goal) {
                return Ok(None);
            }
            // The sender lives as long as `shared`, which this cursor holds.
            let _ = self.head.changed().await;
        }
    }

    fn read(&mut self) -> Result<Vec<Event>, ReadError> {
        let state = self.shared.state.lock();
        state.check(self.through)?;
        let ours =
            state.events_after(self.through).iter().filter(|event| self.range.contains(event.key.as_bytes()));
        let events: Vec<_> = ours.take(BATCH_EVENTS).cloned().collect();
        self.through = match events.last() {
            Some(last) if events.len() == BATCH_EVENTS => last.revision,
            _ => state.head,
        };
        Ok(events)
    }
}

impl Follow for Cursor {
    fn step(&mut self, goal: Option<Revision>) -> Boxed<'_, Result<Option<Batch>, ReadError>> {
        Box::pin(self.next(goal))
    }

    fn through(&mut self) -> Revision {
        let state = self.shared.state.lock();
        // There may have been matching events in the compacted part; `next` will return `Compacted`.
        let unread = state.compacted > self.through
            || state.events_after(self.through).iter().any(|event| self.range.contains(event.key.as_bytes()));
        if !unread {
            self.through = state.head;
        }
        self.through
    }
}
