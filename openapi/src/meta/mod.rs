//! Error responses and small languages that every folder uses. `api::meta` has those that other crates need too.

pub mod hash;
pub mod jsonpath;
pub mod status;
pub(crate) mod time;
