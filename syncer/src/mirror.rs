//! What goes down, what comes up, and when nothing may be done: decided here, from values alone.
//!
//! ```text
//!   mailbox object ──► wanted ──► verdict ──► Mark │ Apply │ Delete │ Release │ Rest │ Hold(why)
//!                                    ▲
//!   object below ────────────────────┴──────► raised: its status, or all of it (projected)
//! ```
//!
//! An object has the same kind, namespace and name on both sides. Nothing here reads or writes; whoever acts on a
//! verdict reads both sides first and comes back afterwards.

mod compare;
mod object;
mod project;
mod status;
mod verdict;
mod wanted;

pub use compare::{Sent, holds};
pub use object::{Object, fingerprint};
pub use project::{Projection, claims, is_projection, owner_references, projection};
pub use status::{Generations, raised};
pub use verdict::{Cluster, Facts, Hold, Step, verdict};
pub use wanted::{LED_BY, SENT, Wanted};
