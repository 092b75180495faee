//! Nodes: their objects, the scheduler that binds pods to them, and the kubelets that run those pods.

pub(crate) mod delays;
pub(crate) mod kubelet;
pub(crate) mod nodes;
pub(crate) mod pod_status;
pub(crate) mod predicates;
pub(crate) mod scheduler;
