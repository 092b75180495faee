//! Authorization: whether an identity may reach a logical cluster, and what it may do there.
//!
//! ```text
//!   identity ─► reaches this logical cluster? ─► may impersonate? ─► may do this? ─► handler
//!               no: 404                          no: 403             no: 403
//! ```
//!
//! [`authorization`] takes these steps in order. [`access`] decides the first one, [`rbac`](crate::rbac) the others,
//! with the policies of the [`policy_index`]. A watch outlives its authorization, so [`revalidation`] repeats the steps
//! when the [`notifier`] reports a relevant change.

pub mod access;
pub(crate) mod authorization;
pub(crate) mod notifier;
pub mod policy_index;
pub(crate) mod revalidation;
