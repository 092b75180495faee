//! A request, parsed once: its path and query, the media types it accepts, its options, and its attributes for RBAC.

pub mod attributes;
pub(crate) mod info;
pub(crate) mod negotiation;
pub(crate) mod options;
pub mod path;
pub(crate) mod query;

pub use path::{Cluster, Health, PathError, Resource, Target};
