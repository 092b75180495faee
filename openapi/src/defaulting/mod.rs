//! Defaulting, and the fields the server sets or resets on create, update and status update.
//!
//! Clients that compare desired with live state (`kubectl diff`, Argo CD, an operator in its loop) rely on the server
//! to add the same defaults in the same form every time. These functions do that, in the order of a write:
//!
//! ```text
//! decoded body --apply_defaults--> --(admission)--> --prepare_create / _update / _status--> validated, stored
//! ```
//!
//! Most of it is data: `defaults.txt` has the defaults of each type, and the tables of
//! [`protobuf`](crate::codec::protobuf) determine how Kubernetes encodes each field. Code has only what the data cannot
//! express, in small functions. Nothing here allocates addresses or ports, reads other objects or knows the client. The
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

/// Applies the defaults of the kind and brings every value into the form Kubernetes returns. It is idempotent.
pub fn apply_defaults(resource: &ResourceInfo, object: &mut Value) {
    match (resource.origin, resource.schema()) {
        (Origin::BuiltIn, _) => apply_kind_defaults(&resource.api_version(), &resource.kind, object),
        (Origin::Custom, Some(schema)) if resource.custom.is_some() => {
            structural::apply_structural_defaults(object, schema)
        }
        (Origin::Custom, _) => {}
    }
}

/// Applies defaults to an object of a kind that has no [`ResourceInfo`], such as the body of a subresource.
pub fn apply_kind_defaults(api_version: &str, kind: &str, object: &mut Value) {
    let kind = MessageTable::get().kind(api_version, kind);
    if let (Some(kind), Value::Object(fields)) = (kind, object) {
        canonical::canonicalize(MessageTable::get().message(kind.message), fields);
    }
}

/// Returns an object of the kind without any field set, not even its kind: the fields that are always present.
pub fn empty_object(resource: &ResourceInfo) -> Value {
    let kind = match resource.origin {
        Origin::BuiltIn => MessageTable::get().kind(&resource.api_version(), &resource.kind),
        Origin::Custom => None,
    };
    Value::Object(
        kind.map_or_else(Map::new, |kind| canonical::empty_fields(MessageTable::get().message(kind.message))),
    )
}

/// Reports whether this module prepares objects of the kind. The kinds of holon.dev are custom ones without a
/// definition; the API server prepares them.
fn is_prepared(resource: &ResourceInfo) -> bool {
    resource.origin == Origin::BuiltIn || resource.custom.is_some()
}

/// Returns a defaulted object in the state in which managed fields are computed.
pub fn for_managed_fields<'o>(resource: &ResourceInfo, object: &'o Value) -> Cow<'o, Value> {
    match resource.origin {
        Origin::BuiltIn => managed_fields::for_managed_fields(resource, object),
        Origin::Custom => Cow::Borrowed(object),
    }
}

/// Prepares a defaulted object for create: resets its status and sets the fields of new objects. Some kinds derive
/// fields from `metadata.uid`, which must be set. Since the object was defaulted, only its metadata may have changed.
/// The result is defaulted again.
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

/// Prepares a defaulted object that replaces `old`: keeps fields that an update cannot change, such as the status, and
/// fields that the client need not repeat, such as the address of a Service. The result is defaulted again.
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

/// Returns the QoS class of a pod with this spec.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    pod_status::pod_qos_class(spec.as_object().unwrap_or(&Map::new()))
}

/// Prepares a defaulted object that replaces only the status of `old`: everything else comes from `old`. The caller
/// decides which metadata may change. The result is defaulted again.
pub fn prepare_status(resource: &ResourceInfo, old: &Value, new: &mut Value, now: Timestamp) {
    match (old, &mut *new) {
        (Value::Object(old), Value::Object(fields)) if is_prepared(resource) => {
            status::prepare(resource, old, fields, now);
        }
        _ => return,
    }
    apply_defaults(resource, new);
}
