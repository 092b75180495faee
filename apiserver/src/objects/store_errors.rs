//! Conversion of store errors into the Status for the client.

use openapi::meta::status::{GroupResource, Status};
use storage::{CommitError, ReadError};

/// Converts a failed read.
pub(crate) fn unreadable(error: ReadError) -> Status {
    match error {
        ReadError::Compacted { requested, oldest } => {
            Status::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        ReadError::Future { requested, newest } => Status::version_too_large(requested.0, newest.0),
        ReadError::Unavailable { reason } => Status::unavailable(reason),
    }
}

pub(crate) fn unwritten_in(resource: GroupResource<'_>, name: &str, error: CommitError) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::modified(resource, name),
        CommitError::Refused { reason } => Status::too_large(&reason),
        CommitError::ReadOnly { reason } | CommitError::Unavailable { reason } => Status::unavailable(reason),
        CommitError::Unknown { reason } => Status::timeout(&reason, 1),
    }
}
