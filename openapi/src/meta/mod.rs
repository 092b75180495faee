//! Small languages and error types of Kubernetes that every other folder uses.

pub mod field;
pub(crate) mod go;
pub mod hash;
pub mod jsonpath;
pub mod names;
pub(crate) mod net;
pub mod selector;
pub mod status;
pub(crate) mod time;
