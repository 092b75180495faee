//! How controllers write: on what they have read, or not at all.

use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, ReadError, Store};

use crate::objects::stored;
use crate::registry::deletion;
use crate::registry::deletion::{Deleted, NotDeleted, Options};

/// Why a key has to be looked after again.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Somebody else wrote meanwhile. This is normal.
    Conflict,
    Read(ReadError),
    Commit(CommitError),
    Refused(Box<Status>),
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Trouble {
        Trouble::Read(error)
    }
}

impl From<CommitError> for Trouble {
    fn from(error: CommitError) -> Trouble {
        match error {
            CommitError::Conflict { .. } => Trouble::Conflict,
            error => Trouble::Commit(error),
        }
    }
}

/// Changes an object. If it was only waiting for what is changed, it goes.
pub(super) async fn amend(
    store: &dyn Store,
    row: &ResourceInfo,
    entry: &Entry,
    change: impl FnOnce(&mut Value),
) -> Result<(), Trouble> {
    let old = stored::tree(entry).unwrap_or_default();
    let mut new = old.clone();
    change(&mut new);
    if new == old {
        return Ok(());
    }
    let change = match deletion::ends_with(row, &old, &new) {
        true => Change::Delete,
        false => Change::Put(stored::encode_with(&new, stored::stamp(entry.value()))),
    };
    store.commit(entry.key().clone(), Expect::Revision(entry.revision()), change).await?;
    Ok(())
}

/// Deletes an object as it was read; whether it is gone.
pub(super) async fn delete(
    store: &dyn Store,
    row: &ResourceInfo,
    entry: &Entry,
    options: &Options,
) -> Result<bool, Trouble> {
    match deletion::delete(store, row, entry.key().clone(), entry, options).await {
        Ok(Deleted::Gone(..)) | Err(NotDeleted::Changed(None)) => Ok(true),
        Ok(Deleted::Going(_)) => Ok(false),
        Err(NotDeleted::Changed(Some(_))) => Err(Trouble::Conflict),
        Err(NotDeleted::Refused(status)) => Err(Trouble::Refused(status)),
        Err(NotDeleted::Failed(error)) => Err(error.into()),
    }
}
