//! The keys a logical cluster signs with, kept in the store beside its birth.
//!
//! They are made when somebody first asks for a token, so a logical cluster without one has none. All servers of a store
//! use the same: whoever comes second finds what the first has made. The first key signs, all of them are believed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::cluster::Id;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, ReadError, Store};

use super::jwt::{Parts, Signer};
use crate::keys;

/// Key sets remembered: some hundred bytes each.
const REMEMBERED_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<HashMap<Id, Arc<KeySet>>>);

/// Never empty.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Signer>);

/// As they are stored.
#[derive(Serialize, Deserialize)]
struct Kept {
    keys: Vec<String>,
}

impl Keys {
    /// The keys of a logical cluster, if it has any.
    pub(super) async fn find(
        &self,
        store: &dyn Store,
        cluster: Id,
    ) -> Result<Option<Arc<KeySet>>, ReadError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&cluster).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let entry = store.get(&keys::signing(cluster)).await?.value;
        Ok(entry.as_ref().and_then(KeySet::read).map(|set| self.remember(cluster, set)))
    }

    /// The same, made if there are none.
    pub(super) async fn make(&self, store: &dyn Store, cluster: Id) -> Result<Arc<KeySet>, CommitError> {
        let unread = |error: ReadError| CommitError::Unavailable { reason: error.to_string() };
        if let Some(found) = self.find(store, cluster).await.map_err(unread)? {
            return Ok(found);
        }
        let unmade = || CommitError::Unavailable { reason: "no key could be made".to_owned() };
        let kept = Kept { keys: vec![STANDARD.encode(Signer::generate().ok_or_else(unmade)?)] };
        let value = serde_json::to_vec(&kept).expect("texts are JSON");
        let written = store.commit(keys::signing(cluster), Expect::Absent, Change::Put(value.into())).await;
        let entry = match written {
            Ok(event) => event.current,
            Err(CommitError::Conflict { current }) => current.value,
            Err(error) => return Err(error),
        };
        let set = entry.as_ref().and_then(KeySet::read).ok_or_else(unmade)?;
        Ok(self.remember(cluster, set))
    }

    fn remember(&self, cluster: Id, set: KeySet) -> Arc<KeySet> {
        let set = Arc::new(set);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(cluster, set.clone());
        set
    }
}

impl KeySet {
    fn read(entry: &Entry) -> Option<KeySet> {
        let kept: Kept = serde_json::from_slice(entry.value()).ok()?;
        let keys = kept.keys.iter().map(|key| Signer::read(&STANDARD.decode(key).ok()?));
        keys.collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty()).map(KeySet)
    }

    pub(super) fn sign(&self, claims: &Value) -> String {
        self.0[0].sign(claims)
    }

    pub(super) fn verify(&self, parts: &Parts<'_>) -> bool {
        self.0.iter().any(|key| key.verify(parts))
    }

    pub(super) fn published(&self) -> Vec<Value> {
        self.0.iter().map(Signer::published).collect()
    }
}

/// Removes the keys of a logical cluster that has ended. Twice changes nothing.
pub(crate) async fn forget(store: &dyn Store, cluster: Id) -> Result<(), CommitError> {
    let mut expect = Expect::Absent;
    loop {
        match store.commit(keys::signing(cluster), expect, Change::Delete).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict { current }) => match current.value {
                Some(entry) => expect = Expect::Revision(entry.revision()),
                None => return Ok(()),
            },
            Err(error) => return Err(error),
        }
    }
}
