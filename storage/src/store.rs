//! The contract of all engines.
//!
//! ```text
//!     get(key) -> At<Option<Entry>>              list(range, page) -> At<Listing>
//!     commit(key, Expect, Change) -> Event | Conflict{current}
//!     watch(range, after) -> Batch{events, through}… | Compacted          compact(through)
//! ```
//!
//! * Revisions are one strictly increasing sequence for the whole store; each commit gets its own.
//! * Nothing is readable before it is durable.
//! * A conflict contains the current entry, so a retry needs no read.
//! * There is one write method. It names the expected revision, so lost updates are impossible.

pub(crate) mod watch;

use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::range::{Key, Range};
use watch::Watch;

/// Maximum size of a key, ten times the longest key that results from a Kubernetes name.
pub const KEY_BYTES_MAX: usize = 8 * 1024;
/// Larger values are refused. Kubernetes stops at 1.5 MiB per object; etcd at 1.5 MiB per request by default.
pub const VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store. Dropping a returned future never leaves half a write: a commit that was handed over happens completely or
/// not at all, whether or not the caller still waits for its result.
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns the current entry of `key`: at least as new as every write acknowledged before the call.
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>>;

    /// Returns the entries of `range` in key order, all at one revision.
    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>>;

    /// Applies `change` to `key` if the key is as expected. An acknowledged change is durable.
    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>>;

    /// Watches every change to `range` after the revision `after`, once and in order.
    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>>;

    /// Compacts history: changes at or before `through` can no longer be watched or listed. Current entries stay. If
    /// `through` is newer than the newest revision, all history is compacted.
    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>>;
}

/// A point in the store's history. Zero is before the first write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    pub const ZERO: Revision = Revision(0);

    pub(crate) fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// A value, and the revision at which it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At<T> {
    pub revision: Revision,
    pub value: T,
}

/// A key, its value and the revision of its write. A handle to shared bytes: cloning copies nothing.
#[derive(Clone)]
pub struct Entry(Arc<Stored>);

struct Stored {
    revision: Revision,
    key: Key,
    value: Value,
}

enum Value {
    Bytes(Bytes),
    /// Made when it is first read.
    Made(OnceLock<Bytes>, Box<MakeValue>),
}

type MakeValue = dyn Fn() -> Bytes + Send + Sync;

impl Entry {
    pub fn new(key: Key, revision: Revision, value: Bytes) -> Self {
        Entry(Arc::new(Stored { revision, key, value: Value::Bytes(value) }))
    }

    /// Returns an entry whose value is made when it is first read, for a store that is derived from another one. Most
    /// readers of such a store pass over most of its entries.
    pub fn made(key: Key, revision: Revision, make: impl Fn() -> Bytes + Send + Sync + 'static) -> Self {
        let value = Value::Made(OnceLock::new(), Box::new(make));
        Entry(Arc::new(Stored { revision, key, value }))
    }

    pub fn key(&self) -> &Key {
        &self.0.key
    }

    pub fn value(&self) -> &Bytes {
        match &self.0.value {
            Value::Bytes(value) => value,
            Value::Made(made, make) => made.get_or_init(make),
        }
    }

    /// Returns the revision of the write of this value.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.revision == other.0.revision
                && self.0.key == other.0.key
                && self.value() == other.value())
    }
}

impl Eq for Entry {}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.value()[..self.value().len().min(32)];
        write!(f, "{:?}@{:?}={}", self.0.key, self.0.revision, value.escape_ascii())
    }
}

/// One change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub revision: Revision,
    pub key: Key,
    /// `None` if the key was deleted.
    pub current: Option<Entry>,
    /// `None` if the key was created.
    pub previous: Option<Entry>,
}

/// The state of the key that a writer expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    Absent,
    Revision(Revision),
}

impl Expect {
    pub(crate) fn holds(self, current: Option<&Entry>) -> bool {
        match self {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current.is_some_and(|entry| entry.revision() == revision),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(Bytes),
    /// Deleting an absent key is never expected, so `Expect::Absent` with `Delete` always conflicts.
    Delete,
}

/// The requested part of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Only keys greater than this one: the last key of the previous page.
    pub after: Option<Key>,
    /// Maximum number of entries; `None` for all.
    pub limit: Option<usize>,
    /// Exactly this revision, for later pages; `None` for the current one.
    pub at: Option<Revision>,
    /// Whether to count the entries after this page. Counting iterates over the rest of the range.
    pub count: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// Whether the range has entries after the last one.
    pub more: bool,
    /// The number of entries after the last one, if the page requested the count.
    pub remaining: Option<usize>,
}

impl Listing {
    /// Takes one page from an ordered iteration that already starts after `page.after`.
    pub(crate) fn take<'a>(mut entries_in_range: impl Iterator<Item = &'a Entry>, page: &Page) -> Listing {
        let limit = page.limit.unwrap_or(usize::MAX);
        let entries: Vec<_> = entries_in_range.by_ref().take(limit).cloned().collect();
        if entries.len() < limit {
            return Listing { entries, more: false, remaining: page.count.then_some(0) };
        }
        if page.count {
            let remaining = entries_in_range.count();
            return Listing { entries, more: remaining > 0, remaining: Some(remaining) };
        }
        Listing { entries, more: entries_in_range.next().is_some(), remaining: None }
    }
}

/// Why a get, a list or a watch fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The requested revision is compacted. List again, and watch from there.
    #[error("revision {requested} is compacted; the oldest one kept is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    /// The requested revision is newer than the newest one.
    #[error("revision {requested} is in the future; the newest one is {newest}")]
    Future { requested: Revision, newest: Revision },
    /// The store cannot read now; a retry may succeed.
    #[error("the store is unavailable: {reason}")]
    Unavailable { reason: String },
}

/// Why a commit was not acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// Another write was first. This is normal; decide again with `current`.
    #[error("the key is not as expected; it is now {:?}", current.value)]
    Conflict { current: At<Option<Entry>> },
    /// Not written, and the same commit would be refused again: the key or value is too large.
    #[error("refused: {reason}")]
    Refused { reason: String },
    /// Not written: the store does not accept writes at the moment. Reads continue.
    #[error("the store is read-only: {reason}")]
    ReadOnly { reason: String },
    /// Not written: the store cannot be reached.
    #[error("the store is unavailable: {reason}")]
    Unavailable { reason: String },
    /// Perhaps written. The engine could not determine the outcome; only a read can.
    #[error("the outcome of the write is unknown: {reason}")]
    Unknown { reason: String },
}

/// Checks the size limits of all engines.
pub(crate) fn check_size(key: &Key, change: &Change) -> Result<(), CommitError> {
    let key_bytes = key.as_bytes().len();
    if key_bytes > KEY_BYTES_MAX {
        let reason = format!("the key has {key_bytes} bytes; the maximum is {KEY_BYTES_MAX}");
        return Err(CommitError::Refused { reason });
    }
    match change {
        Change::Put(value) if value.len() > VALUE_BYTES_MAX => {
            let reason = format!("the value has {} bytes; the maximum is {VALUE_BYTES_MAX}", value.len());
            Err(CommitError::Refused { reason })
        }
        _ => Ok(()),
    }
}

// Entries are kept in ordered sets and found by key alone. The wrapper keeps that unusual equality private.
#[derive(Clone)]
pub(crate) struct ByKey(pub(crate) Entry);

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl std::borrow::Borrow<[u8]> for ByKey {
    fn borrow(&self) -> &[u8] {
        self.0.key().as_bytes()
    }
}
