//! Logical clusters: their resource, their records and their bootstrap objects.

pub mod bootstrap;
pub mod logical_cluster;
pub mod records;
pub(crate) mod service_cidr;
