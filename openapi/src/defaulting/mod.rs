//! Defaulting, and the fields the server sets or resets on create, update and status update.
//!
//! Clients that compare desired with live state (`kubectl diff`, Argo CD, an operator in its loop) rely on
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

mod access;
mod autoscalers;
mod canonical;
mod create;
mod image;
mod ip_families;
mod managed_fields;
mod other_kinds;
mod pod_status;
mod pods;
mod resources;
mod rules;
mod services;
mod status;
pub(crate) mod structural;
#[cfg(test)]
mod tests;
mod update;
mod volume_claims;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::catalog::resource_info::ResourceInfo;
use crate::schema::Origin;
use crate::schema::messages::MessageTable;

/// Applies the defaults of the kind and puts every value into the form Kubernetes prints. Twice changes nothing.
pub fn apply_defaults(resource: &ResourceInfo, object: &mut Value) {
    match (resource.origin, resource.schema()) {
        (Origin::BuiltIn, _) => apply_kind_defaults(&resource.api_version(), &resource.kind, object),
        (Origin::Custom, Some(schema)) if resource.custom.is_some() => {
            structural::apply_structural_defaults(object, schema)
        }
        (Origin::Custom, _) => {}
    }
}

/// The same for an object of a kind that has no [`ResourceInfo`], such as the body of a subresource.
pub fn apply_kind_defaults(api_version: &str, kind: &str, object: &mut Value) {
    let kind = MessageTable::get().kind(api_version, kind);
    if let (Some(kind), Value::Object(fields)) = (kind, object) {
        canonical::canonicalize(MessageTable::get().message(kind.message), fields);
    }
}

/// An object of the kind without any field set, not even its kind: the fields that are always printed.
pub fn empty_object(resource: &ResourceInfo) -> Value {
    let kind = match resource.origin {
        Origin::BuiltIn => MessageTable::get().kind(&resource.api_version(), &resource.kind),
        Origin::Custom => None,
    };
    Value::Object(
        kind.map_or_else(Map::new, |kind| canonical::empty_fields(MessageTable::get().message(kind.message))),
    )
}

/// Kinds of holon.dev are custom ones without a definition; the API server prepares them.
fn is_prepared(resource: &ResourceInfo) -> bool {
    resource.origin == Origin::BuiltIn || resource.custom.is_some()
}

/// A defaulted object as managed fields see it.
pub fn for_managed_fields<'o>(resource: &ResourceInfo, object: &'o Value) -> Cow<'o, Value> {
    match resource.origin {
        Origin::BuiltIn => managed_fields::for_managed_fields(resource, object),
        Origin::Custom => Cow::Borrowed(object),
    }
}

/// Prepares a defaulted object for create: resets its status and sets what new objects of its kind have. Its uid, where
/// something is made of it, is expected in its metadata; since it was filled, only that may have changed. The result is
/// filled again.
pub fn prepare_create(resource: &ResourceInfo, object: &mut Value, now: Timestamp) {
    let Value::Object(fields) = &mut *object else { return };
    if !is_prepared(resource) {
        return;
    }
    let only_status = !create::prepare(resource, fields, now) && resource.origin == Origin::BuiltIn;
    match only_status.then(|| MessageTable::get().kind(&resource.api_version(), &resource.kind)).flatten() {
        Some(kind) => canonical::canonicalize_changed(
            MessageTable::get().message(kind.message),
            fields,
            &["metadata", "status"],
        ),
        None => apply_defaults(resource, object),
    }
}

/// Gives a filled object that is to replace `old` what it cannot change by that, such as its status, and what it need
/// not repeat, such as the address of a Service. The result is filled again.
pub fn prepare_update(resource: &ResourceInfo, old: &Value, new: &mut Value, now: Timestamp) {
    match (old, &mut *new) {
        (Value::Object(old), Value::Object(fields)) if is_prepared(resource) => {
            update::prepare(resource, old, fields, now);
        }
        _ => return,
    }
    apply_defaults(resource, new);
}

/// Sets missing times of the conditions of a certificate signing request when it is approved or denied.
pub fn prepare_approval(old: &Value, new: &mut Value, now: Timestamp) {
    status::date_conditions(old, new, now);
}

/// The QoS class of a pod with this spec.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    pod_status::pod_qos_class(spec.as_object().unwrap_or(&Map::new()))
}

/// Gives a filled object that came for its status alone the rest of `old`, whatever it says itself. What may change of
/// its metadata is not decided here. The result is filled again.
pub fn prepare_status(resource: &ResourceInfo, old: &Value, new: &mut Value, now: Timestamp) {
    match (old, &mut *new) {
        (Value::Object(old), Value::Object(fields)) if is_prepared(resource) => {
            status::prepare(resource, old, fields, now);
        }
        _ => return,
    }
    apply_defaults(resource, new);
}
