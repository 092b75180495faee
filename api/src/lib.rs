//! The words of Holon.
//!
//! The addresses of logical clusters ([`cluster`]), our own kinds (`PhysicalCluster`, `Placement`, … in [`fleet`]) and
//! the label and annotation names ([`names`]) that every other crate spells the same way because it spells them from here.
//!
//! [`meta`] reads and writes what objects of every kind have in common.
//! [`metrics`] names the API that `kubectl top` reads.
//!
//! This crate does no I/O and knows no other crate of ours. It never knows how an object is stored, served
//! or moved; it only knows what things are called and what our own look like.

pub mod cluster;
pub mod fleet;
pub mod meta;
pub mod metrics;
pub mod names;
