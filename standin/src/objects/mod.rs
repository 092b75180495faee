//! Objects as JSON: their fields, the kinds that a stand-in handles, and the state of pods.

pub(crate) mod fields;
pub(crate) mod kind;
pub(crate) mod pod_stage;
pub(crate) mod pods;
