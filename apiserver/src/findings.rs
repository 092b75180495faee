//! What is found out about a request on its way, for whoever speaks of it afterwards: the answer's headers and the audit
//! log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use openapi::resource::Resource;

use crate::identity::Identity;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Whom it acts as, if it got so far.
    acting: OnceLock<Identity>,
    /// What is known of the resource it names, if it got so far.
    row: OnceLock<Arc<Resource>>,
    refused: AtomicBool,
}

impl Findings {
    pub(crate) fn acts_as(&self, identity: &Identity) {
        let _ = self.acting.set(identity.clone());
    }

    pub(crate) fn acting(&self) -> Option<&Identity> {
        self.acting.get()
    }

    pub(crate) fn names(&self, row: &Arc<Resource>) {
        let _ = self.row.set(row.clone());
    }

    pub(crate) fn row(&self) -> Option<&Resource> {
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
