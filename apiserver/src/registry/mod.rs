//! What happens to an object before it is stored.
//!
//! ```text
//!   decode ─► defaults ─► managed fields ─► strategy ─► validation ─► admission ─► allocation ─► commit
//! ```
//!
//! [`prepare`] takes these steps in order. A [`strategy`] is the code for the few kinds that need some;
//! [`namespace_lifecycle`] keeps objects out of namespaces that are being deleted; [`deletion`] is the other way out.

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
pub(crate) mod signers;
pub(crate) mod strategy;
pub(crate) mod subresources;
pub(crate) mod warnings;
