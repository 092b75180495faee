//! Deletes records whose logical cluster was never created.
//!
//! A record is written before the object of its logical cluster. A server that stops in between leaves a record that no
//! path leads to. The record contains the path of the object, so the controller checks, after the longest possible
//! request, whether the object exists.

use std::time::Duration;

use api::cluster::Id;
use controller::queue::Outcome;
use storage::{Page, Store};

use crate::clusters::logical_cluster;
use crate::clusters::records;
use crate::clusters::records::LogicalClusterRecord;
use crate::controllers::write::ReconcileError;
use crate::controllers::{Controllers, record_revision};
use crate::keys;
use crate::objects::stored;

/// Longer than the write of an object after its record can take: a request ends after a minute.
pub(super) const SETTLES: Duration = Duration::from_secs(90);
/// Page size of a list.
const PAGE_ENTRIES: usize = 1000;

pub(super) async fn reconcile(controllers: &Controllers, id: Id) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.store;
    let read = store.get(&keys::cluster_record(id)).await?;
    record_revision(read.revision);
    if let Some(record) = read.value.as_ref().and_then(LogicalClusterRecord::decode)
        && is_orphaned(store, id, &record).await?
    {
        records::end(store, id).await?;
    }
    Ok(Outcome::Done)
}

/// Checks all existing records, once, after a start.
pub(super) async fn reconcile_all(controllers: &Controllers) -> Result<(), ReconcileError> {
    tokio::time::sleep(SETTLES).await;
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    loop {
        let read = controllers.inner_store.list(keys::cluster_records(), page.clone()).await?.value;
        page.after = read.entries.last().map(|entry| entry.key().clone());
        for entry in &read.entries {
            if let (Some(id), Some(record)) =
                (keys::cluster_record_id(entry.key()), LogicalClusterRecord::decode(entry))
                && is_orphaned(&*controllers.store, id, &record).await?
            {
                controllers.records.add(id);
            }
        }
        if !read.more {
            return Ok(());
        }
    }
}

async fn is_orphaned(
    store: &dyn Store,
    id: Id,
    record: &LogicalClusterRecord,
) -> Result<bool, ReconcileError> {
    let Some(parent) = record.parent else { return Ok(false) };
    let found = store.get(&logical_cluster::COLLECTION.key(parent, None, &record.name)).await?.value;
    let found = found.and_then(|entry| stored::tree(&entry).ok());
    Ok(found.as_ref().and_then(logical_cluster::id) != Some(id))
}
