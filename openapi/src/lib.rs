//! What Kubernetes objects look like, and all that follows from it.
//!
//! The catalogue of built-in kinds (data, one row per kind), schemas, custom kinds, pruning, defaulting,
//! validation, the patch types, tables, discovery and OpenAPI documents, protobuf. So far:
//!
//! | Module | What is there |
//! |---|---|
//! | [`resource`] | what the generic path has to know about one resource: a row |
//! | [`catalog`] | the rows of the built-in kinds |
//! | [`schema`] | what a value may look like |
//! | [`parse`] | a schema out of its OpenAPI JSON |
//! | [`builtin`] | the schemas of the built-in kinds |
//! | [`cell`] | what fills one cell of a table |
//! | [`table`] | objects as the rows of a table |
//! | [`discovery`] | what is served, as clients ask for it |
//! | [`document`] | OpenAPI v3 and v2 |
//! | [`protobuf`] | objects to and from protobuf |
//! | [`hash`] | a name for content |
//!
//! Everything here is synchronous and pure: values in, values out. This crate never opens a socket or a
//! file, never knows who asks, and never knows which logical cluster an object lives in.

pub mod builtin;
pub mod catalog;
pub mod cell;
pub mod discovery;
pub mod document;
pub mod hash;
pub mod parse;
pub mod protobuf;
pub mod resource;
pub mod schema;
pub mod table;
