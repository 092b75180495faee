//! The controllers of kube-controller-manager, each a pure function: the cache and a namespace in, a plan out.
//!
//! Names, labels, orders, conditions and messages are those of the controllers of Kubernetes. A reconcile of an
//! unchanged cache plans nothing, so a controller needs no state of its own and may run at any time.

pub(crate) mod cronjobs;
pub(crate) mod daemonsets;
pub(crate) mod deployments;
pub(crate) mod disruption;
pub(crate) mod jobs;
pub(crate) mod pods;
pub(crate) mod replicasets;
pub(crate) mod revisions;
pub(crate) mod services;
pub(crate) mod statefulsets;
pub(crate) mod volumes;

#[cfg(test)]
mod tests;
