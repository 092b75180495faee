//! Logical clusters: the records of which exist, and the bootstrap objects that each of them has.

pub mod bootstrap;
pub mod logical_cluster;
pub mod records;
pub(crate) mod service_cidr;
