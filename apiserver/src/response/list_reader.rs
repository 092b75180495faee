//! Reads the objects of a list while it is sent.

use std::sync::Arc;
use std::vec;

use openapi::catalog::resource_info::ResourceInfo;
use storage::{Entry, Page, Range, ReadError, Revision, Store};

use crate::objects::selection::Selection;

/// Page size while a list is sent. A client that does not read keeps this many entries referenced.
pub(crate) const SENT_ENTRIES: usize = 256;

/// Reads a collection at one revision, page by page, each page only when it is needed.
#[derive(Clone, Debug)]
pub(crate) struct ListReader {
    pub(crate) revision: Revision,
    buffered: vec::IntoIter<Entry>,
    /// None once all pages are read.
    next_pages: Option<NextPages>,
    /// The maximum number of entries still to return.
    remaining: usize,
}

#[derive(Clone, Debug)]
struct NextPages {
    store: Arc<dyn Store>,
    range: Range,
    resource: Arc<ResourceInfo>,
    selection: Selection,
    page: Page,
}

impl ListReader {
    /// Reads the first page; its revision is that of all pages.
    pub(crate) async fn start(
        store: &Arc<dyn Store>,
        range: Range,
        resource: Arc<ResourceInfo>,
        selection: &Selection,
        page: Page,
    ) -> Result<ListReader, ReadError> {
        let next_pages = NextPages {
            store: store.clone(),
            range,
            resource,
            selection: selection.clone(),
            page: Page { limit: Some(SENT_ENTRIES), ..page },
        };
        let mut reader = ListReader { next_pages: Some(next_pages), ..ListReader::of(Vec::new()) };
        reader.read_page().await?;
        Ok(reader)
    }

    /// Returns a reader over entries that were read already.
    pub(crate) fn of(entries: Vec<Entry>) -> ListReader {
        ListReader {
            revision: Revision::ZERO,
            buffered: entries.into_iter(),
            next_pages: None,
            remaining: usize::MAX,
        }
    }

    /// Limits the number of entries.
    pub(crate) fn limited(self, entries: usize) -> ListReader {
        ListReader { remaining: entries, ..self }
    }

    /// Returns the next entry. None at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.peek().await?.is_none() {
            return Ok(None);
        }
        self.remaining -= 1;
        Ok(self.buffered.next())
    }

    /// Returns the next entry without consuming it.
    pub(crate) async fn peek(&mut self) -> Result<Option<&Entry>, ReadError> {
        while self.buffered.len() == 0 && self.remaining > 0 && self.next_pages.is_some() {
            self.read_page().await?;
        }
        Ok(self.buffered.as_slice().first().filter(|_| self.remaining > 0))
    }

    /// Sums up `of` over the entries of the current page. If more pages follow, counts this page twice as an estimate.
    pub(crate) fn add_up(&self, of: impl Fn(&Entry) -> usize) -> usize {
        let buffered: usize = self.buffered.as_slice().iter().take(self.remaining).map(of).sum();
        if self.next_pages.is_some() { 2 * buffered } else { buffered }
    }

    async fn read_page(&mut self) -> Result<(), ReadError> {
        let Some(next_pages) = &mut self.next_pages else { return Ok(()) };
        let read = next_pages.store.list(next_pages.range.clone(), next_pages.page.clone()).await?;
        self.revision = read.revision;
        next_pages.page.at = Some(read.revision);
        next_pages.page.after = read.value.entries.last().map(|entry| entry.key().clone());
        let mut entries = read.value.entries;
        entries.retain(|entry| next_pages.selection.holds(&next_pages.resource, entry));
        self.buffered = entries.into_iter();
        if !read.value.more {
            self.next_pages = None;
        }
        Ok(())
    }
}
