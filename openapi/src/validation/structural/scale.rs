//! Validation of the scale fields of a custom object.

use serde_json::Value;

use crate::catalog::resource_info::{ResourceInfo, ScalePaths};
use api::meta::field::FieldError;
use api::meta::pointer;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum ScaleField {
    Both,
    Status,
}

/// Checks that replica counts are 32-bit integers and not negative, and that the selector is a string.
pub(super) fn validate(
    resource: &ResourceInfo,
    object: &Value,
    fields: ScaleField,
    found: &mut Vec<FieldError>,
) {
    let Some(ScalePaths { replicas, replicas_now, selector }) =
        resource.custom.as_ref().and_then(|custom| custom.scale.as_ref())
    else {
        return;
    };
    let spec_replicas = (fields == ScaleField::Both).then_some(replicas);
    for pointer in spec_replicas.into_iter().chain([replicas_now]) {
        let path = dotted(pointer);
        match reach(object, pointer, &path) {
            Err(detail) => found.push(FieldError::invalid(path, 0, detail)),
            Ok(None) => {}
            Ok(Some(value)) => match value.as_i64() {
                None => found.push(FieldError::invalid(path.clone(), 0, unlike(&path, value, "int64"))),
                Some(count) if count < 0 => {
                    found.push(FieldError::invalid(path, count, "should be a non-negative integer"));
                }
                Some(count) if count > i64::from(i32::MAX) => {
                    let detail = format!("should be less than or equal to {}", i32::MAX);
                    found.push(FieldError::invalid(path, count, detail));
                }
                Some(_) => {}
            },
        }
    }
    if let Some(pointer) = selector {
        let path = dotted(pointer);
        match reach(object, pointer, &path) {
            Err(detail) => found.push(FieldError::invalid(path, "", detail)),
            Ok(Some(value)) if !value.is_string() => {
                found.push(FieldError::invalid(path.clone(), "", unlike(&path, value, "string")));
            }
            Ok(_) => {}
        }
    }
}

fn dotted(pointer: &str) -> String {
    pointer::unescape(&pointer.replace('/', "."))
}

/// Returns the value at the pointer, or an error if the path leads through a value that is not an object.
fn reach<'v>(object: &'v Value, pointer: &str, path: &str) -> Result<Option<&'v Value>, String> {
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        if !at.is_object() {
            return Err(unlike(path, at, "map[string]interface{}"));
        }
        match at.get(pointer::unescape(step)) {
            Some(value) => at = value,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn unlike(path: &str, value: &Value, expected: &str) -> String {
    let kind = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    format!(
        "{path} accessor error: {} is of the type {kind}, expected {expected}",
        api::meta::go::print(value)
    )
}
