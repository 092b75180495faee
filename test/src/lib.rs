//! End-to-end tests through the API.
//!
//! Scenarios with real clients against the real program, stand-ins, real peers (etcd, kube-apiserver, kubectl),
//! benchmarks beside the usual alternatives, and the tidy checks that keep the structure of the workspace.
//!
//! Nothing in the product depends on this package.

pub mod availability;
pub mod client;
pub mod fleet;
pub mod history;
pub mod holon;
pub mod kstatus;
pub mod witness;
