//! Authorization: whether an identity may reach a logical cluster, and what it may do there.
//!
//! ```text
//!   identity ─► reaches this logical cluster? ─► may impersonate? ─► may do this? ─► handler
//!               no: 404                          no: 403             no: 403
//! ```
//!
//! [`authorization`] takes these steps in order. [`access`] answers the first question, [`rbac`](crate::rbac) the others,
//! from the [`policy_index`]. A watch outlives its authorization: [`revalidation`] takes the steps again when the
//! [`notifier`] reports a change of what they depend on.

pub mod access;
pub(crate) mod authorization;
pub(crate) mod notifier;
pub mod policy_index;
pub(crate) mod revalidation;
