//! Behaviour through the front door.
//!
//! Stories told with real clients against the real thing, stand-in clusters, real peers (etcd,
//! kube-apiserver, kubectl), benchmarks beside what a user would use otherwise, and the tidy checks that keep
//! the workspace in its shape.
//!
//! Nothing in the product depends on this package.

pub mod availability;
pub mod eyes;
pub mod fleet;
pub mod history;
pub mod holon;
pub mod kstatus;
pub mod witness;
