//! Deletes many objects with bounded concurrency.

use futures::{StreamExt, TryStreamExt, stream};
use openapi::catalog::resource_info::ResourceInfo;
use storage::{Change, CommitError, Entry, Expect, Page, Range, Store};

use crate::controllers::write::{ReconcileError, delete};
use crate::registry::deletion::{DeleteOptions, Propagation};

/// Page size of a list.
const PAGE_ENTRIES: usize = 500;
/// Concurrent deletions: enough for the store to commit many in one batch.
const TOGETHER: usize = 64;

/// Deletes all objects of a range as a client would; objects with finalizers only become terminating. Returns the
/// number of objects that another client changed meanwhile, which the caller must try again.
pub(super) async fn delete_all(
    store: &dyn Store,
    resource: &ResourceInfo,
    range: Range,
) -> Result<usize, ReconcileError> {
    // The dependents are deleted too, so no owner needs to wait for its own.
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let one = async |entry: Entry| match delete(store, resource, &entry, &options).await {
        Ok(_) => Ok(0),
        Err(ReconcileError::Conflict) => Ok(1),
        Err(error) => Err(error),
    };
    let mut conflicts = 0;
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    loop {
        let read = store.list(range.clone(), page.clone()).await?.value;
        page.after = read.entries.last().map(|entry| entry.key().clone());
        let each: Vec<usize> =
            stream::iter(read.entries).map(one).buffer_unordered(TOGETHER).try_collect().await?;
        conflicts += each.into_iter().sum::<usize>();
        if !read.more {
            return Ok(conflicts);
        }
    }
}

/// Removes up to `budget` entries of a range regardless of finalizers. Returns their number.
pub(super) async fn remove_all(
    store: &dyn Store,
    range: Range,
    budget: usize,
) -> Result<usize, ReconcileError> {
    let mut done = 0;
    while done < budget {
        let page = Page { limit: Some(PAGE_ENTRIES.min(budget - done)), ..Page::default() };
        let entries = store.list(range.clone(), page).await?.value.entries;
        if entries.is_empty() {
            break;
        }
        done += entries.len();
        remove_each(store, entries).await?;
    }
    Ok(done)
}

/// Removes these entries, except those that have changed since they were read.
pub(super) async fn remove_each(store: &dyn Store, entries: Vec<Entry>) -> Result<(), ReconcileError> {
    let one = async |entry: Entry| {
        let expect = Expect::Revision(entry.revision());
        match store.commit(entry.key().clone(), expect, Change::Delete).await {
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(ReconcileError::from(error)),
        }
    };
    stream::iter(entries).map(one).buffer_unordered(TOGETHER).try_collect().await
}
