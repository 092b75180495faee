//! The audit context of a request: facts for the response headers and the audit log, recorded while the request is
//! handled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use api::cluster::Id;
use openapi::catalog::resource_info::ResourceInfo;

use crate::authn::identity::Identity;

#[derive(Debug, Default)]
pub(crate) struct AuditContext {
    /// The impersonated identity, whether the impersonation was allowed or not.
    acting: OnceLock<Identity>,
    /// The resource, once it is known.
    resource: OnceLock<Arc<ResourceInfo>>,
    /// The logical cluster, and its path if the request path does not contain it.
    place: OnceLock<(Id, Option<String>)>,
    refused: AtomicBool,
}

impl AuditContext {
    pub(crate) fn acts_as(&self, identity: &Identity) {
        let _ = self.acting.set(identity.clone());
    }

    pub(crate) fn acting(&self) -> Option<&Identity> {
        self.acting.get()
    }

    pub(crate) fn is_for(&self, id: Id, path: Option<String>) {
        let _ = self.place.set((id, path));
    }

    pub(crate) fn place(&self) -> Option<(Id, Option<&str>)> {
        self.place.get().map(|(id, path)| (*id, path.as_deref()))
    }

    pub(crate) fn names(&self, resource: &Arc<ResourceInfo>) {
        let _ = self.resource.set(resource.clone());
    }

    pub(crate) fn resource(&self) -> Option<&ResourceInfo> {
        self.resource.get().map(|resource| &**resource)
    }

    /// Marks the request as denied, whatever status the client gets.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}
