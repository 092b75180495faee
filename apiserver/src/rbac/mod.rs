//! RBAC: decisions on roles and bindings.
//!
//! ```text
//!   user ─────► bindings that name them ─► their roles ─► a rule that allows it?
//!               of the logical cluster,
//!               and of the namespace asked about
//! ```
//!
//! Rules only ever allow; what no rule allows is denied. Everything here is a function of values: [`Rule`] is one
//! sentence of a role, [`Policy`] the roles and bindings of a logical cluster, [`cover`] decides whether a user who
//! holds some rules may hand out others, [`aggregate`] makes a role out of roles. The
//! [`policy_index`](crate::authz::policy_index) reads them from the store.

pub mod aggregate;
pub mod controller_role;
pub mod cover;
pub(crate) mod object;
pub mod policy;
mod rule;

pub(crate) use crate::rbac::object::account;
pub use crate::rbac::object::{Binding, Role, RoleRef, Subject};
pub use crate::rbac::policy::{Layers, Policy};
pub use crate::rbac::rule::Rule;

/// The group of all four kinds.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A user, as bindings name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who<'a> {
    pub name: &'a str,
    pub groups: &'a [String],
}

/// A decision, and its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub allowed: bool,
    /// Why, for a SubjectAccessReview. May be empty.
    pub reason: String,
}
