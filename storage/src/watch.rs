//! A watch: a cursor over one log.
//!
//! ```text
//!   seen ───────────────── first ─────────────── last ──────── head
//!     │  nothing of ours     │   ours among these   │   not yet looked at
//! ```
//!
//! It holds no events. It waits for its bell, learns between which revisions something of its range
//! happened, reads that stretch from the tail or from history, and moves on. A slow watcher therefore costs nobody anything: it reads further back, and if what it needs has been
//! compacted meanwhile, it is told so.
//!
//! A store that shows another store differently brings a cursor of its own ([`Follow`]).

use std::fmt;
use std::sync::Arc;

use crate::memory;
use crate::store::{Boxed, Event, ReadError, Revision};
use crate::view::{Slot, View};

/// Some events, and how far they reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Never empty; oldest first.
    pub events: Vec<Event>,
    /// The watcher has now seen everything up to this revision.
    pub through: Revision,
}

/// Yields every change to a range, once and in order.
#[derive(Debug)]
pub struct Watch(Kind);

#[derive(Debug)]
enum Kind {
    View(Cursor),
    Memory(memory::Cursor),
    Foreign(Box<dyn Follow>),
}

/// What a [`Watch`] promises, for stores that are made of other stores.
pub trait Follow: Send + Sync + fmt::Debug {
    /// As [`Watch::next`] if there is no goal, as [`Watch::until`] if there is one.
    fn step(&mut self, goal: Option<Revision>) -> Boxed<'_, Result<Option<Batch>, ReadError>>;

    /// As [`Watch::through`].
    fn through(&mut self) -> Revision;
}

impl Watch {
    pub fn foreign(cursor: Box<dyn Follow>) -> Self {
        Watch(Kind::Foreign(cursor))
    }

    pub(crate) fn new(view: Arc<View>, slot: Arc<Slot>, after: Revision, head: Revision) -> Self {
        let unread = (after < head).then(|| (after.next(), head));
        Watch(Kind::View(Cursor { view, slot, seen: after, unread }))
    }

    pub(crate) fn memory(cursor: memory::Cursor) -> Self {
        Watch(Kind::Memory(cursor))
    }

    /// Waits for the next events. Cancel-safe: what was not returned will be returned by the next call.
    /// After `Compacted`, start over from a new list; after `Unavailable`, calling again may work.
    pub async fn next(&mut self) -> Result<Batch, ReadError> {
        loop {
            if let Some(batch) = self.step(None).await? {
                return Ok(batch);
            }
        }
    }

    /// The next events, or `None` once everything up to `goal` has been returned. `goal` must have happened:
    /// then this never waits for a write, and two watches of one store can be read in step. Cancel-safe.
    pub async fn until(&mut self, goal: Revision) -> Result<Option<Batch>, ReadError> {
        self.step(Some(goal)).await
    }

    async fn step(&mut self, goal: Option<Revision>) -> Result<Option<Batch>, ReadError> {
        match &mut self.0 {
            Kind::View(cursor) => cursor.step(goal).await,
            Kind::Memory(cursor) => cursor.step(goal).await,
            Kind::Foreign(cursor) => cursor.step(goal).await,
        }
    }

    /// Everything up to this revision has been returned by [`Watch::next`]. Moves on even when nothing of
    /// this range happens; ask before sending a bookmark.
    pub fn through(&mut self) -> Revision {
        match &mut self.0 {
            Kind::View(cursor) => cursor.through(),
            Kind::Memory(cursor) => cursor.through(),
            Kind::Foreign(cursor) => cursor.through(),
        }
    }
}

#[derive(Debug)]
struct Cursor {
    view: Arc<View>,
    slot: Arc<Slot>,
    /// Everything up to here has been returned.
    seen: Revision,
    /// What of ours has happened but has not been returned lies between these revisions; none: nothing.
    unread: Option<(Revision, Revision)>,
}

impl Cursor {
    async fn step(&mut self, goal: Option<Revision>) -> Result<Option<Batch>, ReadError> {
        loop {
            let head = self.look();
            if goal.is_some_and(|goal| self.seen >= goal) {
                return Ok(None);
            }
            let Some((first, last)) = self.unread.filter(|(first, _)| *first <= head) else {
                self.slot.rung().await;
                continue;
            };
            let after = self.seen.max(Revision(first.0 - 1));
            let stretch = self.view.read(&self.slot.range, after, head).await?;
            self.seen = stretch.through;
            self.unread = (stretch.through < last).then(|| (stretch.through.next(), last));
            if !stretch.events.is_empty() {
                return Ok(Some(Batch { events: stretch.events, through: stretch.through }));
            }
        }
    }

    fn through(&mut self) -> Revision {
        self.look();
        self.seen
    }

    /// Reads the head and learns what of ours happened up to it, without reading any event.
    ///
    /// A publisher marks, then moves the head, then rings. So the head is read first: whatever of ours
    /// happened up to it is marked by now. What is marked beyond it is kept for later.
    fn look(&mut self) -> Revision {
        let head = self.view.head();
        if let Some((first, last)) = self.slot.take() {
            let from = self.unread.map_or(first, |(from, _)| from);
            self.unread = Some((from, last));
        }
        if self.unread.is_none_or(|(first, _)| first > head) {
            self.seen = self.seen.max(head);
        }
        head
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.view.unregister(&self.slot);
    }
}
