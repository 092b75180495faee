//! Deletes the contents of terminating logical clusters.
//!
//! ```text
//!   marked ─► the logical clusters inside ─► all other objects ─► removed
//! ```
//!
//! Clients cannot reach a terminating logical cluster, so no controller could remove a finalizer in it: its objects are
//! removed regardless. A condition of the LogicalCluster object reports the progress.

use controller::queue::Outcome;
use serde_json::{Value, json};
use std::time::Duration;
use storage::{Change, Entry, Expect, Key, Page};

use crate::clusters::logical_cluster as logical;
use crate::clusters::records;
use crate::controllers::write::{ReconcileError, amend, delete};
use crate::controllers::{Controllers, collections, delete_collection, record_revision};
use crate::objects::{metadata, stored};
use crate::registry::deletion::DeleteOptions;

/// Objects removed before the condition is updated: at some ten thousand a second, about every second.
const BUDGET: usize = 10_000;

/// The remaining objects of a logical cluster.
struct Remaining {
    objects: usize,
    clusters: usize,
}

pub(super) async fn reconcile(controllers: &Controllers, key: Key) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.store;
    let Some(entry) = store.get(&key).await?.value else { return Ok(Outcome::Done) };
    record_revision(entry.revision());
    let tree = stored::tree(&entry).unwrap_or_default();
    if !metadata::is_being_deleted(&tree) {
        return Ok(Outcome::Done);
    }
    let remaining = match logical::id(&tree) {
        Some(id) => empty(controllers, id).await?,
        None => Remaining { objects: 0, clusters: 0 },
    };
    match remaining {
        Remaining { objects: 0, clusters: 0 } => finish(controllers, &entry, &tree).await,
        remaining => {
            amend(store, logical::resource(), &entry, |object| set_condition(object, &remaining)).await?;
            // The deletion of the last logical cluster inside requeues this one.
            Ok(if remaining.clusters > 0 { Outcome::Done } else { Outcome::RequeueAfter(Duration::ZERO) })
        }
    }
}

async fn empty(controllers: &Controllers, id: api::cluster::Id) -> Result<Remaining, ReconcileError> {
    let store = &*controllers.store;
    let inner = store.list(logical::COLLECTION.range(id, None), Page::default()).await?.value.entries;
    for entry in &inner {
        // No client can reach this logical cluster any more to remove its finalizers.
        amend(store, logical::resource(), entry, |object| {
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("finalizers"));
        })
        .await?;
        if let Some(entry) = store.get(entry.key()).await?.value {
            delete(store, logical::resource(), &entry, &DeleteOptions::default()).await?;
        }
    }
    let mut remaining = Remaining { objects: 0, clusters: inner.len() };
    if remaining.clusters > 0 {
        return Ok(remaining);
    }
    // This deletes the unchanged bootstrap objects too, because they exist only by the record.
    records::end(store, id).await?;
    let mut budget = BUDGET;
    for collection in collections::all(&*controllers.inner_store, &controllers.kinds.of(id)).await? {
        let range = collection.collection().range(id, None);
        let removed = delete_collection::remove_all(&*controllers.inner_store, range.clone(), budget).await?;
        budget -= removed;
        // Removed objects count as left, so that another pass follows: a request in flight may have written in the
        // meantime.
        remaining.objects += removed;
        let page = Page { limit: Some(0), count: true, ..Page::default() };
        remaining.objects += controllers.inner_store.list(range, page).await?.value.remaining.unwrap_or(0);
    }
    Ok(remaining)
}

fn set_condition(object: &mut Value, remaining: &Remaining) {
    let message = match remaining {
        Remaining { clusters: 0, objects } => format!("{objects} objects remain"),
        Remaining { clusters, .. } => format!("{clusters} child logical clusters remain"),
    };
    let since = object["metadata"]["deletionTimestamp"].clone();
    object["status"]["conditions"] = json!([{
        "type": "ContentRemoved", "status": "False", "lastTransitionTime": since,
        "reason": "Deleting", "message": message,
    }]);
}

/// Deletes the object of an empty logical cluster, unless it has a finalizer.
async fn finish(controllers: &Controllers, entry: &Entry, tree: &Value) -> Result<Outcome, ReconcileError> {
    if metadata::has_finalizers(tree) {
        return Ok(Outcome::Done);
    }
    let expect = Expect::Revision(entry.revision());
    controllers.store.commit(entry.key().clone(), expect, Change::Delete).await?;
    Ok(Outcome::Done)
}
