//! The cursor of a watch over a View.
//!
//! ```text
//!   seen ───────────────── first ─────────────── last ──────── head
//!     │  no matching event   │  matching events     │   not read yet
//! ```
//!
//! It holds no events. It waits until its slot is notified, takes the revisions between which its range has events,
//! reads them from the tail or from history, and moves on. A slow watcher therefore costs no memory: it reads further
//! back, and gets `Compacted` if the history it needs has been removed.

use std::sync::Arc;

use super::{View, WatchSlot};
use crate::store::watch::{Batch, Follow};
use crate::store::{Boxed, ReadError, Revision};

#[derive(Debug)]
pub(super) struct Cursor {
    view: Arc<View>,
    slot: Arc<WatchSlot>,
    /// Everything up to here has been returned.
    seen: Revision,
    /// Events that have not been returned lie between these revisions. None if there are none.
    unread: Option<(Revision, Revision)>,
}

impl Cursor {
    pub(super) fn new(view: Arc<View>, slot: Arc<WatchSlot>, after: Revision, head: Revision) -> Self {
        let unread = (after < head).then(|| (after.next(), head));
        Cursor { view, slot, seen: after, unread }
    }

    async fn read(&mut self, goal: Option<Revision>) -> Result<Option<Batch>, ReadError> {
        loop {
            let head = self.update();
            if goal.is_some_and(|goal| self.seen >= goal) {
                return Ok(None);
            }
            let Some((first, last)) = self.unread.filter(|(first, _)| *first <= head) else {
                self.slot.notified().await;
                continue;
            };
            let after = self.seen.max(Revision(first.0 - 1));
            let span = self.view.read(&self.slot.range, after, head).await?;
            self.seen = span.through;
            self.unread = (span.through < last).then(|| (span.through.next(), last));
            if !span.events.is_empty() {
                return Ok(Some(Batch { events: span.events, through: span.through }));
            }
        }
    }

    /// Reads the head and the marks, without reading any event.
    ///
    /// A publisher marks, then moves the head, then notifies. So the head is read first: all matching events up to it
    /// are marked by now. Marks beyond it are kept for later.
    fn update(&mut self) -> Revision {
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

impl Follow for Cursor {
    fn step(&mut self, goal: Option<Revision>) -> Boxed<'_, Result<Option<Batch>, ReadError>> {
        Box::pin(self.read(goal))
    }

    fn through(&mut self) -> Revision {
        self.update();
        self.seen
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.view.unregister(&self.slot);
    }
}
