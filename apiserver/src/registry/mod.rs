//! The steps between a decoded request and the store.
//!
//! ```text
//!   decode ─► defaults ─► managed fields ─► strategy ─► validation ─► admission ─► allocation ─► commit
//! ```
//!
//! [`prepare`] takes these steps in order. A [`strategy`] is the code of the few kinds that need some.
//! [`namespace_lifecycle`] refuses creates in terminating namespaces. [`deletion`] removes objects.

pub(crate) mod allocation;
pub(crate) mod call;
pub(crate) mod decode;
pub(crate) mod deletion;
pub(crate) mod escalation;
pub(crate) mod managed_fields;
pub(crate) mod metadata;
pub(crate) mod namespace_lifecycle;
pub(crate) mod prepare;
pub(crate) mod scale;
pub(crate) mod strategy;
pub(crate) mod subresources;
pub(crate) mod warnings;
