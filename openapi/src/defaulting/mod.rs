//! What the server adds to an object, and what it does not keep.
//!
//! Whoever compares what they wanted with what there is (`kubectl diff`, Argo CD, an operator in its loop) relies on
//! the server to add the same defaults in the same form every time. These functions do, in the order of a write:
//!
//! ```text
//! decoded body --fill--> --(admission)--> --prepare_create / _update / _status--> validated, stored, answered
//! ```
//!
//! Most of it is data: `defaults.txt` says which type gets which default, and the facts of
//! [`protobuf`](crate::codec::protobuf) how Kubernetes prints each field. Only what these cannot say is code, in functions
//! small enough to read. Nothing here allocates addresses or ports, looks at other objects or knows who asks. The
//! defaults of custom kinds come from their schemas: see [`crate::crd`].

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
mod seen;
mod services;
mod settle;
mod status;
pub(crate) mod structural;
#[cfg(test)]
mod tests;
mod update;
mod various;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::catalog::resource_info::Resource;
use crate::schema::Origin;
use crate::schema::messages::Table;

/// Fills in the defaults of the kind and puts every value into the form Kubernetes prints. Twice changes nothing.
pub fn fill(row: &Resource, object: &mut Value) {
    match (row.origin, row.schema()) {
        (Origin::BuiltIn, _) => fill_kind(&row.api_version(), &row.kind, object),
        (Origin::Custom, Some(schema)) if row.custom.is_some() => structural::fill(object, schema),
        (Origin::Custom, _) => {}
    }
}

/// The same for an object of a kind that has no row, such as what a subresource takes.
pub fn fill_kind(api_version: &str, kind: &str, object: &mut Value) {
    let kind = Table::get().kind(api_version, kind);
    if let (Some(kind), Value::Object(fields)) = (kind, object) {
        settle::object(Table::get().message(kind.message), fields);
    }
}

/// An object of the kind about which nothing has been said, not even what it is: the fields that are there anyway.
pub fn blank(row: &Resource) -> Value {
    let kind = match row.origin {
        Origin::BuiltIn => Table::get().kind(&row.api_version(), &row.kind),
        Origin::Custom => None,
    };
    Value::Object(kind.map_or_else(Map::new, |kind| settle::blank(Table::get().message(kind.message))))
}

/// Our own kinds are custom ones without a definition, and prepared by whoever has them.
fn is_prepared(row: &Resource) -> bool {
    row.origin == Origin::BuiltIn || row.custom.is_some()
}

/// A filled object as it is to whoever finds out its owners.
pub fn seen<'o>(row: &Resource, object: &'o Value) -> Cow<'o, Value> {
    match row.origin {
        Origin::BuiltIn => seen::seen(row, object),
        Origin::Custom => Cow::Borrowed(object),
    }
}

/// Makes a filled object new: without the status it claims, with what objects of its kind are born with. Its uid, where
/// something is made of it, is expected in its metadata; since it was filled, only that may have changed. The result is
/// filled again.
pub fn prepare_create(row: &Resource, object: &mut Value, now: Timestamp) {
    let Value::Object(fields) = &mut *object else { return };
    if !is_prepared(row) {
        return;
    }
    let only_status = !create::prepare(row, fields, now) && row.origin == Origin::BuiltIn;
    match only_status.then(|| Table::get().kind(&row.api_version(), &row.kind)).flatten() {
        Some(kind) => settle::again(Table::get().message(kind.message), fields, &["metadata", "status"]),
        None => fill(row, object),
    }
}

/// Gives a filled object that is to replace `old` what it cannot change by that, such as its status, and what it need
/// not repeat, such as the address of a Service. The result is filled again.
pub fn prepare_update(row: &Resource, old: &Value, new: &mut Value, now: Timestamp) {
    match (old, &mut *new) {
        (Value::Object(old), Value::Object(fields)) if is_prepared(row) => {
            update::prepare(row, old, fields, now);
        }
        _ => return,
    }
    fill(row, new);
}

/// Gives the conditions of a request for a certificate that somebody judged the times they do not say.
pub fn prepare_approval(old: &Value, new: &mut Value, now: Timestamp) {
    status::date_conditions(old, new, now);
}

/// How well a pod with this spec is served when there is not enough for all.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    newborn::quality(spec.as_object().unwrap_or(&Map::new()))
}

/// Gives a filled object that came for its status alone the rest of `old`, whatever it says itself. What may change of
/// its metadata is not decided here. The result is filled again.
pub fn prepare_status(row: &Resource, old: &Value, new: &mut Value, now: Timestamp) {
    match (old, &mut *new) {
        (Value::Object(old), Value::Object(fields)) if is_prepared(row) => {
            status::prepare(row, old, fields, now);
        }
        _ => return,
    }
    fill(row, new);
}
