//! Kinds that come from custom resource definitions.
//!
//! ```text
//! definition ──accept──▶ Kind { rows, schemas, definitions for documents }      nothing about it is code
//!
//! body ──read: prune, take nulls out, read metadata──▶ fill: defaults ──▶ check: rules ──▶ stored
//! stored ──convert: another version, pruned and filled by its schema──▶ answered
//! ```
//!
//! Objects of custom kinds are trees and not structs: what is wrong with a value is said by whoever checks it and not
//! by whoever reads it. All of it hangs on [`Schema`](crate::schema::Schema), so the generic path never asks whether a
//! kind is built in: [`crate::codec`], [`crate::codec::typed`], [`crate::defaulting`] and [`crate::validation`] come here by themselves.
//!
//! Rules in CEL (`x-kubernetes-validations`) are kept and published, and not evaluated. A kind with
//! several versions that wants a webhook to convert between them is refused.

mod kind;
mod openapi;
mod versions;

pub use kind::Kind;
pub use versions::order as version_order;
