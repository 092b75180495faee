//! The form of Kubernetes objects, and everything that follows from it.
//!
//! Each folder imports only folders above it in this table.
//!
//! | Folder | Subject |
//! |---|---|
//! | [`meta`] | field errors, `Status`, names, quantities, selectors, times, JSONPath: what `apimachinery` is to Kubernetes |
//! | [`schema`] | types of values: the built-in ones, and those that custom resource definitions declare |
//! | [`catalog`] | the built-in resources, with their verbs, subresources and printer columns |
//! | [`defaulting`] | defaults, and the fields the server sets or resets on create and update |
//! | [`codec`] | JSON, YAML and protobuf; unknown, duplicate and mistyped fields |
//! | [`validation`] | field errors of objects, on create and on update |
//! | [`conversion`] | objects between the versions of a resource |
//! | [`patch`] | JSON patch, merge patch, strategic merge patch, server-side apply |
//! | [`crd`] | resources and schemas from custom resource definitions |
//! | [`publish`] | discovery, OpenAPI documents and tables |
//!
//! Everything here is synchronous and pure: values in, values out. This crate never opens a socket or a file, never
//! knows the client of a request, and never knows the logical cluster of an object.

pub mod catalog;
pub mod codec;
pub mod conversion;
pub mod crd;
pub mod defaulting;
pub mod meta;
pub mod patch;
pub mod publish;
#[cfg(test)]
mod samples;
pub mod schema;
pub mod validation;
