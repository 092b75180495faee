//! Objects as JSON: their fields, the kinds a stand-in handles, and what a pod's status means.

pub(crate) mod fields;
pub(crate) mod kind;
pub(crate) mod pod_stage;
pub(crate) mod pods;
