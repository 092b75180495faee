//! Validation of objects, with the field errors of a Kubernetes API server.
//!
//! ```text
//! tables   the rules of each type, by the name of the type         "a container port is between 1 and 65535"
//!    |
//! plan     the tables and the schemas, combined once               "in a Deployment, at
//! spec.template.spec.containers…"
//!    |
//! create, update, status,     an object in, field errors out       "spec.template.spec.containers[0].ports[0]…"
//! subresource
//! ```
//!
//! A rule belongs to a type and applies wherever the type occurs. Most rules are rows of a table; a rule about two
//! fields is a small function beside the row. Which fields may change in an update is a table too, per kind.
//!
//! This is for built-in kinds. The rules of a custom kind are in its schema: see [`crate::crd`].
//!
//! Objects are decoded and defaulted before: values have the right types, and defaults are present. Nothing here
//! changes an object, reads another object, or knows the client.

mod common;
pub mod definition;
mod field_path;
mod metadata;
mod name_rules;
mod operations;
mod resources;
mod rule;
mod structural;
mod tables;
mod value;

use serde_json::Value;

use crate::catalog::resource_info::ResourceInfo;
use crate::schema::Origin;
use api::meta::field::FieldError;

pub use name_rules::name_rule;

use field_path::FieldErrors;

/// Returns the field errors of a new object.
pub fn validate_create(resource: &ResourceInfo, object: &Value) -> Vec<FieldError> {
    let mut found = FieldErrors::default();
    metadata::validate(resource, None, object, &mut found);
    match resource.origin {
        Origin::BuiltIn => {
            tables::plan::validate_object(&resource.type_name, object, &mut found);
            operations::validate_create(&resource.type_name, object, &mut found);
        }
        Origin::Custom => found.errors.extend(structural::validate_create(resource, object)),
    }
    found.errors
}

/// Returns the field errors of an update: those of a new object, and changes to immutable fields.
pub fn validate_update(resource: &ResourceInfo, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut found = FieldErrors::default();
    metadata::validate_update(old, new, &mut found);
    metadata::validate(resource, None, new, &mut found);
    if resource.origin == Origin::BuiltIn {
        let change_first = operations::comes_first(&resource.type_name);
        if change_first {
            operations::validate_update(&resource.type_name, old, new, &mut found);
        }
        tables::plan::validate_object(&resource.type_name, new, &mut found);
        if !change_first {
            operations::validate_update(&resource.type_name, old, new, &mut found);
        }
    } else {
        found.errors.extend(structural::validate_update(resource, old, new));
    }
    found.errors
}

/// Returns the field errors of a status update. The rest of the object is unchanged.
pub fn validate_status(resource: &ResourceInfo, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut found = FieldErrors::default();
    metadata::validate_update(old, new, &mut found);
    metadata::validate(resource, Some("status"), new, &mut found);
    match resource.origin {
        Origin::BuiltIn => {
            tables::plan::validate_status(&resource.type_name, new, &mut found);
            operations::validate_status(&resource.type_name, old, new, &mut found);
        }
        Origin::Custom => found.errors.extend(structural::validate_status(resource, old, new)),
    }
    found.errors
}

/// Returns the field errors of an object after a write to one of its subresources, other than its status.
pub fn validate_subresource(
    resource: &ResourceInfo,
    subresource: &str,
    old: &Value,
    new: &Value,
) -> Vec<FieldError> {
    let mut found = FieldErrors::default();
    let Some((scope, validate)) = operations::subresource_rule(&resource.type_name, subresource) else {
        return Vec::new();
    };
    metadata::validate_update(old, new, &mut found);
    metadata::validate(resource, Some(subresource), new, &mut found);
    if scope == operations::ValidationScope::EntireObject {
        tables::plan::validate_object(&resource.type_name, new, &mut found);
    }
    validate(old, new, &mut found);
    found.errors
}

/// Returns warnings for a write of a custom object.
pub fn object_warnings(resource: &ResourceInfo, old: Option<&Value>, new: &Value) -> Vec<String> {
    match resource.origin {
        Origin::BuiltIn => Vec::new(),
        Origin::Custom => metadata::finalizer_warnings(old, new),
    }
}
