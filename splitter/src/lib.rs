//! Propagates users' objects to mailboxes, and aggregates their status.
//!
//! The splitter watches users' logical clusters and keeps the mailboxes of physical clusters up to date: it chooses targets,
//! divides replicas, transforms objects on the way down and aggregates statuses on the way up.
//!
//! ```text
//!   snapshot ─────► placement ───────► division ───────► transform ─► execute ─► mailboxes
//!   caches, index   policy, targets,   a patch for        the object   writes        │ reports
//!                   migration          every target       of a mailbox               ▼
//!                                                                      execute ◄── status
//! ```
//!
//! [`controller`] watches and queues, [`reconcile`] handles one object. The splitter never talks to a physical cluster: it
//! reads and writes logical clusters only. Decisions are pure functions over integers: the same input, the same answer.

pub mod controller;
pub mod division;
pub mod execute;
pub mod fleet;
pub mod placement;
mod plan;
mod reconcile;
pub mod snapshot;
pub mod status;
pub mod transform;

pub use self::controller::Splitter;
