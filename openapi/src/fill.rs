//! What the server adds to an object of a built-in kind, and what it does not keep.
//!
//! Whoever compares what they wanted with what there is (`kubectl diff`, Argo CD, an operator in its loop) relies on
//! the server to add the same defaults in the same form every time. These functions do, in the order of a write:
//!
//! ```text
//! decoded body --fill--> --(admission)--> --prepare_create / _update / _status--> validated, stored, answered
//! ```
//!
//! Most of it is data: `defaults.txt` says which type gets which default, and the facts of
//! [`protobuf`](crate::protobuf) how Kubernetes prints each field. Only what these cannot say is code, in functions
//! small enough to read. Nothing here allocates addresses or ports, looks at other objects or knows who asks, and
//! custom kinds are left alone: their defaults come from their schemas.

mod autoscalers;
mod claims;
mod create;
mod families;
mod image;
mod newborn;
mod pods;
mod reach;
mod resources;
mod rules;
mod services;
mod settle;
mod status;
#[cfg(test)]
mod tests;
mod update;
mod various;

use jiff::Timestamp;
use serde_json::Value;

use crate::protobuf::table::Table;
use crate::resource::{Origin, Resource};

/// Fills in the defaults of the kind and puts every value into the form Kubernetes prints. Twice changes nothing.
pub fn fill(row: &Resource, object: &mut Value) {
    if row.origin == Origin::BuiltIn {
        fill_kind(&row.api_version(), &row.kind, object);
    }
}

/// The same for an object of a kind that has no row, such as what a subresource takes.
pub fn fill_kind(api_version: &str, kind: &str, object: &mut Value) {
    let kind = Table::get().kind(api_version, kind);
    if let (Some(kind), Value::Object(fields)) = (kind, object) {
        settle::object(Table::get().message(kind.message), fields);
    }
}

/// Makes a filled object new: without the status it claims, with what objects of its kind are born with. Its uid, where
/// something is made of it, is expected in its metadata; since it was filled, only that may have changed. The result is
/// filled again.
pub fn prepare_create(row: &Resource, object: &mut Value, now: Timestamp) {
    let Value::Object(fields) = &mut *object else { return };
    if row.origin != Origin::BuiltIn {
        return;
    }
    if create::prepare(row, fields, now) {
        return fill(row, object);
    }
    if let Some(kind) = Table::get().kind(&row.api_version(), &row.kind) {
        settle::again(Table::get().message(kind.message), fields, &["metadata", "status"]);
    }
}

/// Gives a filled object that is to replace `old` what it cannot change by that, such as its status, and what it need
/// not repeat, such as the address of a Service. The result is filled again.
pub fn prepare_update(row: &Resource, old: &Value, new: &mut Value, now: Timestamp) {
    match (old, &mut *new) {
        (Value::Object(old), Value::Object(fields)) if row.origin == Origin::BuiltIn => {
            update::prepare(row, old, fields, now);
        }
        _ => return,
    }
    fill(row, new);
}

/// Gives a filled object that came for its status alone the rest of `old`, whatever it says itself. What may change of
/// its metadata is not decided here. The result is filled again.
pub fn prepare_status(row: &Resource, old: &Value, new: &mut Value, now: Timestamp) {
    match (old, &mut *new) {
        (Value::Object(old), Value::Object(fields)) if row.origin == Origin::BuiltIn => {
            status::prepare(row, old, fields, now);
        }
        _ => return,
    }
    fill(row, new);
}
