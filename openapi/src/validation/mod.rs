//! Whether an object makes sense, in the words of a Kubernetes API server.
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

use crate::catalog::resource_info::Resource;
use crate::meta::field::FieldError;
use crate::schema::Origin;

pub use name_rules::name_rule;

use field_path::Found;

/// What is wrong with a new object.
pub fn create(row: &Resource, object: &Value) -> Vec<FieldError> {
    let mut found = Found::default();
    metadata::check(row, None, object, &mut found);
    match row.origin {
        Origin::BuiltIn => {
            tables::plan::check_object(&row.type_name, object, &mut found);
            operations::check_create(&row.type_name, object, &mut found);
        }
        Origin::Custom => found.errors.extend(structural::check_create(row, object)),
    }
    found.errors
}

/// What is wrong with the next version of an object: all that would be wrong with a new one, and what may not change.
pub fn update(row: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut found = Found::default();
    metadata::check_update(old, new, &mut found);
    metadata::check(row, None, new, &mut found);
    if row.origin == Origin::BuiltIn {
        let change_first = operations::comes_first(&row.type_name);
        if change_first {
            operations::check_update(&row.type_name, old, new, &mut found);
        }
        tables::plan::check_object(&row.type_name, new, &mut found);
        if !change_first {
            operations::check_update(&row.type_name, old, new, &mut found);
        }
    } else {
        found.errors.extend(structural::check_update(row, old, new));
    }
    found.errors
}

/// What is wrong with the next status of an object. The rest of it is as it was.
pub fn status(row: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut found = Found::default();
    metadata::check_update(old, new, &mut found);
    metadata::check(row, Some("status"), new, &mut found);
    match row.origin {
        Origin::BuiltIn => {
            tables::plan::check_status(&row.type_name, new, &mut found);
            operations::check_status(&row.type_name, old, new, &mut found);
        }
        Origin::Custom => found.errors.extend(structural::check_status(row, old, new)),
    }
    found.errors
}

/// What is wrong with an object after a write to one of its subresources, other than its status.
pub fn subresource(row: &Resource, part: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut found = Found::default();
    let Some((scope, check)) = operations::of_part(&row.type_name, part) else { return Vec::new() };
    metadata::check_update(old, new, &mut found);
    metadata::check(row, Some(part), new, &mut found);
    if scope == operations::Scope::Whole {
        tables::plan::check_object(&row.type_name, new, &mut found);
    }
    check(old, new, &mut found);
    found.errors
}

/// What whoever writes a custom object is told about it, beside that it was written.
pub fn warnings(row: &Resource, old: Option<&Value>, new: &Value) -> Vec<String> {
    match row.origin {
        Origin::BuiltIn => Vec::new(),
        Origin::Custom => metadata::finalizer_warnings(old, new),
    }
}
