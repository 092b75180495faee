//! Discovery and OpenAPI documents of the served resources, and objects as Tables.

pub mod discovery;
pub mod documents;
pub mod tables;
