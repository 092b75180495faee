//! The records of logical clusters: which ones exist, and since when.
//!
//! ```text
//!   record ─► LogicalCluster object ─► … ─► record deleted ─► its objects deleted ─► LogicalCluster object deleted
//! ```
//!
//! A record is a small entry per id, outside of all logical clusters. While it exists, the logical cluster has the
//! [bootstrap objects](crate::clusters::bootstrap), with the record's revision. A record is created once and deleted
//! once: ids are never reused.

use api::cluster::{Id, ROOT};
use serde::{Deserialize, Serialize};
use storage::{Change, CommitError, Entry, Expect, ReadError, Store};
use uuid::Uuid;

use crate::authn::service_accounts;
use crate::keys;
use crate::objects::metadata;

/// The record of a logical cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogicalClusterRecord {
    /// The time of creation, in seconds, as Kubernetes writes times.
    pub time: String,
    /// Random. The uids of bootstrap objects are derived from it, so that no two logical clusters have one in common,
    /// not even the roots of two servers.
    pub seed: Uuid,
    /// The parent. None for the root.
    pub parent: Option<Id>,
    /// The name of its object in the parent.
    pub name: String,
}

/// The stored form. Names are short because each of a million idle logical clusters has one.
#[derive(Serialize, Deserialize)]
struct StoredRecord {
    t: String,
    s: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<String>,
    n: String,
}

impl LogicalClusterRecord {
    /// Returns the record of a logical cluster that is created now as `name` in `parent`.
    pub fn new(parent: Id, name: &str) -> LogicalClusterRecord {
        LogicalClusterRecord {
            time: metadata::now(),
            seed: Uuid::new_v4(),
            parent: Some(parent),
            name: name.to_owned(),
        }
    }

    /// Returns a new record of the root.
    pub fn root() -> LogicalClusterRecord {
        LogicalClusterRecord {
            time: metadata::now(),
            seed: Uuid::new_v4(),
            parent: None,
            name: ROOT.to_owned(),
        }
    }

    pub(crate) fn encode(&self) -> bytes::Bytes {
        let stored = StoredRecord {
            t: self.time.clone(),
            s: self.seed,
            p: self.parent.map(|parent| parent.to_string()),
            n: self.name.clone(),
        };
        serde_json::to_vec(&stored).expect("texts are JSON").into()
    }

    /// Decodes a record. If that fails, the logical cluster has no bootstrap objects except those stored in it.
    pub(crate) fn decode(entry: &Entry) -> Option<LogicalClusterRecord> {
        let stored: StoredRecord = serde_json::from_slice(entry.value()).ok()?;
        let parent = stored.p.map(|parent| parent.parse()).transpose().ok()?;
        Some(LogicalClusterRecord { time: stored.t, seed: stored.s, parent, name: stored.n })
    }
}

/// Returns the record of a logical cluster. None if it does not exist.
pub async fn find(store: &dyn Store, id: Id) -> Result<Option<LogicalClusterRecord>, ReadError> {
    let found = store.get(&keys::cluster_record(id)).await?;
    Ok(found.value.as_ref().and_then(LogicalClusterRecord::decode))
}

/// Creates a record. Idempotent: an existing record with the same parent and name is kept. Fails if the id belongs to
/// another logical cluster.
pub async fn write(store: &dyn Store, id: Id, record: &LogicalClusterRecord) -> Result<(), CommitError> {
    let same = |other: &LogicalClusterRecord| (other.parent, &other.name) == (record.parent, &record.name);
    match store.commit(keys::cluster_record(id), Expect::Absent, Change::Put(record.encode())).await {
        Ok(_) => Ok(()),
        Err(CommitError::Conflict { current })
            if current
                .value
                .as_ref()
                .and_then(LogicalClusterRecord::decode)
                .is_some_and(|other| same(&other)) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Deletes a record, and with it the unchanged bootstrap objects and the signing keys. Idempotent: a second call
/// removes the remains of an interrupted one.
pub async fn end(store: &dyn Store, id: Id) -> Result<(), CommitError> {
    service_accounts::forget(store, id).await?;
    let mut expect = Expect::Absent;
    loop {
        match store.commit(keys::cluster_record(id), expect, Change::Delete).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict { current }) => match current.value {
                Some(entry) => expect = Expect::Revision(entry.revision()),
                None => return Ok(()),
            },
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::memory::Memory;

    #[tokio::test]
    async fn a_record_is_found_by_id_until_it_is_deleted() {
        let store = Memory::new();
        let (id, record) = (Id::new(7), LogicalClusterRecord::new(Id::ROOT, "team-a"));
        assert_eq!(find(&store, id).await, Ok(None));
        write(&store, id, &record).await.unwrap();
        write(&store, id, &LogicalClusterRecord::new(Id::ROOT, "team-a")).await.unwrap();
        assert_eq!(find(&store, id).await, Ok(Some(record)), "the first record is kept");
        let stolen = write(&store, id, &LogicalClusterRecord::new(Id::ROOT, "evil")).await;
        assert!(matches!(stolen, Err(CommitError::Conflict { .. })), "{stolen:?}");
        end(&store, id).await.unwrap();
        end(&store, id).await.unwrap();
        assert_eq!(find(&store, id).await, Ok(None));
    }
}
