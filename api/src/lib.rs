//! The words of Holon.
//!
//! Ids, object keys, our own kinds (`LogicalCluster`, `PhysicalCluster`, `Placement`, …) and the label and
//! annotation names that every other crate spells the same way because it spells them from here. So far: the
//! addresses of logical clusters ([`cluster`]) and [`names`].
//!
//! This crate does no I/O and knows no other crate of ours. It never knows how an object is stored, served
//! or moved; it only knows what things are called.

pub mod cluster;
pub mod names;
