//! A watch: all changes of a range, once and in order.
//!
//! Every store has a cursor of its own behind it ([`Follow`]). A cursor holds no events.

use std::fmt;

use super::{Boxed, Event, ReadError, Revision};

/// Consecutive events of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Never empty; oldest first.
    pub events: Vec<Event>,
    /// The watcher has now seen all events up to this revision.
    pub through: Revision,
}

/// Yields every change to a range, once and in order.
#[derive(Debug)]
pub struct Watch(Box<dyn Follow>);

/// The cursor of a [`Watch`], which each store implements.
pub trait Follow: Send + Sync + fmt::Debug {
    /// As [`Watch::next`] if there is no goal, as [`Watch::until`] if there is one.
    fn step(&mut self, goal: Option<Revision>) -> Boxed<'_, Result<Option<Batch>, ReadError>>;

    /// As [`Watch::through`].
    fn through(&mut self) -> Revision;
}

impl Watch {
    pub fn new(cursor: Box<dyn Follow>) -> Self {
        Watch(cursor)
    }

    /// Waits for the next events. Cancel-safe: what was not returned will be returned by the next call.
    /// After `Compacted`, start over from a new list; after `Unavailable`, calling again may work.
    pub async fn next(&mut self) -> Result<Batch, ReadError> {
        loop {
            if let Some(batch) = self.0.step(None).await? {
                return Ok(batch);
            }
        }
    }

    /// The next events, or `None` once everything up to `goal` has been returned. `goal` must have happened:
    /// then this never waits for a write, and two watches of one store can be read in step. Cancel-safe.
    pub async fn until(&mut self, goal: Revision) -> Result<Option<Batch>, ReadError> {
        self.0.step(Some(goal)).await
    }

    /// [`Watch::next`] has returned all events up to this revision. It also moves on while the range has no events; call it
    /// before sending a bookmark.
    pub fn through(&mut self) -> Revision {
        self.0.through()
    }
}
