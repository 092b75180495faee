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
    held: vec::IntoIter<Entry>,
    /// None once all pages are read.
    rest: Option<Rest>,
    /// The maximum number of entries still to return.
    left: usize,
}

#[derive(Clone, Debug)]
struct Rest {
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
        let rest = Rest {
            store: store.clone(),
            range,
            resource,
            selection: selection.clone(),
            page: Page { limit: Some(SENT_ENTRIES), ..page },
        };
        let mut reader = ListReader { rest: Some(rest), ..ListReader::of(Vec::new()) };
        reader.read_on().await?;
        Ok(reader)
    }

    /// Returns a reader over entries that were read already.
    pub(crate) fn of(entries: Vec<Entry>) -> ListReader {
        ListReader { revision: Revision::ZERO, held: entries.into_iter(), rest: None, left: usize::MAX }
    }

    /// Limits the number of entries.
    pub(crate) fn limited(self, entries: usize) -> ListReader {
        ListReader { left: entries, ..self }
    }

    /// Returns the next entry. None at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.peek().await?.is_none() {
            return Ok(None);
        }
        self.left -= 1;
        Ok(self.held.next())
    }

    /// Returns the next entry without consuming it.
    pub(crate) async fn peek(&mut self) -> Result<Option<&Entry>, ReadError> {
        while self.held.len() == 0 && self.left > 0 && self.rest.is_some() {
            self.read_on().await?;
        }
        Ok(self.held.as_slice().first().filter(|_| self.left > 0))
    }

    /// Sums up `of` over the entries of the current page. If more pages follow, counts this page twice as an estimate.
    pub(crate) fn add_up(&self, of: impl Fn(&Entry) -> usize) -> usize {
        let held: usize = self.held.as_slice().iter().take(self.left).map(of).sum();
        if self.rest.is_some() { 2 * held } else { held }
    }

    async fn read_on(&mut self) -> Result<(), ReadError> {
        let Some(rest) = &mut self.rest else { return Ok(()) };
        let read = rest.store.list(rest.range.clone(), rest.page.clone()).await?;
        self.revision = read.revision;
        rest.page.at = Some(read.revision);
        rest.page.after = read.value.entries.last().map(|entry| entry.key().clone());
        let mut entries = read.value.entries;
        entries.retain(|entry| rest.selection.holds(&rest.resource, entry));
        self.held = entries.into_iter();
        if !read.value.more {
            self.rest = None;
        }
        Ok(())
    }
}
