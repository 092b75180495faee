//! One request for a resource, with everything that was found out about it before a verb runs.

use std::sync::Arc;

use api::cluster::Id;
use bytes::Bytes;
use http::HeaderMap;
use openapi::catalog::resource_info::{ResourceInfo, api_version};
use openapi::conversion;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;
use storage::{CommitError, Entry, Key, Range, ReadError};

use crate::auth::gate::Gate;
use crate::guard::Guarded;
use crate::identity::Identity;
use crate::keys::Collection;
use crate::query::Query;
use crate::render::is_as_stored;
use crate::stored;

/// How many logical clusters a request looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    One,
    /// All there are. Only lists and watches reach so far; no other verb is run with it.
    Every,
}

/// Which objects are meant.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) cluster: Id,
    pub(crate) reach: Reach,
    pub(crate) row: Arc<ResourceInfo>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    /// Who asks.
    pub(crate) identity: Identity,
    /// What they were let in by.
    pub(crate) gate: Gate,
    /// Who is asked about what is not everybody's to change.
    pub(crate) guard: Guarded,
}

impl Call {
    /// Where the objects are kept, which may be under another group than they are asked for in.
    pub(crate) fn collection(&self) -> Collection<'_> {
        let group = self.row.stored_as.as_ref().map_or(&self.row.group, |(group, _)| group);
        Collection { group, plural: &self.row.plural }
    }

    /// A stored object, as this resource shows it.
    pub(crate) fn tree(&self, entry: &Entry) -> Result<Value, Status> {
        let tree = stored::tree(entry).map_err(|error| Status::internal(&error.to_string()))?;
        Ok(if is_as_stored(&self.row, entry) { tree } else { conversion::from_stored(&self.row, tree) })
    }

    /// An object of this resource, as it is stored.
    pub(crate) fn encode(&self, object: &Value) -> Bytes {
        match self.row.stored_as {
            // In the version it is stored in, it has just been pruned and filled.
            None => stored::encode_with(object, self.row.custom.as_ref().map(|custom| custom.schema_hash)),
            Some(_) => stored::encode(&conversion::to_stored(&self.row, object.clone())),
        }
    }

    /// How errors name the resource.
    pub(crate) fn grouped(&self) -> GroupResource<'_> {
        GroupResource::new(&self.row.group, &self.row.plural)
    }

    /// How errors name the kind.
    pub(crate) fn group_kind(&self) -> GroupResource<'_> {
        self.row.group_kind()
    }

    /// What the answer is an object of: the kind of the resource, or that of a part with a kind of its own.
    pub(crate) fn shown_kind(&self) -> (String, Arc<str>) {
        let part = self.subresource.as_deref().and_then(|part| self.row.subresource(part));
        match part.and_then(|part| Some((part, part.foreign.as_ref()?))) {
            Some((part, (group, version))) => (api_version(group, version), part.kind.clone()),
            None => (self.row.api_version(), self.row.kind.clone()),
        }
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
        match self.reach {
            Reach::One => self.collection().range(self.cluster, self.namespace.as_deref()),
            Reach::Every => self.collection().everywhere(),
        }
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

pub(crate) fn unwritten_in(resource: GroupResource<'_>, name: &str, error: CommitError) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::modified(resource, name),
        CommitError::Refused { reason } => Status::too_large(&reason),
        CommitError::ReadOnly { reason } | CommitError::Unavailable { reason } => Status::unavailable(reason),
        CommitError::Unknown { reason } => Status::timeout(&reason, 1),
    }
}
