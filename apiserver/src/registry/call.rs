//! One request for a resource, with everything that was found out about it before a verb runs.

use std::sync::Arc;

use api::cluster::Id;
use bytes::Bytes;
use http::HeaderMap;
use openapi::catalog::resource_info::{ResourceInfo, api_version};
use openapi::conversion;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;
use storage::{CommitError, Entry, Key, Range};

use crate::admission::guard::{Deed, Guarded};
use crate::authn::identity::Identity;
use crate::authz::authorization::Gate;
use crate::keys::Collection;
use crate::objects::store_errors::unwritten_in;
use crate::objects::stored;
use crate::objects::stored::is_as_stored;
use crate::request::info::Reach;
use crate::request::query::Query;

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

    /// Asks the guard about a write.
    pub(crate) async fn check_guard(
        &self,
        name: &str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<(), Status> {
        let part = self.subresource.as_deref();
        let (who, row) = (&self.identity, &*self.row);
        self.guard.check(Deed { cluster: self.cluster, who, row, name, part, before, after }).await
    }

    /// Asks the guard about a deletion. An object that cannot be read is not guarded.
    pub(crate) async fn check_guard_of_deletion(&self, name: &str, entry: &Entry) -> Result<(), Status> {
        if !self.guard.concerns(&self.row, entry) {
            return Ok(());
        }
        match self.tree(entry) {
            Ok(tree) => self.check_guard(name, Some(&tree), None).await,
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn not_found(&self, name: &str) -> Status {
        Status::not_found(self.grouped(), name)
    }
}

/// What a client is told when a write did not happen for a reason of the store's.
pub(crate) fn unwritten(call: &Call, name: &str, error: CommitError) -> Status {
    unwritten_in(call.grouped(), name, error)
}
