//! What Kubernetes objects look like, and all that follows from it.
//!
//! The catalogue of built-in kinds (data, one row per kind), schemas, custom kinds, pruning, defaulting,
//! validation, the patch types, tables, discovery and OpenAPI documents, protobuf.
//!
//! Everything here is synchronous and pure: values in, values out. This crate never opens a socket or a
//! file, never knows who asks, and never knows which logical cluster an object lives in.

pub mod decode;
pub mod field;
mod go;
pub mod names;
pub mod patch;
pub mod prune;
pub mod quantity;
#[cfg(test)]
mod samples;
pub mod schema;
pub mod select;
pub mod status;
mod time;
pub mod walk;
mod yaml;
