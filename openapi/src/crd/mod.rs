//! Resources from custom resource definitions.
//!
//! ```text
//! definition ──validation::definition──▶ CustomKind { resources, stored, definitions }
//!
//! body ──codec::unstructured──▶ defaulting::structural ──▶ validation::structural ──▶ stored
//! stored ──conversion::custom: pruned and defaulted by the schemas of both versions──▶ response
//! ```
//!
//! Custom objects are trees, not structs: validation reports a value of a wrong type, decoding does not. All of it is
//! derived from [`Schema`](crate::schema::Schema), so the generic request path does not distinguish custom from
//! built-in kinds.
//!
//! CEL rules (`x-kubernetes-validations`) are stored and published, but not evaluated. A definition of several versions
//! with a conversion webhook is rejected.

mod kind;
mod openapi;
mod versions;

pub use kind::CustomKind;
pub use versions::order as version_order;
