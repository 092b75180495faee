//! Bootstrap objects: every logical cluster has them, copy-on-write.
//!
//! ```text
//!                        inner store                       template
//!   record of a  ─────►   ~births/a          r7             core/configmaps/  default/kube-root-ca.crt
//!   edited in a ─────►   core/…/a/default/kube-root-ca.crt r9 {…}
//!   record of b  ─────►   ~births/b          r8
//!   deleted in b ────►   core/…/b/default/kube-root-ca.crt r10 (empty: a tombstone)
//!
//!   seen through [`BootstrapStore`]:  a's, as edited, at r9;   b's: none;   c's, as in the template, at c's record
//! ```
//!
//! A [`BootstrapStore`] is a store over a store. An object of the template exists in a logical cluster from its record
//! on, with the record's revision, until the first write at its key, which stores it. A deletion
//! leaves a tombstone: an empty value, which no object has. Clients do not see tombstones. Everything else passes through.
//!
//! ```text
//!   at the template's key     record          no record
//!   ─────────────────────     ───────────     ────────
//!   nothing stored            its object      nothing
//!   a tombstone               nothing         nothing
//!   an object                 the object      the object
//! ```
//!
//! What takes two reads of the inner store takes them at one revision, so an answer is true at a revision as any
//! store's is. Writes need no lock: whatever changes what is seen at a key, except a record or its end, changes
//! what is stored there, and that is what the inner commit compares.
//!
//! Two rules make this exact. A record is created once per id. And nothing is written at the key of a template object without a record.

mod merge;
mod objects;
mod template;
mod watch;

use std::sync::Arc;

use api::cluster::Id;
use storage::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Key, Listing, Page, Range, ReadError, Revision,
    Store, Watch,
};

pub(crate) use crate::clusters::bootstrap::objects::ABOUT_THE_AUTHORITY;
pub use crate::clusters::bootstrap::objects::{BootstrapOptions, objects};
use crate::clusters::bootstrap::template::TemplateObject;
pub use crate::clusters::bootstrap::template::{BootstrapObject, Template};
use crate::clusters::records::LogicalClusterRecord;
use crate::keys;

/// A read of several steps starts over when the history it stood on is compacted beneath it. Each time takes
/// another compaction, and those are minutes apart.
const ATTEMPTS: usize = 4;

/// Shows the objects of a template in every logical cluster that has a record and has not changed them.
#[derive(Debug)]
pub struct BootstrapStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Store>,
    template: Template,
}

/// A record, and when in the history it was.
#[derive(Clone, Debug)]
struct FoundRecord {
    record: LogicalClusterRecord,
    revision: Revision,
}

impl BootstrapStore {
    pub fn new(inner: Arc<dyn Store>, template: Template) -> BootstrapStore {
        BootstrapStore(Arc::new(Shared { inner, template }))
    }
}

impl Store for BootstrapStore {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        match self.0.template.find(key) {
            Some((id, row)) => Box::pin(self.0.get(key, id, row)),
            None => self.0.inner.get(key),
        }
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        match self.0.template.within(&range).is_empty() {
            true => self.0.inner.list(range, page),
            false => Box::pin(self.0.list(range, page)),
        }
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        if let Some((id, row)) = self.0.template.find(&key) {
            let row = row.clone();
            return Box::pin(async move { self.0.commit(key, id, &row, expect, change).await });
        }
        match keys::cluster_record_id(&key) {
            Some(id) => Box::pin(self.0.commit_record(key, id, expect, change)),
            None => self.0.inner.commit(key, expect, change),
        }
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        match self.0.template.within(&range) {
            ranges if ranges.is_empty() => self.0.inner.watch(range, after),
            ranges => Box::pin(watch::watch(&self.0, range, ranges, after)),
        }
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        self.0.inner.compact(through)
    }
}

fn is_tombstone(entry: &Entry) -> bool {
    entry.value().is_empty()
}

/// The visible object for an entry at a key of the template.
fn seen(entry: Option<Entry>) -> Option<Entry> {
    entry.filter(|entry| !is_tombstone(entry))
}

impl Shared {
    async fn get(&self, key: &Key, id: Id, row: &TemplateObject) -> Result<At<Option<Entry>>, ReadError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let At { revision, value } = self.inner.get(key).await?;
            if value.is_some() {
                return Ok(At { revision, value: seen(value) });
            }
            match self.born(id, revision).await {
                Err(ReadError::Compacted { .. }) if attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(born) => {
                    let value = born.map(|born| row.entry(key.clone(), &born.record, born.revision));
                    return Ok(At { revision, value });
                }
            }
        }
    }

    async fn list(&self, range: Range, page: Page) -> Result<At<Listing>, ReadError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match merge::list(self, &range, &page).await {
                // The newest revision was not forgotten when the list began; a revision asked for may have been.
                Err(ReadError::Compacted { .. }) if page.at.is_none() && attempt < ATTEMPTS => {}
                done => return done,
            }
        }
    }

    /// The record of a logical cluster as of `revision`.
    async fn born(&self, id: Id, revision: Revision) -> Result<Option<FoundRecord>, ReadError> {
        let page = Page { at: Some(revision), ..Page::default() };
        let listed = self.inner.list(Range::key(keys::cluster_record(id)), page).await?;
        Ok(listed.value.entries.first().and_then(FoundRecord::read))
    }

    async fn commit(
        &self,
        key: Key,
        id: Id,
        row: &TemplateObject,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        if matches!(&change, Change::Put(value) if value.is_empty()) {
            let reason = "an empty value stands for a deletion here".to_owned();
            return Err(CommitError::Refused { reason });
        }
        let mut stored = self.inner.get(&key).await.map_err(unread)?;
        loop {
            let born = match self.born(id, stored.revision).await {
                Err(ReadError::Compacted { .. }) => {
                    stored = self.inner.get(&key).await.map_err(unread)?;
                    continue;
                }
                born => born.map_err(unread)?,
            };
            let current = match &stored.value {
                None => born.as_ref().map(|born| row.entry(key.clone(), &born.record, born.revision)),
                some => seen(some.clone()),
            };
            let (inner_expect, inner_change) = decide(&stored, &current, born.is_some(), expect, &change)?;
            match self.inner.commit(key.clone(), inner_expect, inner_change).await {
                Ok(event) => return Ok(self.told(event, current, id, row).await),
                // Another write came first. The entry may still be as the caller expects: then the commit is tried again.
                Err(CommitError::Conflict { current }) => stored = current,
                Err(error) => return Err(error),
            }
        }
    }

    /// What the writer is told of its commit, having seen `previous` before it: what every watcher is shown. If the
    /// logical cluster ended between the two, the row was gone already.
    async fn told(&self, event: Event, previous: Option<Entry>, id: Id, row: &TemplateObject) -> Event {
        let (revision, current) = (event.revision, seen(event.current.clone()));
        let key = event.key.clone();
        match self.shown(event, id, row, revision).await {
            Ok(Some(event)) => event,
            _ => Event { revision, key, current, previous },
        }
    }

    /// How a change at the key of a row is seen; none if it is not. `known` is a revision at or after the event's
    /// at which records can be looked up at little cost.
    async fn shown(
        &self,
        event: Event,
        id: Id,
        row: &TemplateObject,
        known: Revision,
    ) -> Result<Option<Event>, ReadError> {
        let previous = match event.previous {
            None => self.untouched(&event.key, id, row, event.revision, known).await?,
            some => seen(some),
        };
        let current = seen(event.current);
        let visible = previous.is_some() || current.is_some();
        Ok(visible.then_some(Event { previous, current, ..event }))
    }

    /// The row as it was seen before its first change, at `revision`.
    async fn untouched(
        &self,
        key: &Key,
        id: Id,
        row: &TemplateObject,
        revision: Revision,
        known: Revision,
    ) -> Result<Option<Entry>, ReadError> {
        let mut born = self.born(id, known).await?.filter(|born| born.revision < revision);
        // Not there later: it may have ended since. An id is born once, so the other way round needs no look.
        if born.is_none() && known != revision {
            born = self.born(id, revision).await?;
        }
        Ok(born.map(|born| row.entry(key.clone(), &born.record, born.revision)))
    }

    /// Records are written once. The end of one takes the logical cluster's tombstones along, also when it had
    /// ended before: a caller that was interrupted repeats the call.
    async fn commit_record(
        &self,
        key: Key,
        id: Id,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        if matches!((expect, &change), (Expect::Revision(_), Change::Put(_))) {
            return Err(CommitError::Refused {
                reason: "the record of a logical cluster cannot be changed".to_owned(),
            });
        }
        let ends = change == Change::Delete;
        let outcome = self.inner.commit(key, expect, change).await;
        let ended = match &outcome {
            Ok(_) => true,
            Err(CommitError::Conflict { current }) => current.value.is_none(),
            Err(_) => false,
        };
        if ends && ended {
            self.clear(id).await?;
        }
        outcome
    }

    /// Removes the tombstones of a logical cluster that has ended.
    async fn clear(&self, id: Id) -> Result<(), CommitError> {
        for key in self.template.keys(id) {
            let found = self.inner.get(&key).await.map_err(unread)?.value;
            let Some(tombstone) = found.filter(is_tombstone) else { continue };
            match self.inner.commit(key, Expect::Revision(tombstone.revision()), Change::Delete).await {
                Ok(_) | Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FoundRecord {
    fn read(entry: &Entry) -> Option<FoundRecord> {
        Some(FoundRecord { record: LogicalClusterRecord::decode(entry)?, revision: entry.revision() })
    }
}

/// What to ask of the inner store for a change at the key of a row, given what is stored there and what is seen.
fn decide(
    stored: &At<Option<Entry>>,
    current: &Option<Entry>,
    is_born: bool,
    expect: Expect,
    change: &Change,
) -> Result<(Expect, Change), CommitError> {
    let holds = match (expect, current) {
        (Expect::Absent, None) => *change != Change::Delete,
        (Expect::Revision(revision), Some(entry)) => entry.revision() == revision,
        _ => false,
    };
    if !holds {
        return Err(CommitError::Conflict {
            current: At { revision: stored.revision, value: current.clone() },
        });
    }
    let inner_expect =
        stored.value.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
    match change {
        Change::Put(_) if !is_born && current.is_none() => {
            Err(CommitError::ReadOnly { reason: "the logical cluster does not exist".to_owned() })
        }
        Change::Put(value) => Ok((inner_expect, Change::Put(value.clone()))),
        // Without a record the template is not visible, and no later deletion would remove the tombstone.
        Change::Delete if !is_born => Ok((inner_expect, Change::Delete)),
        Change::Delete => Ok((inner_expect, Change::Put(bytes::Bytes::new()))),
    }
}

fn unread(error: ReadError) -> CommitError {
    CommitError::Unavailable { reason: error.to_string() }
}
