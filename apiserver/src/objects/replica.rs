//! State that follows a part of the store's history.
//!
//! ```text
//!   the store's history of a range ─► a cursor ─► derived state
//! ```
//!
//! The state is never older than its readers require: a reader names a revision, and the cursor is first read up to it.
//! If nothing has happened since, this compares two numbers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::cluster::Id;
use storage::{Entry, Event, Page, Range, ReadError, Revision, Store, Watch};
use tokio::sync::Mutex;

use crate::keys;

/// Page size of the first list.
const PAGE_ENTRIES: usize = 1000;
/// Pause before reading again if the store is unavailable.
const PAUSE: Duration = Duration::from_secs(1);

/// State derived from the entries of a range.
pub(crate) trait State: Send + Sync {
    /// The state while the range is listed.
    type Draft: Default + Send;

    fn add(draft: &mut Self::Draft, entry: &Entry);

    /// Replaces the state by that at a revision. The changes in between are unknown.
    fn replace(&self, draft: Self::Draft, at: Revision);

    fn apply(&self, events: &[Event], through: Revision);
}

#[derive(Debug)]
pub(crate) struct Replica<S> {
    inner_store: Arc<dyn Store>,
    range: Range,
    state: S,
    /// The revision of the state. It is written after the state, so a reader finds at least this revision.
    reached: AtomicU64,
    /// The holder of the lock reads for all who wait. None before the first read, and after history was lost.
    cursor: Mutex<Option<Watch>>,
}

impl<S: State> Replica<S> {
    /// Creates one for a range of a store.
    pub(crate) fn new(inner_store: Arc<dyn Store>, range: Range, state: S) -> Replica<S> {
        Replica { inner_store, range, state, reached: AtomicU64::new(0), cursor: Mutex::default() }
    }

    /// Returns the state, as far as it has got.
    pub(crate) fn state(&self) -> &S {
        &self.state
    }

    /// Returns the underlying store.
    pub(crate) fn inner_store(&self) -> &Arc<dyn Store> {
        &self.inner_store
    }

    pub(crate) fn has_reached(&self, revision: Revision) -> bool {
        self.reached.load(Ordering::Acquire) >= revision.0
    }

    /// Brings the state up to a revision, which must exist.
    pub(crate) async fn reach(&self, revision: Revision) -> Result<(), ReadError> {
        if self.has_reached(revision) && revision != Revision::ZERO {
            return Ok(());
        }
        // Held while reading: callers queue here, and the first one reads for the others.
        let mut cursor = self.cursor.lock().await;
        loop {
            let watch = match cursor.as_mut() {
                Some(watch) => watch,
                None => cursor.insert(self.begin().await?),
            };
            match watch.until(revision).await {
                Ok(Some(batch)) => {
                    self.state.apply(&batch.events, batch.through);
                    self.reached.fetch_max(batch.through.0, Ordering::Release);
                }
                Ok(None) => {
                    self.reached.fetch_max(watch.through().0, Ordering::Release);
                    return Ok(());
                }
                Err(ReadError::Compacted { .. }) => *cursor = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// Brings the state up to every write that was acknowledged before the call.
    pub(crate) async fn catch_up(&self) -> Result<(), ReadError> {
        let now = self.inner_store.get(&keys::cluster_record(Id::ROOT)).await?.revision;
        self.reach(now).await
    }

    /// Follows the store, for subscribers of changes. Never returns.
    pub(crate) async fn follow(&self) -> Infallible {
        loop {
            if let Err(error) = self.followed().await
                && !matches!(error, ReadError::Compacted { .. })
            {
                tracing::warn!(%error, "the watch of the store failed; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn followed(&self) -> Result<Infallible, ReadError> {
        let now = self.inner_store.get(&keys::cluster_record(Id::ROOT)).await?.revision;
        self.reach(now).await?;
        let mut watch = self.inner_store.watch(self.range.clone(), now).await?;
        loop {
            let through = watch.next().await?.through;
            self.reach(through).await?;
        }
    }

    /// Lists the range, and returns a cursor that continues from there.
    async fn begin(&self) -> Result<Watch, ReadError> {
        let mut draft = S::Draft::default();
        let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
        let revision = loop {
            let read = self.inner_store.list(self.range.clone(), page.clone()).await?;
            read.value.entries.iter().for_each(|entry| S::add(&mut draft, entry));
            page.at = Some(read.revision);
            page.after = read.value.entries.last().map(|entry| entry.key().clone());
            if !read.value.more {
                break read.revision;
            }
        };
        let watch = self.inner_store.watch(self.range.clone(), revision).await?;
        self.state.replace(draft, revision);
        self.reached.fetch_max(revision.0, Ordering::Release);
        Ok(watch)
    }
}
