//! The records of logical clusters: which exist, and since when.
//!
//! ```text
//!   record written ─► its LogicalCluster object written ─► … ─► record deleted ─► its objects deleted ─► LogicalCluster object deleted
//! ```
//!
//! A record is one small entry per id, outside of all logical clusters. While it exists, the logical cluster has
//! the [bootstrap objects](crate::clusters::bootstrap), as of the record's revision. A record is created once and deleted
//! once: ids are never used again.

use api::cluster::{Id, ROOT};
use serde::{Deserialize, Serialize};
use storage::{Change, CommitError, Entry, Expect, ReadError, Store};
use uuid::Uuid;

use crate::authn::service_accounts;
use crate::keys;
use crate::objects::metadata;

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogicalClusterRecord {
    /// In seconds, as Kubernetes writes times.
    pub time: String,
    /// Drawn anew for every record. Uids follow from it, so that no two logical clusters have one in common, not
    /// even the roots of two servers.
    pub seed: Uuid,
    /// The logical cluster it was made in; none for the root.
    pub parent: Option<Id>,
    /// What its object is called there.
    pub name: String,
}

/// As it is stored. Names are short because there is one for each of a million idle logical clusters.
#[derive(Serialize, Deserialize)]
struct Kept {
    t: String,
    s: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<String>,
    n: String,
}

impl LogicalClusterRecord {
    /// The record of a logical cluster that is created now as `name` in `parent`.
    pub fn new(parent: Id, name: &str) -> LogicalClusterRecord {
        LogicalClusterRecord {
            time: metadata::now(),
            seed: Uuid::new_v4(),
            parent: Some(parent),
            name: name.to_owned(),
        }
    }

    /// The record, now, of the outermost logical cluster.
    pub fn root() -> LogicalClusterRecord {
        LogicalClusterRecord {
            time: metadata::now(),
            seed: Uuid::new_v4(),
            parent: None,
            name: ROOT.to_owned(),
        }
    }

    pub(crate) fn encode(&self) -> bytes::Bytes {
        let kept = Kept {
            t: self.time.clone(),
            s: self.seed,
            p: self.parent.map(|parent| parent.to_string()),
            n: self.name.clone(),
        };
        serde_json::to_vec(&kept).expect("texts are JSON").into()
    }

    /// None if the entry cannot be read; its logical cluster then has nothing but what was stored in it.
    pub(crate) fn decode(entry: &Entry) -> Option<LogicalClusterRecord> {
        let kept: Kept = serde_json::from_slice(entry.value()).ok()?;
        let parent = kept.p.map(|parent| parent.parse()).transpose().ok()?;
        Some(LogicalClusterRecord { time: kept.t, seed: kept.s, parent, name: kept.n })
    }
}

/// The record of the logical cluster with this id; none if there is no such.
pub async fn find(store: &dyn Store, id: Id) -> Result<Option<LogicalClusterRecord>, ReadError> {
    let found = store.get(&keys::cluster_record(id)).await?;
    Ok(found.value.as_ref().and_then(LogicalClusterRecord::decode))
}

/// Creates a record. Twice changes nothing: the first record stands. An id that is another's is
/// refused.
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

/// Deletes a record: unchanged bootstrap objects are gone at once, and so are its signing keys. Twice changes nothing; the
/// second time clears away what the first may have left when it was interrupted.
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
    async fn a_birth_is_found_by_id_until_it_ends() {
        let store = Memory::new();
        let (id, record) = (Id::new(7), LogicalClusterRecord::new(Id::ROOT, "team-a"));
        assert_eq!(find(&store, id).await, Ok(None));
        write(&store, id, &record).await.unwrap();
        write(&store, id, &LogicalClusterRecord::new(Id::ROOT, "team-a")).await.unwrap();
        assert_eq!(find(&store, id).await, Ok(Some(record)), "the first record stands");
        let stolen = write(&store, id, &LogicalClusterRecord::new(Id::ROOT, "evil")).await;
        assert!(matches!(stolen, Err(CommitError::Conflict { .. })), "{stolen:?}");
        end(&store, id).await.unwrap();
        end(&store, id).await.unwrap();
        assert_eq!(find(&store, id).await, Ok(None));
    }
}
