//! Executes decisions. Writes records, mailbox objects, projections, statuses and Events.

pub(crate) mod aggregate;
pub mod api_access;
pub(crate) mod definitions;
pub(crate) mod dependencies;
pub(crate) mod events;
pub(crate) mod grants;
pub(crate) mod namespaces;
pub(crate) mod physical_clusters;
pub(crate) mod pods;
pub(crate) mod policies;
pub(crate) mod project;
pub(crate) mod propagate;
pub(crate) mod record;
pub(crate) mod workload;
