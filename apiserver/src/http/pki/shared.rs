//! One certificate authority for all servers of an etcd.
//!
//! ```text
//!   store has one | directory has one    | result
//!   no            | no                   | one is created and published; of two servers that start at once, one wins
//!   no            | yes                  | the one in the directory is published
//!   yes           | no                   | the published one is written to the directory
//!   yes           | the same, or a copy  | the published one is written to the directory: it may be a rotation ahead
//!   yes           | another              | refused: existing kubeconfigs would stop working
//! ```
//!
//! A directory contains a *copy* if its file `shared` contains the id under which the authority was published. The id
//! is generated once and survives every rotation, so a server that was down for all three steps still recognizes its
//! authority.
//!
//! The entry is created if absent and replaced by revision, so servers never disagree about it. It contains private
//! keys: a reader of the etcd can sign certificates for any user. No path of the API leads to it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use storage::{Change, CommitError, Entry, Expect, Store};
use uuid::Uuid;

use crate::http::pki::rotation::{AuthorityState, Rotated};
use crate::http::pki::{Authority, PkiError, make_authority, write_private};
use crate::keys;

const MARK: &str = "shared";

/// The entry in the store.
#[derive(Clone, Serialize, Deserialize)]
struct Published {
    // First, because an error may show the first bytes of an entry.
    id: Uuid,
    certificate: String,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_key: Option<String>,
}

impl Published {
    fn new(id: Uuid, state: AuthorityState) -> Published {
        let AuthorityState { certificate, key, next_key } = state;
        Published { id, certificate, key, next_key }
    }

    fn encode(&self) -> bytes::Bytes {
        serde_json::to_vec(self).expect("texts are JSON").into()
    }

    fn decode(entry: &Entry) -> Result<Published, PkiError> {
        // The error contains positions and types, but no part of the entry.
        serde_json::from_slice(entry.value())
            .map_err(|error| PkiError::UnusableShared { reason: error.to_string() })
    }

    fn state(&self) -> AuthorityState {
        let Published { certificate, key, next_key, .. } = self.clone();
        AuthorityState { certificate, key, next_key }
    }
}

/// Reports whether the authority in a directory is a copy of a shared one.
pub(super) fn is_marked(dir: &Path) -> bool {
    dir.join(MARK).exists()
}

impl Authority {
    /// Returns the authority that all servers of a store share, and copies it to `dir` for commands next to the server.
    pub async fn shared(dir: &Path, store: &dyn Store) -> Result<Authority, PkiError> {
        let published = match store.get(&keys::shared_authority()).await?.value {
            Some(entry) => Published::decode(&entry)?,
            None => publish(dir, store).await?,
        };
        copy(dir, &published)
    }

    /// Takes the next step of a [rotation](Authority::rotate) for all servers of a store.
    pub async fn rotate_shared(dir: &Path, store: &dyn Store) -> Result<Rotated, PkiError> {
        let Some(entry) = store.get(&keys::shared_authority()).await?.value else {
            let reason = "no server has published one; `holon start --etcd-endpoints` does".to_owned();
            return Err(PkiError::UnusableShared { reason });
        };
        let published = Published::decode(&entry)?;
        // This comes before any change, so that an operator who names the wrong directory or etcd gets an error.
        copy(dir, &published)?;
        let (state, done) = published.state().next(dir)?;
        let next = Published::new(published.id, state);
        // Of two concurrent rotations one fails, so that two steps are never taken by accident.
        let expect = Expect::Revision(entry.revision());
        store.commit(keys::shared_authority(), expect, Change::Put(next.encode())).await?;
        copy(dir, &next)?;
        Ok(done)
    }
}

/// Publishes the authority in the directory, or a new one. If another server has published one meanwhile, returns that.
async fn publish(dir: &Path, store: &dyn Store) -> Result<Published, PkiError> {
    let state = match AuthorityState::read(dir) {
        Ok(state) => state,
        Err(PkiError::Absent { .. }) => {
            let made = make_authority()?;
            AuthorityState { certificate: made.certificate, key: made.key, next_key: None }
        }
        Err(error) => return Err(error),
    };
    // If the etcd has lost its data, a directory that is already marked keeps its id, and so do those of the other
    // servers.
    let ours = Published::new(mark(dir).unwrap_or_else(Uuid::new_v4), state);
    match store.commit(keys::shared_authority(), Expect::Absent, Change::Put(ours.encode())).await {
        Ok(_) => Ok(ours),
        Err(CommitError::Conflict { current }) => match current.value {
            Some(entry) => Published::decode(&entry),
            None => {
                Err(PkiError::UnusableShared { reason: "another process has just removed it".to_owned() })
            }
        },
        Err(error) => Err(error.into()),
    }
}

/// Writes the published authority to the directory, unless that has a different one.
fn copy(dir: &Path, published: &Published) -> Result<Authority, PkiError> {
    let is_ours = match AuthorityState::read(dir) {
        Ok(found) => {
            mark(dir) == Some(published.id)
                || (found.certificate.trim(), found.key.trim())
                    == (published.certificate.trim(), published.key.trim())
        }
        Err(PkiError::Absent { .. }) => true,
        Err(error) => return Err(error),
    };
    if !is_ours {
        return Err(PkiError::Differs { dir: dir.to_owned() });
    }
    published.state().write(dir)?;
    // The mark comes last: an interrupted copy without it counts as absent or the same, and is written again.
    if mark(dir) != Some(published.id) {
        write_private(&dir.join(MARK), &published.id.to_string())?;
    }
    Authority::existing(dir)
}

fn mark(dir: &Path) -> Option<Uuid> {
    std::fs::read_to_string(dir.join(MARK)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use storage::memory::Memory;

    use super::*;
    use crate::http::pki::tests::accepts;

    /// Regression: two servers on one etcd each created an authority, so kubeconfigs of the first failed on the second
    /// with "certificate signed by unknown authority".
    #[tokio::test]
    async fn servers_of_one_store_have_one_authority() {
        let store = Memory::new();
        let [one, other] = [0; 2].map(|_| tempfile::tempdir().unwrap());
        // Both find none and publish one. The first wins.
        let (first, second) =
            tokio::join!(Authority::shared(one.path(), &store), Authority::shared(other.path(), &store));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.certificate(), second.certificate());
        let ann = first.client("ann", &[]).unwrap();
        assert!(accepts(&second, &first, &ann));
        // The server that loses the race uses the published authority.
        let second = tempfile::tempdir().unwrap();
        let lost = publish(second.path(), &store).await.unwrap();
        assert_eq!(lost.certificate, first.certificate());
    }

    /// If a standalone server gets an etcd, its users' kubeconfigs must keep working.
    #[tokio::test]
    async fn an_existing_authority_is_published_and_a_different_one_is_refused() {
        let store = Memory::new();
        let [one, copied, other] = [0; 3].map(|_| tempfile::tempdir().unwrap());
        let before = Authority::open(one.path()).unwrap();
        for file in ["ca.crt", "ca.key"] {
            std::fs::copy(one.path().join(file), copied.path().join(file)).unwrap();
        }
        let published = Authority::shared(one.path(), &store).await.unwrap();
        assert_eq!(published.certificate(), before.certificate());
        assert!(is_marked(one.path()));
        // As on servers whose operator copied the authority by hand.
        Authority::shared(copied.path(), &store).await.unwrap();
        let own = Authority::open(other.path()).unwrap();
        let refused = Authority::shared(other.path(), &store).await.unwrap_err().to_string();
        assert!(refused.contains("move") && refused.contains("--data-dir"), "{refused}");
        let left = Authority::existing(other.path()).unwrap();
        assert_eq!(left.certificate(), own.certificate(), "the refused directory is unchanged");
    }

    #[tokio::test]
    async fn a_shared_authority_is_rotated_once_for_all_servers() {
        let store = Memory::new();
        let [one, other] = [0; 2].map(|_| tempfile::tempdir().unwrap());
        let old = Authority::shared(one.path(), &store).await.unwrap();
        Authority::shared(other.path(), &store).await.unwrap();
        let alone = old.rotate().unwrap_err();
        assert!(matches!(alone, PkiError::IsShared { .. }), "{alone}");
        let of_old = old.client("ann", &[]).unwrap();
        for (dir, expected) in
            [(&one, Rotated::Trusted), (&other, Rotated::Signing), (&one, Rotated::Forgotten)]
        {
            assert_eq!(Authority::rotate_shared(dir.path(), &store).await.unwrap(), expected);
        }
        // The other server was down during the last step.
        let new = Authority::shared(other.path(), &store).await.unwrap();
        assert_eq!(new.certificate(), Authority::existing(one.path()).unwrap().certificate());
        assert!(!accepts(&new, &new, &of_old));
        assert!(accepts(&new, &new, &new.client("bob", &[]).unwrap()));
        assert!(!other.path().join("next.key").exists());
    }

    #[tokio::test]
    async fn a_directory_with_another_authority_rotates_nothing() {
        let store = Memory::new();
        let [one, other] = [0; 2].map(|_| tempfile::tempdir().unwrap());
        let before = Authority::shared(one.path(), &store).await.unwrap();
        Authority::open(other.path()).unwrap();
        let refused = Authority::rotate_shared(other.path(), &store).await.unwrap_err();
        assert!(matches!(refused, PkiError::Differs { .. }), "{refused}");
        let after = Authority::shared(one.path(), &store).await.unwrap();
        assert_eq!(after.certificate(), before.certificate());
    }
}
