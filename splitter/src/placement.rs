//! Where an object runs: the effective placement, the targets it selects, their capacity, and moves between targets.

pub(crate) mod context;
pub(crate) mod decide;
pub(crate) mod estimate;
pub mod explain;
pub(crate) mod grants;
pub mod migration;
pub(crate) mod permissions;
pub mod pod_security;
pub mod policy;
pub(crate) mod reservations;
pub mod shares;
pub mod targets;
