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
//! kind is built in: [`crate::decode`], [`crate::walk`], [`crate::fill`] and [`crate::check`] come here by themselves.
//!
//! Rules in CEL (`x-kubernetes-validations`) are kept and published, and not evaluated. A kind with
//! several versions that wants a webhook to convert between them is refused.

pub(crate) mod accept;
pub mod convert;
mod defaults;
mod embedded;
mod formats;
mod kind;
mod lists;
mod publish;
mod read;
mod validate;
mod versions;

pub use accept::{check_create, check_status, check_update, warnings};
pub use kind::Kind;
pub use versions::order as version_order;

pub(crate) use defaults::fill;
pub(crate) use publish::in_v2;
pub(crate) use read::read;
pub(crate) use validate::{
    check_create as check_object, check_status as check_object_status, check_update as check_object_update,
};
