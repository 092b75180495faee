//! All objects of a server, and their changes in one order.
//!
//! ```text
//!   list: all objects of the followed kinds at revision r ─► changes after r, of all kinds, in the order of their revisions
//! ```
//!
//! Watches of several kinds deliver the changes of each kind in order, but have no common order: an
//! object may be observed before its namespace, or a deletion before its cause. A controller in the server's process
//! reads the one history of the server's store instead ([`History`]). A reader that has observed a revision has observed all
//! earlier ones, of every kind and logical cluster. The follower of `informer` keeps views equal to it.
//!
//! The server implements this trait. Its objects are shared bytes: reading them copies nothing.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;

use crate::key::Key;
use crate::kind::ResourceKind;

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The history of a server, as far as its reader is authorized to read it.
pub trait History: Send + Sync + fmt::Debug {
    /// Returns a revision at or after every write that was acknowledged before the call.
    fn newest(&self) -> Boxed<'_, Result<u64, HistoryError>>;

    /// Returns all objects of a kind, of all logical clusters, at a revision.
    fn list<'a>(
        &'a self,
        kind: &'a ResourceKind,
        at: u64,
    ) -> Boxed<'a, Result<Vec<SharedObject>, HistoryError>>;

    /// Opens a cursor over the changes after a revision.
    fn changes(&self, after: u64) -> Boxed<'_, Result<Box<dyn Changes>, HistoryError>>;
}

/// A cursor over the changes of the followed kinds.
pub trait Changes: Send {
    /// Also returns the changes of this kind from now on, by this number. A kind that was followed in another version
    /// is followed in this one instead.
    fn follow(&mut self, kind: &ResourceKind, number: usize);

    /// Waits for the next changes. With a goal, also returns when there are none up to that revision. Cancel-safe.
    fn next(&mut self, goal: Option<u64>) -> Boxed<'_, Result<ChangeBatch, HistoryError>>;
}

/// The changes up to a revision, in order.
#[derive(Debug, Default)]
pub struct ChangeBatch {
    pub changes: Vec<ObjectChange>,
    /// There are no further changes up to this revision.
    pub through: u64,
}

#[derive(Debug)]
pub enum ObjectChange {
    Put { number: usize, object: SharedObject },
    Deleted { number: usize, key: Key, revision: u64 },
}

/// An object in the bytes of the store.
#[derive(Clone, Debug)]
pub struct SharedObject {
    pub key: Key,
    pub uid: String,
    pub revision: u64,
    /// The JSON without the resource version.
    pub json: Bytes,
    /// The position of the contents of `metadata`, where the resource version belongs. The metadata is not empty.
    pub version_at: usize,
}

/// Why a history cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HistoryError {
    /// The revision is compacted. List again, and read the changes from there.
    #[error("the revision is compacted")]
    Compacted,
    #[error("{0}")]
    Forbidden(String),
    /// A retry may succeed.
    #[error("{0}")]
    Unavailable(String),
}
