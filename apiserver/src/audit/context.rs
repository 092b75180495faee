//! What is found out about a request on its way, for whoever speaks of it afterwards: the answer's headers and the audit
//! log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use api::cluster::Id;
use openapi::catalog::resource_info::ResourceInfo;

use crate::authn::identity::Identity;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Whom it acts as, or wanted to.
    acting: OnceLock<Identity>,
    /// What is known of the resource it names, if it got so far.
    row: OnceLock<Arc<ResourceInfo>>,
    /// The logical cluster it is for, if there is one; and its path, if the request did not say it.
    place: OnceLock<(Id, Option<String>)>,
    refused: AtomicBool,
}

impl Findings {
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

    pub(crate) fn names(&self, row: &Arc<ResourceInfo>) {
        let _ = self.row.set(row.clone());
    }

    pub(crate) fn row(&self) -> Option<&ResourceInfo> {
        self.row.get().map(|row| &**row)
    }

    /// It was not let in, whatever it is told.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}
