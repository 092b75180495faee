//! RBAC: decisions on roles and bindings.
//!
//! ```text
//!   user ─────► bindings that name the user ─► their roles ─► a rule that allows the request?
//!               of the logical cluster,
//!               and of the namespace of the request
//! ```
//!
//! Rules only allow; a request that no rule allows is denied. Everything here is a pure function. [`Rule`] is one rule
//! of a role, [`Policy`] the roles and bindings of a logical cluster. [`cover`] decides whether a user may grant rules,
//! [`aggregate`] computes aggregated roles. The [`policy_index`](crate::authz::policy_index) reads them from the store.

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

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A user as bindings name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserInfo<'a> {
    pub name: &'a str,
    pub groups: &'a [String],
}

/// A decision and its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub allowed: bool,
    /// The reason, for a SubjectAccessReview. May be empty.
    pub reason: String,
}
