//! Propagates users' objects to mailboxes, and aggregates their status.
//!
//! The splitter watches users' logical clusters and keeps the mailboxes of physical clusters up to date: it chooses targets,
//! divides replicas, transforms objects on the way down and aggregates statuses on the way up.
//!
//! ```text
//!   history ─► snapshot ─► placement: where ─► division: how many ─► plan ─► execute ─► mailboxes
//!              caches       policy, targets,    a patch for every     transform,   writes   │ reports
//!              and indexes  migration           target                writes                ▼
//!                                                                     execute ◄── status
//! ```
//!
//! Folders import only folders to their left:
//!
//! ```text
//!   policy ◄ transform ◄ division ◄ status ◄ snapshot ◄ placement ◄ plan ◄ context ◄ execute ◄ reconcile ◄ controller
//!                                            snapshot ◄ fleet
//! ```
//!
//! [`controller`] queues, [`reconcile`] handles one object. The splitter never talks to a physical cluster: it
//! reads and writes logical clusters only. Decisions are pure functions over integers: the same input, the same answer.

mod context;
pub mod controller;
pub mod division;
pub mod execute;
pub mod fleet;
pub mod placement;
mod plan;
pub mod policy;
mod reconcile;
pub mod snapshot;
pub mod status;
pub mod transform;

pub use self::context::{ApiEndpoint, Splitter};
