//! What a reconcile writes, as values.
//!
//! ```text
//!   PlacementContext ─► decide: record ─► plan_mailboxes: a write per target, deletions elsewhere ─► execute
//! ```
//!
//! Plans are pure functions of what was read: they read no cache and no clock, and change nothing.

mod mailbox_write;
mod target_writes;
mod workload;

pub(crate) use mailbox_write::{MailboxWrite, plan_mailbox_write};
pub(crate) use workload::{MailboxPlan, plan_mailboxes};
