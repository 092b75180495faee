//! Reads the objects of a list while it is sent.

use std::sync::Arc;
use std::vec;

use openapi::catalog::resource_info::ResourceInfo;
use storage::{Entry, Page, Range, ReadError, Revision, Store};

use crate::objects::selection::Selection;

/// Entries read at a time while they are sent: their handles are held for a client that does not read.
pub(crate) const SENT_ENTRIES: usize = 256;

/// Reads a collection at one revision, a page at a time and none before it is needed.
#[derive(Clone, Debug)]
pub(crate) struct ListReader {
    pub(crate) revision: Revision,
    held: vec::IntoIter<Entry>,
    /// None when everything was read.
    rest: Option<Rest>,
    /// After so many entries it ends.
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
    /// Reads the first page, and with it the revision of all others.
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

    /// Of what was read already.
    pub(crate) fn of(entries: Vec<Entry>) -> ListReader {
        ListReader { revision: Revision::ZERO, held: entries.into_iter(), rest: None, left: usize::MAX }
    }

    /// The same, which ends after so many entries.
    pub(crate) fn limited(self, entries: usize) -> ListReader {
        ListReader { left: entries, ..self }
    }

    /// The next entry; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.peek().await?.is_none() {
            return Ok(None);
        }
        self.left -= 1;
        Ok(self.held.next())
    }

    /// The same one, which stays the next.
    pub(crate) async fn peek(&mut self) -> Result<Option<&Entry>, ReadError> {
        while self.held.len() == 0 && self.left > 0 && self.rest.is_some() {
            self.read_on().await?;
        }
        Ok(self.held.as_slice().first().filter(|_| self.left > 0))
    }

    /// Adds up something of all entries. Of those that were not read only a page is counted, and that like this one.
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
