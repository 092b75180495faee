//! The words of Holon.
//!
//! The addresses of logical clusters ([`cluster`]), our own kinds (`PhysicalCluster`, `Placement`, … in [`fleet`]) and
//! the label and annotation names ([`names`]) that every other crate spells the same way because it spells them from here.
//!
//! [`meta`] reads and writes what objects of every kind have in common.
//! [`tunnel`] is what both ends of a way to a physical cluster agree on.
//!
//! This crate does no I/O and knows no other crate of ours. It never knows how an object is stored, served
//! or moved; it only knows what things are called and what our own look like.

pub mod cluster;
pub mod fleet;
pub mod meta;
pub mod names;
pub mod tunnel;
