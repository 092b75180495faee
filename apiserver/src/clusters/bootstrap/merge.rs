//! Lists of stored and bootstrap objects, merged in key order at one revision.
//!
//! ```text
//!   stored    ── b ─────── d† ── e ──      † a tombstone
//!   template  ── b ── c ── d ────────
//!   result    ── b ── c ──────── e ──      b is the stored one, d is hidden
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use api::cluster::Id;
use storage::{At, Entry, Key, Listing, Page, Range, ReadError, Revision};

use crate::clusters::bootstrap::template::{TemplateCollection, TemplateObject, TemplateRange};
use crate::clusters::bootstrap::{BootstrapState, RecordAtRevision, is_tombstone};
use crate::keys;

/// Page size while counting across logical clusters.
const COUNTED_TOGETHER: usize = 1000;

/// Lists one page of a range.
pub(super) async fn list(
    shared: &BootstrapState,
    range: &Range,
    page: &Page,
) -> Result<At<Listing>, ReadError> {
    let ranges = shared.template.within(range);
    let alone = alone(&ranges);
    // One entry more than the limit shows whether the list continues. Tombstones may require further reads. Counting
    // across logical clusters reads larger pages, but never all at once; counting in one logical cluster reads none.
    let least = if page.count && alone.is_none() { COUNTED_TOGETHER } else { 0 };
    let chunk = page.limit.map(|limit| limit.max(least).saturating_add(1));
    let mut stored = Pages::new(range.clone(), page.after.clone(), page.at, chunk);
    stored.fetch(shared).await?;
    let revision = stored.revision();
    let range = match &page.after {
        Some(after) => range_after(range, after),
        None => range.clone(),
    };
    let ranges = shared.template.within(&range);
    let template = TemplateCursor::new(range.clone(), &ranges, revision, chunk);
    let mut merge = MergeIterator { shared, stored, template };
    let limit = page.limit.unwrap_or(usize::MAX);
    let mut listing = Listing::default();
    while listing.entries.len() < limit {
        let Some(found) = merge.next().await? else {
            listing.remaining = page.count.then_some(0);
            return Ok(At { revision, value: listing });
        };
        listing.entries.push(found.entry());
    }
    if !page.count {
        listing.more = merge.next().await?.is_some();
        return Ok(At { revision, value: listing });
    }
    let remaining = match alone {
        Some((id, collection)) => {
            let left =
                listing.entries.last().map_or_else(|| range.clone(), |last| range_after(&range, last.key()));
            count(shared, id, &collection, left, revision).await?
        }
        None => {
            let mut remaining = 0;
            while merge.next().await?.is_some() {
                remaining += 1;
            }
            remaining
        }
    };
    (listing.more, listing.remaining) = (remaining > 0, Some(remaining));
    Ok(At { revision, value: listing })
}

/// Returns the logical cluster and the collection of a range, if it has only one of each.
fn alone(ranges: &[TemplateRange]) -> Option<(Id, Arc<TemplateCollection>)> {
    let [TemplateRange { collection, only: Some(id), .. }] = ranges else { return None };
    Some((*id, collection.clone()))
}

/// Counts the visible objects in a range of one logical cluster. The store counts its entries without reading them;
/// only the few keys of template objects need a correction.
async fn count(
    shared: &BootstrapState,
    id: Id,
    collection: &TemplateCollection,
    range: Range,
    revision: Revision,
) -> Result<usize, ReadError> {
    let page = |limit, count| Page { at: Some(revision), limit, count, ..Page::default() };
    let has_record = shared.record_at(id, revision).await?.is_some();
    let places = collection.objects.iter().map(|object| collection.key(object, id));
    let (mut unchanged, mut hidden) = (0, 0);
    for key in places.filter(|key| range.contains(key.as_bytes())) {
        let found = shared.inner.list(Range::key(key), page(None, false)).await?;
        match found.value.entries.first() {
            None => unchanged += usize::from(has_record),
            Some(entry) => hidden += usize::from(is_tombstone(entry)),
        }
    }
    let stored = shared.inner.list(range, page(Some(0), true)).await?.value.remaining.unwrap_or(0);
    Ok((stored + unchanged).saturating_sub(hidden))
}

/// Returns the part of a range after a key.
fn range_after(range: &Range, after: &Key) -> Range {
    if after < range.start() {
        return range.clone();
    }
    let start = [after.as_bytes(), &[0]].concat();
    match range.end() {
        Some(end) => Range::between(start, end.clone()),
        // Only the range of all keys has no end. All keys of template objects begin with a letter.
        None => Range::between(start, &[u8::MAX][..]),
    }
}

/// A visible object. A bootstrap object is rendered only if it is returned, not if it is only counted.
enum VisibleObject<'a> {
    Stored(Entry),
    Template { key: Key, object: &'a Arc<TemplateObject>, found: RecordAtRevision },
}

impl VisibleObject<'_> {
    fn entry(self) -> Entry {
        match self {
            VisibleObject::Stored(entry) => entry,
            VisibleObject::Template { key, object, found } => {
                object.entry(key, &found.record, found.revision)
            }
        }
    }
}

struct MergeIterator<'a> {
    shared: &'a BootstrapState,
    stored: Pages,
    template: TemplateCursor<'a>,
}

impl<'a> MergeIterator<'a> {
    async fn next(&mut self) -> Result<Option<VisibleObject<'a>>, ReadError> {
        loop {
            let stored = self.stored.peek(self.shared).await?.map(|entry| entry.key().clone());
            let template = self.template.peek(self.shared).await?;
            match (stored, template) {
                (None, None) => return Ok(None),
                (Some(stored), template) if template.is_none_or(|template| stored <= *template) => {
                    if template.is_some_and(|template| stored == *template) {
                        self.template.pop();
                    }
                    let entry = self.stored.pop();
                    let is_hidden = |entry: &Entry| {
                        is_tombstone(entry) && self.shared.template.find(entry.key()).is_some()
                    };
                    if let Some(entry) = entry.filter(|entry| !is_hidden(entry)) {
                        return Ok(Some(VisibleObject::Stored(entry)));
                    }
                }
                _ => {
                    if let Some((key, object, found)) = self.template.pop() {
                        return Ok(Some(VisibleObject::Template { key, object, found }));
                    }
                }
            }
        }
    }
}

/// Entries of the inner store, read page by page at one revision: the given one, or that of the first page.
pub(super) struct Pages {
    range: Range,
    page: Page,
    entries: VecDeque<Entry>,
    more: bool,
}

impl Pages {
    pub(super) fn new(range: Range, after: Option<Key>, at: Option<Revision>, limit: Option<usize>) -> Pages {
        Pages { range, page: Page { after, limit, at, count: false }, entries: VecDeque::new(), more: true }
    }

    /// Returns the revision of the pages. Zero before the first page is read.
    fn revision(&self) -> Revision {
        self.page.at.unwrap_or_default()
    }

    async fn fetch(&mut self, shared: &BootstrapState) -> Result<(), ReadError> {
        let read = shared.inner.list(self.range.clone(), self.page.clone()).await?;
        self.page.at = Some(read.revision);
        self.more = read.value.more;
        if let Some(last) = read.value.entries.last() {
            self.page.after = Some(last.key().clone());
        }
        self.entries.extend(read.value.entries);
        Ok(())
    }

    pub(super) async fn peek(&mut self, shared: &BootstrapState) -> Result<Option<&Entry>, ReadError> {
        while self.entries.is_empty() && self.more {
            self.fetch(shared).await?;
        }
        Ok(self.entries.front())
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }
}

/// The template objects in all logical clusters of a range, in key order: by collection, then by record, then by
/// object.
struct TemplateCursor<'a> {
    range: Range,
    revision: Revision,
    chunk: Option<usize>,
    ranges: &'a [TemplateRange],
    records: Option<Pages>,
    next: VecDeque<(Key, &'a Arc<TemplateObject>, RecordAtRevision)>,
}

impl<'a> TemplateCursor<'a> {
    fn new(range: Range, ranges: &'a [TemplateRange], revision: Revision, chunk: Option<usize>) -> Self {
        TemplateCursor { range, revision, chunk, ranges, records: None, next: VecDeque::new() }
    }

    async fn peek(&mut self, shared: &BootstrapState) -> Result<Option<&Key>, ReadError> {
        while self.next.is_empty() {
            let Some((range, others)) = self.ranges.split_first() else { return Ok(None) };
            let records = self.records.get_or_insert_with(|| {
                Pages::new(range.records.clone(), None, Some(self.revision), self.chunk)
            });
            if records.peek(shared).await?.is_none() {
                (self.records, self.ranges) = (None, others);
                continue;
            }
            let record = records.pop();
            let Some(id) = record.as_ref().and_then(|record| keys::cluster_record_id(record.key())) else {
                continue;
            };
            let Some(found) = record.as_ref().and_then(RecordAtRevision::read) else { continue };
            let objects =
                range.collection.objects.iter().map(|object| (range.collection.key(object, id), object));
            let covered = objects.filter(|(key, _)| self.range.contains(key.as_bytes()));
            self.next.extend(covered.map(|(key, object)| (key, object, found.clone())));
        }
        Ok(self.next.front().map(|(key, ..)| key))
    }

    fn pop(&mut self) -> Option<(Key, &'a Arc<TemplateObject>, RecordAtRevision)> {
        self.next.pop_front()
    }
}
