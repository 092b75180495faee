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
//! | [`rules`] | what else holds for values of custom kinds |
//! | [`parse`] | a schema out of its OpenAPI JSON |
//! | [`builtin`] | the schemas of the built-in kinds |
//! | [`check`] | whether an object makes sense, and its next version after it |
//! | [`cell`] | what fills one cell of a table |
//! | [`table`] | objects as the rows of a table |
//! | [`discovery`] | what is served, as clients ask for it |
//! | [`document`] | OpenAPI v3 and v2 |
//! | [`protobuf`] | objects to and from protobuf |
//! | [`decode`], [`walk`], [`prune`] | bodies to objects, and what was odd about them |
//! | [`convert`] | one object seen through two resources |
//! | [`fill`] | what the server adds to an object, and what it does not keep |
//! | [`custom`] | kinds that come from custom resource definitions |
//! | [`patch`] | JSON, merge and strategic merge patches |
//! | [`select`], [`names`], [`quantity`], [`path`] | small languages of Kubernetes |
//! | [`status`], [`field`] | what a client is told when something did not work |
//! | [`hash`] | a name for content |
//!
//! Everything here is synchronous and pure: values in, values out. This crate never opens a socket or a
//! file, never knows who asks, and never knows which logical cluster an object lives in.

pub mod builtin;
pub mod catalog;
pub mod cell;
pub mod check;
pub mod convert;
pub mod custom;
pub mod decode;
pub mod discovery;
pub mod document;
pub mod field;
pub mod fill;
mod go;
pub mod hash;
pub mod names;
pub mod parse;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod prune;
pub mod quantity;
pub mod resource;
pub mod rules;
#[cfg(test)]
mod samples;
pub mod schema;
pub mod select;
pub mod status;
pub mod table;
mod time;
pub mod walk;
pub mod yaml;
