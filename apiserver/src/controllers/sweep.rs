//! Deleting many objects, a bounded number at a time.

use futures::{StreamExt, TryStreamExt, stream};
use openapi::resource::Resource;
use storage::{Change, CommitError, Entry, Expect, Page, Range, Store};

use super::write::{Trouble, delete};
use crate::deletion::{Options, Propagation};

/// Entries looked at together.
const PAGE_ENTRIES: usize = 500;
/// Deletions under way at once: enough for the store to make one batch of many.
const TOGETHER: usize = 64;

/// Deletes every object of a range as a client would, leaving those that wait for something.
pub(super) async fn delete_all(store: &dyn Store, row: &Resource, range: Range) -> Result<(), Trouble> {
    // What is collected anyway need not be waited for by its owner.
    let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
    let one = async |entry: Entry| match delete(store, row, &entry, &options).await {
        // Whoever changed it, or refuses, is met again when the range is looked at next.
        Ok(_) | Err(Trouble::Conflict) => Ok(()),
        Err(trouble) => Err(trouble),
    };
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    loop {
        let read = store.list(range.clone(), page.clone()).await?.value;
        page.after = read.entries.last().map(|entry| entry.key().clone());
        stream::iter(read.entries).map(one).buffer_unordered(TOGETHER).try_collect::<()>().await?;
        if !read.more {
            return Ok(());
        }
    }
}

/// Removes the entries of a range, whatever they are and whatever holds them: at most `budget`. How many are done.
pub(super) async fn remove_all(store: &dyn Store, range: Range, budget: usize) -> Result<usize, Trouble> {
    let one = async |entry: Entry| match store
        .commit(entry.key().clone(), Expect::Revision(entry.revision()), Change::Delete)
        .await
    {
        Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Trouble::from(error)),
    };
    let mut done = 0;
    while done < budget {
        let page = Page { limit: Some(PAGE_ENTRIES.min(budget - done)), ..Page::default() };
        let entries = store.list(range.clone(), page).await?.value.entries;
        if entries.is_empty() {
            break;
        }
        done += entries.len();
        stream::iter(entries).map(one).buffer_unordered(TOGETHER).try_collect::<()>().await?;
    }
    Ok(done)
}
