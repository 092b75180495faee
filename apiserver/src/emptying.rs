//! Deleting what holds other objects: a namespace, a logical cluster.
//!
//! ```text
//!   marked as leaving ─► what it holds is deleted, a bounded number at a time ─► it goes itself
//! ```
//!
//! The work is done in the request that asks for it. What a request does not get done (there is too much, or
//! something waits for a finalizer) goes on with the next one that deletes or changes something there. A
//! controller will take this over.
//!
//! Nothing is created behind its back: whoever creates looks at the namespace again afterwards.

use api::cluster::Id;
use futures::{StreamExt, TryStreamExt, stream};
use openapi::status::Status;
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, Key, Page, Range, Store};

use crate::call::{Call, unreadable, unwritten};
use crate::keys::Collection;
use crate::special::Holder;
use crate::verbs::delete;
use crate::{births, clusters, metadata, publish, stored};

/// Deletions of one request. At some thousand durable ones a second, well below a request's minute.
const BUDGET: usize = 20_000;
/// Entries looked at together.
const PAGE_ENTRIES: usize = 500;
/// Deletions under way at once: enough for the store to make one batch of many.
const TOGETHER: usize = 64;
/// How often to decide anew when somebody else changes an object meanwhile.
const ATTEMPTS: usize = 5;

/// Goes on with what the object of this request, or its namespace, still has to do before it can go.
pub(crate) async fn settle(store: &dyn Store, call: &Call) -> Result<(), Status> {
    let namespaces = clusters::NAMESPACES;
    if let Some(namespace) = &call.namespace {
        let key = namespaces.key(call.cluster, None, namespace);
        return finish(store, call, Holder::Namespace, &key, namespace).await;
    }
    match (Holder::of(&call.row), &call.name) {
        (Some(holder), Some(name)) => finish(store, call, holder, &call.key(name), name).await,
        _ => Ok(()),
    }
}

/// Empties what is leaving, and lets it go once it is empty and nobody's finalizer holds it.
async fn finish(store: &dyn Store, call: &Call, holder: Holder, key: &Key, name: &str) -> Result<(), Status> {
    for _ in 0..ATTEMPTS {
        let Some(entry) = store.get(key).await.map_err(unreadable)?.value else { return Ok(()) };
        let tree = stored::tree(&entry).unwrap_or_default();
        if !metadata::is_leaving(&tree) {
            return Ok(());
        }
        let mut budget = BUDGET;
        let empty = match (holder, clusters::id(&tree)) {
            (Holder::Namespace, _) => empty_namespace(store, call, name, &mut budget).await?,
            (Holder::LogicalCluster, Some(id)) => empty_cluster(store, call, id, &mut budget).await?,
            (Holder::LogicalCluster, None) => true,
        };
        if !empty || metadata::has_finalizers(&tree) {
            return Ok(());
        }
        match store.commit(key.clone(), Expect::Revision(entry.revision()), Change::Delete).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(unwritten(call, name, error)),
        }
    }
    Ok(())
}

/// Whether nothing is left.
async fn empty_namespace(
    store: &dyn Store,
    call: &Call,
    name: &str,
    budget: &mut usize,
) -> Result<bool, Status> {
    let mut empty = true;
    for row in publish::rows().iter().filter(|row| row.namespaced) {
        let collection = Collection { group: &row.group, plural: &row.plural };
        empty &=
            sweep(store, call, collection.range(call.cluster, Some(name)), budget, Finalizers::Wait).await?;
    }
    Ok(empty)
}

/// The same for a logical cluster. Whatever would do the work of its finalizers goes with it.
async fn empty_cluster(store: &dyn Store, call: &Call, id: Id, budget: &mut usize) -> Result<bool, Status> {
    let mut empty = true;
    for inner in clusters::inner(store, id).await.map_err(unreadable)? {
        empty &= Box::pin(empty_cluster(store, call, inner, budget)).await?;
    }
    // What it was born with goes at once. The rest is swept; a deletion that was decided on before may leave a
    // tombstone until after that.
    end(store, call, id).await?;
    // Logical clusters come last: with their objects, what is left inside of them would be out of reach.
    for row in publish::rows() {
        let collection = Collection { group: &row.group, plural: &row.plural };
        if empty || Holder::of(row) != Some(Holder::LogicalCluster) {
            empty &= sweep(store, call, collection.range(id, None), budget, Finalizers::Ignore).await?;
        }
    }
    end(store, call, id).await?;
    Ok(empty)
}

async fn end(store: &dyn Store, call: &Call, id: Id) -> Result<(), Status> {
    births::end(store, id).await.map_err(|error| unwritten(call, "", error))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Finalizers {
    Wait,
    Ignore,
}

/// Deletes a range, page by page. False if something is left.
async fn sweep(
    store: &dyn Store,
    call: &Call,
    range: Range,
    budget: &mut usize,
    finalizers: Finalizers,
) -> Result<bool, Status> {
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    let mut empty = true;
    loop {
        let read = store.list(range.clone(), page.clone()).await.map_err(unreadable)?;
        let entries = read.value.entries;
        if entries.len() > *budget {
            return Ok(false);
        }
        *budget -= entries.len();
        page.after = entries.last().map(|entry| entry.key().clone());
        let removals = stream::iter(entries).map(|entry| remove(store, call, entry, finalizers));
        let gone: Vec<bool> = removals.buffer_unordered(TOGETHER).try_collect().await?;
        empty &= gone.into_iter().all(|gone| gone);
        if !read.value.more {
            return Ok(empty);
        }
    }
}

/// Whether it is gone; false if it waits for a finalizer, or somebody keeps changing it.
async fn remove(
    store: &dyn Store,
    call: &Call,
    entry: Entry,
    finalizers: Finalizers,
) -> Result<bool, Status> {
    let mut entry = entry;
    for _ in 0..ATTEMPTS {
        let tree = match finalizers {
            Finalizers::Wait => stored::tree(&entry).unwrap_or_default(),
            Finalizers::Ignore => Value::Null,
        };
        let change = match metadata::has_finalizers(&tree) {
            true if metadata::is_leaving(&tree) => return Ok(false),
            true => Change::Put(stored::encode(&delete::marked(tree))),
            false => Change::Delete,
        };
        match store.commit(entry.key().clone(), Expect::Revision(entry.revision()), change).await {
            Ok(event) => return Ok(event.current.is_none()),
            Err(CommitError::Conflict { current }) => match current.value {
                Some(current) => entry = current,
                None => return Ok(true),
            },
            Err(error) => return Err(unwritten(call, "", error)),
        }
    }
    Ok(false)
}
