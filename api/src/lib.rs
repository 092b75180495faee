//! Names and types that all of Holon shares.
//!
//! It has the paths and ids of logical clusters ([`cluster`]), Holon's own kinds (`PhysicalCluster`, `Placement`, … in
//! [`fleet`]), and the names of labels and annotations ([`names`]), which are defined only here.
//!
//! [`meta`] reads and writes the parts that objects of every kind have.
//! [`metrics`] names the API that `kubectl top` reads.
//!
//! This crate does no I/O and depends on no other crate of Holon. It does not know how objects are stored, served or
//! propagated.

pub mod cluster;
pub mod fleet;
pub mod meta;
pub mod metrics;
pub mod names;
