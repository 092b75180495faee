//! One mailbox to and from one physical cluster.
//!
//! The syncer keeps one physical cluster equal to its mailbox and reports what happened there. The same code
//! runs inside Holon (push) and inside the physical cluster (pull).
//!
//! It transports and never decides: no placement, no division, no summary. It never sees another cluster's
//! mailbox or a user's logical cluster.

pub mod mirror;
