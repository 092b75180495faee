//! Admission: decisions about single writes that RBAC cannot make, in Kubernetes' order.
//!
//! ```text
//!   decoded, defaulted ─► mutate ─► strategy, schema ─► validate: signers, guard ─► allocation ─► commit
//! ```

pub mod guard;
mod signers;

use std::sync::Arc;

use openapi::meta::status::Status;
use serde_json::Value;

use crate::admission::guard::{AdmissionRequest, Guard, Guarded};
use crate::authz::authorization::Authorization;
use openapi::catalog::resource_info::ResourceInfo;
use storage::Entry;

/// The admission steps of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    guard: Guarded,
}

impl Admission {
    pub(crate) fn with_guard(guard: Arc<dyn Guard>) -> Admission {
        Admission { guard: Guarded::by(guard) }
    }

    /// Lets plug-ins change an object that has its defaults, before it is validated. There is no plug-in yet.
    pub(crate) async fn mutate(&self, _: AdmissionRequest<'_>, _: &mut Value) -> Result<(), Status> {
        Ok(())
    }

    /// Checks a write after validation, and a deletion.
    pub(crate) async fn validate(
        &self,
        authorization: &Authorization,
        request: AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        signers::check(authorization, &request)?;
        self.guard.check(request).await
    }

    /// Reports whether the deletion of a stored object is to be checked.
    pub(crate) fn concerns_deletion(&self, resource: &ResourceInfo, entry: &Entry) -> bool {
        self.guard.concerns(resource, entry)
    }
}
