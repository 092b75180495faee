//! Transforms objects of mailboxes into projections in the user's logical cluster.
//!
//! ```text
//!   mailboxes                              user's logical cluster
//!   east: ReplicaSet web-5d  3 ─┐
//!   west: ReplicaSet web-5d  2 ─┴───────►  ReplicaSet web-5d  5       one per template, counters added up
//!   east: Pod web-5d-x1 on node n7 ─────►  Pod web-5d-x1 on node east  one per pod, with its exact status
//!   PhysicalCluster east ───────────────►  Node east
//! ```
//!
//! Every projection has the label `holon.dev/projected`, so it is never propagated.

pub mod nodes;
pub mod object_references;
pub mod pods;
pub mod replica_sets;
