//! Where an object runs: the effective placement, the targets it selects, their capacity, and moves between targets.

pub(crate) mod api_access;
pub(crate) mod autoscaled;
pub(crate) mod context;
pub(crate) mod decide;
pub(crate) mod degraded;
pub(crate) mod estimate;
pub mod explain;
pub mod migration;
pub(crate) mod permissions;
pub mod pod_security;
pub(crate) mod reservations;
pub mod targets;
