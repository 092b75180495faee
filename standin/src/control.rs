//! The controllers of workloads, each a pure function: the world of one namespace in, a plan out.
//!
//! Facts about what Kubernetes' controllers do are theirs: names, labels, orders, conditions, words. Deciding again on
//! an unchanged world decides nothing, so a controller needs no memory and may be asked at any time.

pub(crate) mod cronjobs;
pub(crate) mod daemonsets;
pub(crate) mod deployments;
pub(crate) mod jobs;
pub(crate) mod pods;
pub(crate) mod replicasets;
pub(crate) mod revisions;
pub(crate) mod statefulsets;

#[cfg(test)]
mod tests;
