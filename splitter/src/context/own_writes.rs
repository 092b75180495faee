//! What the reconciles in progress have written.
//!
//! A decision on older state would repeat a write, or count an object that it has deleted. So a reconcile ends only when
//! the caches have observed its writes. All kinds and logical clusters have one order of revisions: the highest revision
//! of the writes is enough.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use api::meta::metadata;
use controller::informer::Follower;
use serde_json::Value;

use crate::context::{WorkItem, lock};

/// A write that is not observed for this long was lost with a restored server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// By the item that they were made for.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(Mutex<HashMap<WorkItem, Written>>);

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// The highest revision.
    revision: u64,
    /// Whether an object was deleted. The response to a deletion has no revision.
    deleted: bool,
}

impl OwnWrites {
    /// Adds a write, from the response of the server.
    pub(crate) fn add(&self, item: impl Into<WorkItem>, written: &Value) {
        let revision = metadata::text(written, "resourceVersion").parse().unwrap_or_default();
        let mut all = lock(&self.0);
        let of = all.entry(item.into()).or_default();
        of.revision = of.revision.max(revision);
    }

    /// Adds a deletion.
    pub(crate) fn add_deletion(&self, item: impl Into<WorkItem>) {
        lock(&self.0).entry(item.into()).or_default().deleted = true;
    }

    /// Waits until the caches have observed the writes of an item.
    pub(crate) async fn observe(&self, item: &WorkItem, follower: &Follower) {
        let Some(Written { revision, deleted }) = lock(&self.0).remove(item) else { return };
        let observe = async {
            // A server that cannot be read now cannot be written either.
            if deleted && let Err(error) = follower.catch_up().await {
                tracing::warn!(%error, "cannot read the revision of a deletion");
            }
            follower.reach(revision).await;
        };
        if tokio::time::timeout(TIMEOUT, observe).await.is_err() {
            tracing::warn!(
                revision,
                "the caches have not received a write of this splitter; continuing without it"
            );
        }
    }
}
