//! Bootstrap objects: every logical cluster has them, copy-on-write.
//!
//! ```text
//!                        inner store                       template
//!   record of a  ─────►   ~births/a          r7             core/configmaps/  default/kube-root-ca.crt
//!   edited in a  ─────►   core/…/a/default/kube-root-ca.crt r9 {…}
//!   record of b  ─────►   ~births/b          r8
//!   deleted in b ─────►   core/…/b/default/kube-root-ca.crt r10 (empty: a tombstone)
//!
//!   visible through [`BootstrapStore`]:  in a: as edited, at r9;  in b: nothing;  in c: the template's, at c's record
//! ```
//!
//! A [`BootstrapStore`] wraps a store. In each logical cluster with a record, an object of the template exists with the
//! revision of the record, until the first write at its key stores it. A deletion stores a tombstone: an empty value,
//! which no object has. Clients do not see tombstones. All other keys pass through.
//!
//! ```text
//!   stored at the key         visible with      visible without
//!   of a template object      a record          a record
//!   ────────────────────      ───────────       ───────────────
//!   nothing                   the template's    nothing
//!   a tombstone               nothing           nothing
//!   an object                 the object        the object
//! ```
//!
//! A read that takes two reads of the inner store takes both at one revision, so its result is true at a revision, as
//! with any store. Writes need no lock: every change of the visible object at a key, except by a record, changes the
//! stored entry at that key, and the inner commit compares that entry.
//!
//! Two rules make this exact. A record is created once per id. Nothing is written at the key of a template object in a
//! logical cluster without a record.

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
use crate::clusters::records::{self, LogicalClusterRecord};
use crate::keys;

/// A read of several steps starts over if its revision is compacted meanwhile. Each retry takes another compaction, and
/// compactions are minutes apart.
const ATTEMPTS: usize = 4;

/// Adds the objects of a template to every logical cluster that has a record and has not changed them.
#[derive(Debug)]
pub struct BootstrapStore(Arc<BootstrapState>);

#[derive(Debug)]
struct BootstrapState {
    inner: Arc<dyn Store>,
    template: Template,
}

/// A record and its revision.
#[derive(Clone, Debug)]
struct RecordAtRevision {
    record: LogicalClusterRecord,
    revision: Revision,
}

impl BootstrapStore {
    pub fn new(inner: Arc<dyn Store>, template: Template) -> BootstrapStore {
        BootstrapStore(Arc::new(BootstrapState { inner, template }))
    }

    /// Returns the store of a server: every logical cluster has these objects, and the root exists.
    pub async fn open(
        inner: Arc<dyn Store>,
        objects: Vec<BootstrapObject>,
    ) -> Result<Arc<dyn Store>, CommitError> {
        let store = Arc::new(BootstrapStore::new(inner, Template::new(objects)));
        records::write(&*store, Id::ROOT, &LogicalClusterRecord::root()).await?;
        Ok(store)
    }
}

impl Store for BootstrapStore {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        match self.0.template.find(key) {
            Some((id, object)) => Box::pin(self.0.get(key, id, object)),
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
        if let Some((id, object)) = self.0.template.find(&key) {
            let object = object.clone();
            return Box::pin(async move { self.0.commit(key, id, &object, expect, change).await });
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

/// Returns the visible object for an entry at the key of a template object.
fn visible(entry: Option<Entry>) -> Option<Entry> {
    entry.filter(|entry| !is_tombstone(entry))
}

impl BootstrapState {
    async fn get(
        &self,
        key: &Key,
        id: Id,
        object: &Arc<TemplateObject>,
    ) -> Result<At<Option<Entry>>, ReadError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let At { revision, value } = self.inner.get(key).await?;
            if value.is_some() {
                return Ok(At { revision, value: visible(value) });
            }
            match self.record_at(id, revision).await {
                Err(ReadError::Compacted { .. }) if attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(found) => {
                    let value = found.map(|found| object.entry(key.clone(), &found.record, found.revision));
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
                // Without a given revision the list starts over at the newest one; a given revision may be compacted
                // for good.
                Err(ReadError::Compacted { .. }) if page.at.is_none() && attempt < ATTEMPTS => {}
                done => return done,
            }
        }
    }

    /// Returns the record of a logical cluster at `revision`.
    async fn record_at(&self, id: Id, revision: Revision) -> Result<Option<RecordAtRevision>, ReadError> {
        let page = Page { at: Some(revision), ..Page::default() };
        let listed = self.inner.list(Range::key(keys::cluster_record(id)), page).await?;
        Ok(listed.value.entries.first().and_then(RecordAtRevision::read))
    }

    async fn commit(
        &self,
        key: Key,
        id: Id,
        object: &Arc<TemplateObject>,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        if matches!(&change, Change::Put(value) if value.is_empty()) {
            let reason = "an object cannot have an empty value: it marks a deletion".to_owned();
            return Err(CommitError::Refused { reason });
        }
        let mut stored = self.inner.get(&key).await.map_err(unread)?;
        loop {
            let found = match self.record_at(id, stored.revision).await {
                Err(ReadError::Compacted { .. }) => {
                    stored = self.inner.get(&key).await.map_err(unread)?;
                    continue;
                }
                found => found.map_err(unread)?,
            };
            let current = match &stored.value {
                None => found.as_ref().map(|found| object.entry(key.clone(), &found.record, found.revision)),
                some => visible(some.clone()),
            };
            let (inner_expect, inner_change) = decide(&stored, &current, found.is_some(), expect, &change)?;
            match self.inner.commit(key.clone(), inner_expect, inner_change).await {
                Ok(event) => return Ok(self.event_for_writer(event, current, id, object).await),
                // Another write came first. If the entry is still as the caller expects, the commit is tried again.
                Err(CommitError::Conflict { current }) => stored = current,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the event for the writer of a commit, the same as watchers get. If the record was deleted between the
    /// read of `previous` and the commit, the template object was no longer visible.
    async fn event_for_writer(
        &self,
        event: Event,
        previous: Option<Entry>,
        id: Id,
        object: &Arc<TemplateObject>,
    ) -> Event {
        let (revision, current) = (event.revision, visible(event.current.clone()));
        let key = event.key.clone();
        match self.visible_event(event, id, object, revision).await {
            Ok(Some(event)) => event,
            _ => Event { revision, key, current, previous },
        }
    }

    /// Returns the visible event for a change at the key of a template object. None if nothing visible changed.
    /// `records_at` is a revision at or after the event's at which records are cheap to read.
    async fn visible_event(
        &self,
        event: Event,
        id: Id,
        object: &Arc<TemplateObject>,
        records_at: Revision,
    ) -> Result<Option<Event>, ReadError> {
        let previous = match event.previous {
            None => self.untouched(&event.key, id, object, event.revision, records_at).await?,
            some => visible(some),
        };
        let current = visible(event.current);
        let visible = previous.is_some() || current.is_some();
        Ok(visible.then_some(Event { previous, current, ..event }))
    }

    /// Returns the template object as it was visible before its first change, at `revision`.
    async fn untouched(
        &self,
        key: &Key,
        id: Id,
        object: &Arc<TemplateObject>,
        revision: Revision,
        records_at: Revision,
    ) -> Result<Option<Entry>, ReadError> {
        let mut found = self.record_at(id, records_at).await?.filter(|found| found.revision < revision);
        // No record at `records_at`: it may have been deleted after `revision`. The opposite cannot happen, because a
        // record is created once per id.
        if found.is_none() && records_at != revision {
            found = self.record_at(id, revision).await?;
        }
        Ok(found.map(|found| object.entry(key.clone(), &found.record, found.revision)))
    }

    /// Commits a record. Records are never changed. Deleting one also removes the tombstones of the logical cluster,
    /// even if the record was deleted before: an interrupted caller repeats the call.
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
        let is_deleted = match &outcome {
            Ok(_) => true,
            Err(CommitError::Conflict { current }) => current.value.is_none(),
            Err(_) => false,
        };
        if ends && is_deleted {
            self.clear(id).await?;
        }
        outcome
    }

    /// Removes the tombstones of a logical cluster whose record was deleted.
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

impl RecordAtRevision {
    fn read(entry: &Entry) -> Option<RecordAtRevision> {
        Some(RecordAtRevision { record: LogicalClusterRecord::decode(entry)?, revision: entry.revision() })
    }
}

/// Returns the change of the inner store for a change at the key of a template object, given the stored and the visible
/// entry.
fn decide(
    stored: &At<Option<Entry>>,
    current: &Option<Entry>,
    has_record: bool,
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
        Change::Put(_) if !has_record && current.is_none() => {
            Err(CommitError::ReadOnly { reason: "the logical cluster does not exist".to_owned() })
        }
        Change::Put(value) => Ok((inner_expect, Change::Put(value.clone()))),
        // Without a record the template is not visible, and no later deletion would remove the tombstone.
        Change::Delete if !has_record => Ok((inner_expect, Change::Delete)),
        Change::Delete => Ok((inner_expect, Change::Put(bytes::Bytes::new()))),
    }
}

fn unread(error: ReadError) -> CommitError {
    CommitError::Unavailable { reason: error.to_string() }
}
