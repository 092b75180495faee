//! Validation of objects, with the field errors of a Kubernetes API server.
//!
//! ```text
//! tables   what holds for each type, by the name of the type      "a container port is between 1 and 65535"
//!    |
//! plan     the tables and the schemas, put together once           "in a Deployment, at spec.template.spec.containers…"
//!    |
//! create, update, status,     an object in, faults out             "spec.template.spec.containers[0].ports[0]…"
//! subresource
//! ```
//!
//! A rule is said once, of a type, and holds wherever the type stands. Most rules are rows; what needs two fields at a
//! time is a small function next to the row. What may change from one version of an object to the next is a table
//! too, per kind.
//!
//! That is for built-in kinds. What holds for a custom one is in its schema: see [`crate::crd`].
//!
//! Objects come here decoded and defaulted: values have the right types, and what Kubernetes fills in is there. Nothing
//! here changes an object, asks another object, or knows who asks.

mod common;
mod cron;
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
use crate::meta::field::FieldError;
use crate::schema::Origin;

pub use name_rules::name_rule;

use field_path::FieldErrors;

/// Field errors of a new object.
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

/// Field errors of an update: those of a new object, and changes to immutable fields.
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

/// Field errors of a status update. The rest of the object is unchanged.
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

/// Field errors of an object after a write to one of its subresources, other than its status.
pub fn validate_subresource(
    resource: &ResourceInfo,
    part: &str,
    old: &Value,
    new: &Value,
) -> Vec<FieldError> {
    let mut found = FieldErrors::default();
    let Some((scope, validate)) = operations::subresource_rule(&resource.type_name, part) else {
        return Vec::new();
    };
    metadata::validate_update(old, new, &mut found);
    metadata::validate(resource, Some(part), new, &mut found);
    if scope == operations::ValidationScope::Whole {
        tables::plan::validate_object(&resource.type_name, new, &mut found);
    }
    validate(old, new, &mut found);
    found.errors
}

/// Warnings for a write of a custom object.
pub fn object_warnings(resource: &ResourceInfo, old: Option<&Value>, new: &Value) -> Vec<String> {
    match resource.origin {
        Origin::BuiltIn => Vec::new(),
        Origin::Custom => metadata::finalizer_warnings(old, new),
    }
}
