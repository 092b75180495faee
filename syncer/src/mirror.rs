//! Plans as pure functions: the next step for an object, the object to apply downstream, and the projection in the
//! mailbox.
//!
//! ```text
//!   mailbox object ──► desired ──► plan_step ──► AddFinalizer │ Apply │ Delete │ RemoveFinalizer │ InSync │ Hold(reason)
//!                                     ▲
//!   downstream object ────────────────┴────────► upstream_status, or a projection of the whole object
//! ```
//!
//! An object has the same kind, namespace and name in the mailbox and downstream. This module does no I/O: the caller
//! reads both objects, executes the step, and plans again.

mod compare;
mod desired;
mod object;
mod plan;
mod project;
mod status;

pub use compare::{LastApplied, is_applied};
pub use desired::{DesiredObject, LED_BY, SENT};
pub use object::{AnyObject, fingerprint};
pub use plan::{ClusterIdentity, HoldReason, SyncSnapshot, SyncStep, plan_step};
pub use project::{Projection, is_claim_of, is_projection, owner_references, projection};
pub use status::{Generations, upstream_status};
