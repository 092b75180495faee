//! One request for a resource, as a verb gets it: parsed, authenticated and authorized.

use std::sync::Arc;

use api::cluster::Id;
use bytes::Bytes;
use http::HeaderMap;
use openapi::catalog::resource_info::{ResourceInfo, api_version};
use openapi::conversion;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;
use storage::{CommitError, Entry, Key, Range};

use crate::admission::Admission;
use crate::admission::guard::AdmissionRequest;
use crate::authn::identity::Identity;
use crate::authz::authorization::Authorization;
use crate::keys::Collection;
use crate::objects::store_errors::unwritten_in;
use crate::objects::stored;
use crate::objects::stored::is_as_stored;
use crate::request::info::Reach;
use crate::request::query::Query;

/// A request for objects of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) cluster: Id,
    pub(crate) reach: Reach,
    pub(crate) resource: Arc<ResourceInfo>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    /// The user or service account that sends the request.
    pub(crate) identity: Identity,
    /// The authorization decision that allowed the request.
    pub(crate) authorization: Authorization,
    pub(crate) admission: Admission,
}

/// The object that a write replaces.
#[derive(Debug)]
pub(crate) struct CurrentObject {
    /// As it is stored.
    pub(crate) entry: Entry,
    /// Decoded, in the version of the request.
    pub(crate) object: Value,
}

impl Call {
    /// Returns the collection of the stored objects, which may be in another group than the request's.
    pub(crate) fn collection(&self) -> Collection<'_> {
        let group = self.resource.stored_as.as_ref().map_or(&self.resource.group, |(group, _)| group);
        Collection { group, plural: &self.resource.plural }
    }

    /// Decodes a stored object and converts it to the version of this resource.
    pub(crate) fn tree(&self, entry: &Entry) -> Result<Value, Status> {
        let tree = stored::tree(entry).map_err(|error| Status::internal(&error.to_string()))?;
        Ok(if is_as_stored(&self.resource, entry) {
            tree
        } else {
            conversion::from_stored(&self.resource, tree)
        })
    }

    /// Decodes the stored object that a write replaces, once for all steps of the write.
    pub(crate) fn current(&self, entry: Entry) -> Result<CurrentObject, Status> {
        Ok(CurrentObject { object: self.tree(&entry)?, entry })
    }

    /// Encodes an object of this resource in its stored version.
    pub(crate) fn encode(&self, object: &Value) -> Bytes {
        match self.resource.stored_as {
            // This is the stored version, and the object has just been pruned and defaulted.
            None => {
                stored::encode_with(object, self.resource.custom.as_ref().map(|custom| custom.schema_hash))
            }
            Some(_) => stored::encode(&conversion::to_stored(&self.resource, object.clone())),
        }
    }

    /// Names the resource in errors.
    pub(crate) fn grouped(&self) -> GroupResource<'_> {
        GroupResource::new(&self.resource.group, &self.resource.plural)
    }

    /// Names the kind in errors.
    pub(crate) fn group_kind(&self) -> GroupResource<'_> {
        self.resource.group_kind()
    }

    /// Returns the kind of the response: that of the resource, or of a subresource with a kind of its own.
    pub(crate) fn response_kind(&self) -> (String, Arc<str>) {
        let subresource =
            self.subresource.as_deref().and_then(|subresource| self.resource.subresource(subresource));
        match subresource.and_then(|subresource| Some((subresource, subresource.foreign.as_ref()?))) {
            Some((subresource, (group, version))) => (api_version(group, version), subresource.kind.clone()),
            None => (self.resource.api_version(), self.resource.kind.clone()),
        }
    }

    /// Returns name and key of the object in the path.
    pub(crate) fn name_and_key(&self) -> Result<(&str, Key), Status> {
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

    /// Runs the mutating step of admission.
    pub(crate) async fn mutate(&self, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
        let name = self.name.as_deref().unwrap_or_default();
        self.admission.mutate(self.admission_request(name, old, None), new).await
    }

    /// Runs the validating step of admission. `after` is none for a deletion.
    pub(crate) async fn validate_admission(
        &self,
        name: &str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<(), Status> {
        let request = self.admission_request(name, before, after);
        self.admission.validate(&self.authorization, request).await
    }

    /// Runs the validating step of admission for a deletion. An object that cannot be decoded has no labels.
    pub(crate) async fn validate_deletion(&self, name: &str, entry: &Entry) -> Result<(), Status> {
        if !self.admission.concerns_deletion(&self.resource, entry) {
            return Ok(());
        }
        let tree = self.tree(entry).unwrap_or_default();
        self.validate_admission(name, Some(&tree), None).await
    }

    fn admission_request<'a>(
        &'a self,
        name: &'a str,
        before: Option<&'a Value>,
        after: Option<&'a Value>,
    ) -> AdmissionRequest<'a> {
        AdmissionRequest {
            cluster: self.cluster,
            who: &self.identity,
            resource: &self.resource,
            name,
            subresource: self.subresource.as_deref(),
            before,
            after,
        }
    }

    pub(crate) fn not_found(&self, name: &str) -> Status {
        Status::not_found(self.grouped(), name)
    }
}

/// Converts a failed commit into a Status.
pub(crate) fn unwritten(call: &Call, name: &str, error: CommitError) -> Status {
    unwritten_in(call.grouped(), name, error)
}
