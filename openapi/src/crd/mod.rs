//! Resources from custom resource definitions.
//!
//! ```text
//! definition ──validation::definition──▶ CustomKind { resources, stored, definitions }
//!
//! body ──codec::unstructured──▶ defaulting::structural ──▶ validation::structural ──▶ stored
//! stored ──conversion::custom: pruned and defaulted by the schemas of both versions──▶ response
//! ```
//!
//! Custom objects are trees and not structs: validation reports a value of a wrong type, decoding does not. All of it
//! follows from [`Schema`](crate::schema::Schema), so the generic path never asks whether a kind is built in.
//!
//! Rules in CEL (`x-kubernetes-validations`) are kept and published, and not evaluated. A kind with
//! several versions that wants a webhook to convert between them is refused.

mod kind;
mod openapi;
mod versions;

pub use kind::CustomKind;
pub use versions::order as version_order;
