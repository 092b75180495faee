//! Empties logical clusters that are being deleted.
//!
//! ```text
//!   marked ─► the logical clusters inside ─► everything it holds ─► gone
//! ```
//!
//! No client reaches a logical cluster that is being deleted, so no controller could act on a finalizer in it: its objects
//! is removed as it is. The object that stands for it says how far that is.

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

/// Removed before the object says how far it is: at some ten thousand a second, about every second.
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
    if !metadata::is_leaving(&tree) {
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
            // The last of the logical clusters inside makes us look again.
            Ok(if left.clusters > 0 { Outcome::Done } else { Outcome::RequeueAfter(Duration::ZERO) })
        }
    }
}

async fn empty(controllers: &Controllers, id: api::cluster::Id) -> Result<Left, ReconcileError> {
    let store = &*controllers.seen;
    let inner = store.list(logical::COLLECTION.range(id, None), Page::default()).await?.value.entries;
    for entry in &inner {
        // No client reaches it any more to act on a finalizer.
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
    // The unchanged bootstrap objects go with it, at once.
    records::end(store, id).await?;
    let mut budget = BUDGET;
    for kept in collections::all(&*controllers.kept, &controllers.kinds.of(id)).await? {
        let range = kept.collection().range(id, None);
        let removed = delete_collection::remove_all(&*controllers.kept, range.clone(), budget).await?;
        budget -= removed;
        // It is empty when a whole pass has found nothing: a request in flight may have written meanwhile.
        left.objects += removed;
        let page = Page { limit: Some(0), count: true, ..Page::default() };
        left.objects += controllers.kept.list(range, page).await?.value.remaining.unwrap_or(0);
    }
    Ok(left)
}

fn say(object: &mut Value, left: &Left) {
    let message = match left {
        Left { clusters: 0, objects } => format!("{objects} objects are left"),
        Left { clusters, .. } => format!("{clusters} logical clusters inside are left"),
    };
    let since = object["metadata"]["deletionTimestamp"].clone();
    object["status"]["conditions"] = json!([{
        "type": "ContentRemoved", "status": "False", "lastTransitionTime": since,
        "reason": "Deleting", "message": message,
    }]);
}

/// It is empty: it is deleted, unless a finalizer holds it.
async fn finish(controllers: &Controllers, entry: &Entry, tree: &Value) -> Result<Outcome, ReconcileError> {
    if metadata::has_finalizers(tree) {
        return Ok(Outcome::Done);
    }
    let expect = Expect::Revision(entry.revision());
    controllers.seen.commit(entry.key().clone(), expect, Change::Delete).await?;
    Ok(Outcome::Done)
}
