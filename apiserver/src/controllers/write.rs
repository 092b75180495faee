//! Writes of controllers: each names the revision it was decided on.

use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, ReadError, Store};

use crate::objects::stored;
use crate::registry::deletion;
use crate::registry::deletion::{DeleteOptions, Deleted, NotDeleted};

/// Why a reconcile failed.
#[derive(Debug)]
pub(super) enum ReconcileError {
    /// Another client wrote first. This is normal.
    Conflict,
    Read(ReadError),
    Commit(CommitError),
    Refused(Box<Status>),
}

impl From<ReadError> for ReconcileError {
    fn from(error: ReadError) -> ReconcileError {
        ReconcileError::Read(error)
    }
}

impl From<CommitError> for ReconcileError {
    fn from(error: CommitError) -> ReconcileError {
        match error {
            CommitError::Conflict { .. } => ReconcileError::Conflict,
            error => ReconcileError::Commit(error),
        }
    }
}

/// Changes an object. If the change removes the last reason why a terminating object exists, deletes it.
pub(super) async fn amend(
    store: &dyn Store,
    resource: &ResourceInfo,
    entry: &Entry,
    change: impl FnOnce(&mut Value),
) -> Result<(), ReconcileError> {
    let old = stored::tree(entry).unwrap_or_default();
    let mut new = old.clone();
    change(&mut new);
    if new == old {
        return Ok(());
    }
    let change = match deletion::ends_with(resource, &old, &new) {
        true => Change::Delete,
        false => Change::Put(stored::encode_with(&new, stored::stamp(entry.value()))),
    };
    store.commit(entry.key().clone(), Expect::Revision(entry.revision()), change).await?;
    Ok(())
}

/// Deletes an object at the revision that was read. Returns whether it no longer exists, as opposed to being
/// terminating.
pub(super) async fn delete(
    store: &dyn Store,
    resource: &ResourceInfo,
    entry: &Entry,
    options: &DeleteOptions,
) -> Result<bool, ReconcileError> {
    match deletion::delete(store, resource, entry.key().clone(), entry, options).await {
        Ok(Deleted::Removed(..)) | Err(NotDeleted::Changed(None)) => Ok(true),
        Ok(Deleted::Terminating(_)) => Ok(false),
        Err(NotDeleted::Changed(Some(_))) => Err(ReconcileError::Conflict),
        Err(NotDeleted::Refused(status)) => Err(ReconcileError::Refused(status)),
        Err(NotDeleted::Failed(error)) => Err(error.into()),
    }
}
