//! A watch: all changes of a range, once and in order.
//!
//! Every store has a cursor of its own ([`Follow`]). A cursor holds no events.

use std::fmt;

use super::{Boxed, Event, ReadError, Revision};

/// Consecutive events of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Never empty; oldest first.
    pub events: Vec<Event>,
    /// The revision up to which the watcher has now received all events.
    pub through: Revision,
}

/// Yields every change to a range, once and in order.
#[derive(Debug)]
pub struct Watch(Box<dyn Follow>);

/// The cursor of a [`Watch`], which each store implements.
pub trait Follow: Send + Sync + fmt::Debug {
    /// Like [`Watch::next`] without a goal, like [`Watch::until`] with one.
    fn step(&mut self, goal: Option<Revision>) -> Boxed<'_, Result<Option<Batch>, ReadError>>;

    /// Like [`Watch::through`].
    fn through(&mut self) -> Revision;
}

impl Watch {
    pub fn new(cursor: Box<dyn Follow>) -> Self {
        Watch(cursor)
    }

    /// Waits for the next events. Cancel-safe: events that were not returned will be returned by the next call. After
    /// `Compacted`, start over with a new list; after `Unavailable`, calling again may succeed.
    pub async fn next(&mut self) -> Result<Batch, ReadError> {
        loop {
            if let Some(batch) = self.0.step(None).await? {
                return Ok(batch);
            }
        }
    }

    /// Returns the next events, or `None` once everything up to `goal` has been returned. `goal` must not be in the
    /// future: then this never waits for a write, and two watches of one store can be read in step. Cancel-safe.
    pub async fn until(&mut self, goal: Revision) -> Result<Option<Batch>, ReadError> {
        self.0.step(Some(goal)).await
    }

    /// Returns the revision up to which [`Watch::next`] has returned all events. It also advances while the range has
    /// no events; call it before sending a bookmark.
    pub fn through(&mut self) -> Revision {
        self.0.through()
    }
}
