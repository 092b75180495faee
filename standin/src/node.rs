//! Nodes: what they have room for, who puts pods on them, and what becomes of pods there.

pub(crate) mod fits;
pub(crate) mod kubelet;
pub(crate) mod pace;
pub(crate) mod pod_status;
pub(crate) mod register;
pub(crate) mod scheduler;
pub(crate) mod stage;
