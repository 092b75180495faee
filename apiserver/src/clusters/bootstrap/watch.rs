//! Watches over stored and bootstrap objects.
//!
//! ```text
//!   entries of the range   ───── r8 ───────────── r12 ───────► 20      each cursor knows how far it has read
//!   records                 ── r7 ────── r10† ────────► 14
//!   result                 ── r7 r7 r7 ─ r8 ─ r10† r10† ─ r12 ──► 14   up to where both have read, in order
//! ```
//!
//! A new record appears as the creation of all template objects in the range, a deleted record as the deletion of the
//! unchanged ones. These events have the revision of that change, and come in one batch in key order.
//!
//! Events are not held back for long: the cursor that is behind is read up to the other one, which never waits for a
//! write. At most one batch of each cursor is held, because a cursor is read only when none of its events are pending.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use api::cluster::Id;
use storage::{Batch, Boxed, Entry, Event, Follow, Key, Range, ReadError, Revision, Watch};

use crate::clusters::bootstrap::merge::Pages;
use crate::clusters::bootstrap::template::{TemplateCollection, TemplateObject, TemplateRange};
use crate::clusters::bootstrap::{BootstrapState, RecordAtRevision};
use crate::keys;

/// Maximum events in a batch, except that events of one revision stay together.
const BATCH_EVENTS: usize = 512;
/// Page size of the list that finds changed template objects of a deleted logical cluster.
const PAGE_ENTRIES: usize = 1000;

pub(super) async fn watch(
    shared: &Arc<BootstrapState>,
    range: Range,
    ranges: Vec<TemplateRange>,
    after: Revision,
) -> Result<Watch, ReadError> {
    let records = match ranges.as_slice() {
        [one] => one.records.clone(),
        _ => keys::cluster_records(),
    };
    let entries = CursorWithPending::new(shared.inner.watch(range.clone(), after).await?);
    let records = CursorWithPending::new(shared.inner.watch(records, after).await?);
    let collections = ranges.into_iter().map(|range| range.collection).collect();
    let cursor = BootstrapCursor {
        shared: shared.clone(),
        range,
        collections,
        entries,
        records,
        delivered_through: after,
    };
    Ok(Watch::new(Box::new(cursor)))
}

#[derive(Debug)]
struct BootstrapCursor {
    shared: Arc<BootstrapState>,
    range: Range,
    collections: Vec<Arc<TemplateCollection>>,
    entries: CursorWithPending,
    records: CursorWithPending,
    /// Everything up to here has been returned.
    delivered_through: Revision,
}

/// One of the two cursors, and its events that are not returned yet.
#[derive(Debug)]
struct CursorWithPending {
    watch: Watch,
    pending: VecDeque<Event>,
}

impl CursorWithPending {
    fn new(watch: Watch) -> CursorWithPending {
        CursorWithPending { watch, pending: VecDeque::new() }
    }

    fn first(&self) -> Option<Revision> {
        self.pending.front().map(|event| event.revision)
    }

    /// Unless events are pending, reads up to `goal` or to the next events.
    async fn until(&mut self, goal: Revision) -> Result<(), ReadError> {
        if self.pending.is_empty()
            && let Some(batch) = self.watch.until(goal).await?
        {
            self.pending.extend(batch.events);
        }
        Ok(())
    }
}

impl Follow for BootstrapCursor {
    fn step(&mut self, goal: Option<Revision>) -> Boxed<'_, Result<Option<Batch>, ReadError>> {
        Box::pin(self.read(goal))
    }

    fn through(&mut self) -> Revision {
        let reached = self.reached();
        if self.first().is_none_or(|first| first > reached) {
            self.delivered_through = self.delivered_through.max(reached);
        }
        self.delivered_through
    }
}

impl BootstrapCursor {
    async fn read(&mut self, goal: Option<Revision>) -> Result<Option<Batch>, ReadError> {
        loop {
            if let Some(batch) = self.deliver().await? {
                return Ok(Some(batch));
            }
            if goal.is_some_and(|goal| self.through() >= goal) {
                return Ok(None);
            }
            match self.first().or(goal) {
                Some(revision) => {
                    self.entries.until(revision).await?;
                    // A goal beyond the newest revision must not hold back the events that there are.
                    let revision = self.first().map_or(revision, |first| first.min(revision));
                    self.records.until(revision).await?;
                }
                // Dropping the other future loses none of its events.
                None => tokio::select! {
                    batch = self.entries.watch.next() => self.entries.pending.extend(batch?.events),
                    batch = self.records.watch.next() => self.records.pending.extend(batch?.events),
                },
            }
        }
    }

    /// Returns the revision that both cursors have reached.
    fn reached(&mut self) -> Revision {
        self.entries.watch.through().min(self.records.watch.through())
    }

    /// Returns the oldest revision with pending events.
    fn first(&self) -> Option<Revision> {
        [self.entries.first(), self.records.first()].into_iter().flatten().min()
    }

    /// Returns the pending events up to where both cursors have read. None if none of them is visible. They stay
    /// pending until the batch is complete, so that dropping this future loses nothing.
    async fn deliver(&mut self) -> Result<Option<Batch>, ReadError> {
        let reached = self.reached();
        let (mut entries, mut records) = (self.entries.pending.iter(), self.records.pending.iter());
        let (mut entry, mut record) = (entries.next(), records.next());
        let mut batch = Batch { events: Vec::new(), through: self.delivered_through };
        loop {
            let next = [entry, record].into_iter().flatten().map(|event| event.revision).min();
            let Some(revision) = next.filter(|revision| *revision <= reached) else {
                batch.through = batch.through.max(reached);
                break;
            };
            if batch.events.len() >= BATCH_EVENTS {
                break;
            }
            if let Some(event) = record.filter(|event| event.revision == revision) {
                self.add_record_events(event, &mut batch.events).await?;
                record = records.next();
            }
            if let Some(event) = entry.filter(|event| event.revision == revision) {
                batch.events.extend(self.visible_event(event, reached).await?);
                entry = entries.next();
            }
            batch.through = revision;
        }
        for cursor in [&mut self.entries, &mut self.records] {
            let done = cursor.pending.partition_point(|event| event.revision <= batch.through);
            cursor.pending.drain(..done);
        }
        self.delivered_through = batch.through;
        Ok(Some(batch).filter(|batch| !batch.events.is_empty()))
    }

    async fn visible_event(&self, event: &Event, reached: Revision) -> Result<Option<Event>, ReadError> {
        match self.shared.template.find(&event.key) {
            Some((id, object)) => self.shared.visible_event(event.clone(), id, object, reached).await,
            None => Ok(Some(event.clone())),
        }
    }

    /// Adds the events of a created or deleted record: template objects appear or disappear.
    async fn add_record_events(&self, event: &Event, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let Some(id) = keys::cluster_record_id(&event.key) else { return Ok(()) };
        let record = |entry: &Option<Entry>| entry.as_ref().and_then(RecordAtRevision::read);
        for collection in &self.collections {
            let objects = collection.objects.iter().map(|object| (collection.key(object, id), object));
            let objects: Vec<(Key, &Arc<TemplateObject>)> =
                objects.filter(|(key, _)| self.range.contains(key.as_bytes())).collect();
            match (record(&event.previous), record(&event.current)) {
                (None, Some(found)) => out.extend(objects.into_iter().map(|(key, object)| {
                    let entry = object.entry(key.clone(), &found.record, found.revision);
                    Event { revision: event.revision, key, current: Some(entry), previous: None }
                })),
                (Some(found), None) if !objects.is_empty() => {
                    let touched = self.touched(collection, id, event.revision).await?;
                    let removed = objects.into_iter().filter(|(key, _)| !touched.contains(key));
                    out.extend(removed.map(|(key, object)| {
                        let entry = object.entry(key.clone(), &found.record, found.revision);
                        Event { revision: event.revision, key, current: None, previous: Some(entry) }
                    }));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the keys of template objects with a stored entry at `revision`. Fails if that revision is compacted:
    /// then this watch is too far behind.
    async fn touched(
        &self,
        collection: &TemplateCollection,
        id: Id,
        revision: Revision,
    ) -> Result<HashSet<Key>, ReadError> {
        let mut touched = HashSet::new();
        let mut stored = Pages::new(collection.range(id), None, Some(revision), Some(PAGE_ENTRIES));
        while stored.peek(&self.shared).await?.is_some() {
            let objects = stored.pop().filter(|entry| self.shared.template.find(entry.key()).is_some());
            touched.extend(objects.map(|entry| entry.key().clone()));
        }
        Ok(touched)
    }
}
