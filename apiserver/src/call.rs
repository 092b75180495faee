//! One request for a resource, with everything that was found out about it before a verb runs.

use std::sync::Arc;

use api::cluster::Id;
use http::HeaderMap;
use openapi::resource::Resource;
use openapi::status::{Grouped, Status};
use storage::{CommitError, Key, Range, ReadError};

use crate::keys::Collection;
use crate::query::Query;

/// Which objects are meant.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) cluster: Id,
    pub(crate) row: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
}

impl Call {
    pub(crate) fn collection(&self) -> Collection<'_> {
        Collection { group: &self.row.group, plural: &self.row.plural }
    }

    /// How errors name the resource.
    pub(crate) fn grouped(&self) -> Grouped<'_> {
        Grouped::new(&self.row.group, &self.row.plural)
    }

    /// How errors name the kind.
    pub(crate) fn grouped_kind(&self) -> Grouped<'_> {
        Grouped::new(&self.row.group, &self.row.kind)
    }

    /// The object named in the path.
    pub(crate) fn named(&self) -> Result<(&str, Key), Status> {
        let name = self.name.as_deref().ok_or_else(|| Status::bad_request("name is required"))?;
        Ok((name, self.key(name)))
    }

    pub(crate) fn key(&self, name: &str) -> Key {
        self.collection().key(self.cluster, self.namespace.as_deref(), name)
    }

    pub(crate) fn range(&self) -> Range {
        self.collection().range(self.cluster, self.namespace.as_deref())
    }

    pub(crate) fn not_found(&self, name: &str) -> Status {
        Status::not_found(self.grouped(), name)
    }
}

/// What a client is told when the store cannot be read.
pub(crate) fn unreadable(error: ReadError) -> Status {
    match error {
        ReadError::Compacted { requested, oldest } => {
            Status::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        ReadError::Future { requested, newest } => Status::version_too_large(requested.0, newest.0),
        ReadError::Unavailable { reason } => Status::unavailable(reason),
    }
}

/// What a client is told when a write did not happen for a reason of the store's.
pub(crate) fn unwritten(call: &Call, name: &str, error: CommitError) -> Status {
    unwritten_in(call.grouped(), name, error)
}

pub(crate) fn unwritten_in(resource: Grouped<'_>, name: &str, error: CommitError) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::modified(resource, name),
        CommitError::Refused { reason } => Status::too_large(&reason),
        CommitError::ReadOnly { reason } | CommitError::Unavailable { reason } => Status::unavailable(reason),
        CommitError::Unknown { reason } => Status::timeout(&reason, 1),
    }
}
