//! What placed objects brought about, as the user sees it.
//!
//! ```text
//!   mailboxes                              user's logical cluster
//!   east: ReplicaSet web-5d  3 ─┐
//!   west: ReplicaSet web-5d  2 ─┴───────►  ReplicaSet web-5d  5       one per template, counts added up
//!   east: Pod web-5d-x1 on node n7 ─────►  Pod web-5d-x1 on node east  one per pod, status exact
//!   PhysicalCluster east ───────────────►  Node east
//! ```
//!
//! All of it carries the label of a projection, so nobody takes it for something to be sent.

pub mod nodes;
pub mod object_references;
pub mod pods;
pub mod replica_sets;
