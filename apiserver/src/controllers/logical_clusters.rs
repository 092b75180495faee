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
use crate::controllers::Controllers;
use crate::controllers::collections;
use crate::controllers::delete_collection;
use crate::controllers::write::{ReconcileError, amend, delete};
use crate::objects::{metadata, stored};
use crate::registry::deletion::DeleteOptions;

/// Objects removed before the condition is updated: at some ten thousand a second, about every second.
const BUDGET: usize = 10_000;

/// The remaining objects of a logical cluster.
struct Left {
    objects: usize,
    clusters: usize,
}

pub(super) async fn reconcile(controllers: &Controllers, key: Key) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.seen;
    let Some(entry) = store.get(&key).await?.value else { return Ok(Outcome::Done) };
    let tree = stored::tree(&entry).unwrap_or_default();
    if !metadata::is_being_deleted(&tree) {
        return Ok(Outcome::Done);
    }
    let left = match logical::id(&tree) {
        Some(id) => empty(controllers, id).await?,
        None => Left { objects: 0, clusters: 0 },
    };
    match left {
        Left { objects: 0, clusters: 0 } => finish(controllers, &entry, &tree).await,
        left => {
            amend(store, logical::resource(), &entry, |object| say(object, &left)).await?;
            // The deletion of the last logical cluster inside requeues this one.
            Ok(if left.clusters > 0 { Outcome::Done } else { Outcome::RequeueAfter(Duration::ZERO) })
        }
    }
}

async fn empty(controllers: &Controllers, id: api::cluster::Id) -> Result<Left, ReconcileError> {
    let store = &*controllers.seen;
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
    let mut left = Left { objects: 0, clusters: inner.len() };
    if left.clusters > 0 {
        return Ok(left);
    }
    // This deletes the unchanged bootstrap objects too, because they exist only by the record.
    records::end(store, id).await?;
    let mut budget = BUDGET;
    for kept in collections::all(&*controllers.kept, &controllers.kinds.of(id)).await? {
        let range = kept.collection().range(id, None);
        let removed = delete_collection::remove_all(&*controllers.kept, range.clone(), budget).await?;
        budget -= removed;
        // Removed objects count as left, so that another pass follows: a request in flight may have written in the
        // meantime.
        left.objects += removed;
        let page = Page { limit: Some(0), count: true, ..Page::default() };
        left.objects += controllers.kept.list(range, page).await?.value.remaining.unwrap_or(0);
    }
    Ok(left)
}

fn say(object: &mut Value, left: &Left) {
    let message = match left {
        Left { clusters: 0, objects } => format!("{objects} objects remain"),
        Left { clusters, .. } => format!("{clusters} child logical clusters remain"),
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
    controllers.seen.commit(entry.key().clone(), expect, Change::Delete).await?;
    Ok(Outcome::Done)
}
