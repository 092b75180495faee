//! Discovery and OpenAPI documents of the resources a server has, and objects as tables.

pub mod discovery;
pub mod documents;
pub mod tables;
