//! The signing keys of logical clusters, stored next to their records.
//!
//! They are created with the first token, so a logical cluster without tokens has none. All servers on a store use the
//! same keys. The first key signs, all keys verify.
//!
//! ```text
//!   POST   /openid/v1/jwks    adds a key, which signs from now on; tokens of older keys stay valid
//!   DELETE /openid/v1/jwks    removes all keys but the newest; tokens of older keys become invalid
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::cluster::Id;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, ReadError, Revision, Store};

use crate::authn::service_accounts::jwt::{Signer, UnverifiedToken};
use crate::keys;

/// Size of the cache of key sets: some hundred bytes each.
const REMEMBERED_MAX: usize = 10_000;

/// Maximum number of keys of a logical cluster, in case an operator adds keys and never removes old ones.
const KEYS_MAX: usize = 8;

/// A cache of key sets, each with the revision of its entry.
#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<HashMap<Id, (Revision, Arc<KeySet>)>>);

/// The keys of a logical cluster. Never empty.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Signer>);

/// The stored form.
#[derive(Serialize, Deserialize)]
struct StoredKeys {
    keys: Vec<String>,
}

impl Keys {
    /// Returns the keys of a logical cluster. None if it has none.
    pub(super) async fn find(
        &self,
        store: &dyn Store,
        cluster: Id,
    ) -> Result<Option<Arc<KeySet>>, ReadError> {
        let Some(entry) = store.get(&keys::signing(cluster)).await?.value else { return Ok(None) };
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&cluster).cloned();
        if let Some((_, set)) = cached.filter(|(revision, _)| *revision == entry.revision()) {
            return Ok(Some(set));
        }
        Ok(self.remember(cluster, &entry))
    }

    /// Returns the keys of a logical cluster. Creates one if it has none.
    pub(super) async fn make(&self, store: &dyn Store, cluster: Id) -> Result<Arc<KeySet>, CommitError> {
        let unread = |error: ReadError| CommitError::Unavailable { reason: error.to_string() };
        if let Some(found) = self.find(store, cluster).await.map_err(unread)? {
            return Ok(found);
        }
        let unmade = || CommitError::Unavailable { reason: "cannot generate a signing key".to_owned() };
        let stored = StoredKeys { keys: vec![STANDARD.encode(Signer::generate().ok_or_else(unmade)?)] };
        let value = serde_json::to_vec(&stored).expect("texts are JSON");
        let written = store.commit(keys::signing(cluster), Expect::Absent, Change::Put(value.into())).await;
        let entry = match written {
            Ok(event) => event.current,
            Err(CommitError::Conflict { current }) => current.value,
            Err(error) => return Err(error),
        };
        entry.as_ref().and_then(|entry| self.remember(cluster, entry)).ok_or_else(unmade)
    }

    /// Adds a key, which signs from now on. None if there is no room for another.
    pub(super) async fn renew(
        &self,
        store: &dyn Store,
        cluster: Id,
    ) -> Result<Option<Arc<KeySet>>, CommitError> {
        let unmade = || CommitError::Unavailable { reason: "cannot generate a signing key".to_owned() };
        let new = STANDARD.encode(Signer::generate().ok_or_else(unmade)?);
        self.change(store, cluster, |keys| {
            let has_capacity = keys.len() < KEYS_MAX;
            if has_capacity {
                keys.insert(0, new.clone());
            }
            has_capacity
        })
        .await
    }

    /// Removes all keys but the newest.
    pub(super) async fn retire(
        &self,
        store: &dyn Store,
        cluster: Id,
    ) -> Result<Option<Arc<KeySet>>, CommitError> {
        self.change(store, cluster, |keys| {
            keys.truncate(1);
            true
        })
        .await
    }

    /// Changes the keys; tries again on a conflict. None if there is nothing to change.
    async fn change(
        &self,
        store: &dyn Store,
        cluster: Id,
        change: impl Fn(&mut Vec<String>) -> bool,
    ) -> Result<Option<Arc<KeySet>>, CommitError> {
        let unread = |error: ReadError| CommitError::Unavailable { reason: error.to_string() };
        self.make(store, cluster).await?;
        loop {
            let found = store.get(&keys::signing(cluster)).await.map_err(unread)?.value;
            let stored =
                found.as_ref().and_then(|entry| serde_json::from_slice::<StoredKeys>(entry.value()).ok());
            let (Some(entry), Some(mut stored)) = (found, stored) else { return Ok(None) };
            if !change(&mut stored.keys) {
                return Ok(None);
            }
            let value = serde_json::to_vec(&stored).expect("texts are JSON");
            let expect = Expect::Revision(entry.revision());
            match store.commit(entry.key().clone(), expect, Change::Put(value.into())).await {
                Ok(event) => return Ok(event.current.and_then(|entry| self.remember(cluster, &entry))),
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn remember(&self, cluster: Id, entry: &Entry) -> Option<Arc<KeySet>> {
        let set = Arc::new(KeySet::read(entry)?);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(cluster, (entry.revision(), set.clone()));
        Some(set)
    }
}

impl KeySet {
    fn read(entry: &Entry) -> Option<KeySet> {
        let stored: StoredKeys = serde_json::from_slice(entry.value()).ok()?;
        let keys = stored.keys.iter().map(|key| Signer::read(&STANDARD.decode(key).ok()?));
        keys.collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty()).map(KeySet)
    }

    pub(super) fn sign(&self, claims: &Value) -> String {
        self.0[0].sign(claims)
    }

    pub(super) fn verify(&self, unverified: &UnverifiedToken<'_>) -> bool {
        self.0.iter().any(|key| key.verify(unverified))
    }

    /// Reports whether a key has not been removed.
    pub(super) fn has(&self, kid: &str) -> bool {
        self.0.iter().any(|key| key.kid() == kid)
    }

    pub(super) fn published(&self) -> Vec<Value> {
        self.0.iter().map(Signer::published).collect()
    }
}

/// Removes the keys of a deleted logical cluster. Idempotent.
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
