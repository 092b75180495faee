//! What the server adds to an object of a built-in kind, and what it does not keep.
//!
//! Whoever compares what they wanted with what there is (`kubectl diff`, Argo CD, an operator in its loop) relies on
//! the server to add the same defaults in the same form every time. Three functions do, in the order of a write:
//!
//! ```text
//! decoded body --fill--> --(admission)--> --prepare_create / prepare_update--> validated, stored, answered
//! ```
//!
//! Most of it is data: `defaults.txt` says which type gets which default, and the facts of
//! [`protobuf`](crate::protobuf) how Kubernetes prints each field. Only what these cannot say is code, in functions
//! small enough to read. Nothing here allocates addresses or ports, looks at other objects or knows who asks, and
//! custom kinds are left alone: their defaults come from their schemas.

mod autoscalers;
mod image;
mod pods;
mod reach;
mod resources;
mod rules;
mod services;
mod settle;
mod various;

use serde_json::Value;

use crate::protobuf::table::Table;
use crate::resource::{Origin, Resource};

/// Fills in the defaults of the kind and puts every value into the form Kubernetes prints. Twice changes nothing.
pub fn fill(row: &Resource, object: &mut Value) {
    if row.origin != Origin::BuiltIn {
        return;
    }
    let kind = Table::get().kind(&row.api_version(), &row.kind);
    if let (Some(kind), Value::Object(fields)) = (kind, object) {
        settle::object(Table::get().message(kind.message), fields);
    }
}
