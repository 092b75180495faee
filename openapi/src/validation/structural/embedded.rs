//! Validation of embedded objects: apiVersion, kind and metadata.

use serde_json::{Map, Value};

use crate::schema::{Schema, Shape};
use crate::validation::metadata::embedded_metadata;
use api::meta::field::FieldError;
use api::meta::names::dns1035_label;

/// Validates everything embedded in a value, and the value itself if `outermost` is set.
pub(in crate::validation) fn validate(
    value: &Value,
    schema: &Schema,
    path: &str,
    outermost: bool,
    found: &mut Vec<FieldError>,
) {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            if object.embedded && outermost {
                one(fields, path, found);
            }
            for (name, value) in fields {
                let is_embedded_metadata = object.embedded && name == "metadata";
                if let Some(field) = object.fields.get(name.as_str()).filter(|_| !is_embedded_metadata) {
                    validate(value, &field.schema, &child_path(path, name), true, found);
                }
            }
        }
        (Shape::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                validate(value, &map.values, &format!("{path}[{name}]"), true, found);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                validate(item, &list.items, &format!("{path}[{index}]"), true, found);
            }
        }
        _ => {}
    }
}

fn one(fields: &Map<String, Value>, path: &str, found: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        if !fields.contains_key(name) {
            found.push(FieldError::required(child_path(path, name), ""));
        }
    }
    if let Some(version) = fields.get("apiVersion") {
        let fault = match version.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(text) if text.matches('/').count() > 1 => {
                Some(format!("unexpected GroupVersion string: {text}"))
            }
            Some(_) => None,
        };
        found.extend(
            fault.map(|fault| FieldError::invalid(child_path(path, "apiVersion"), version.clone(), fault)),
        );
    }
    if let Some(kind) = fields.get("kind") {
        let fault = match kind.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(text) => {
                let faults = dns1035_label(&text.to_lowercase());
                let words = "may have mixed case, but should otherwise match: ";
                (!faults.is_empty()).then(|| format!("{words}{}", faults.join(",")))
            }
        };
        found.extend(fault.map(|fault| FieldError::invalid(child_path(path, "kind"), kind.clone(), fault)));
    }
    if let Some(metadata) = fields.get("metadata") {
        found.extend(embedded_metadata(metadata, &child_path(path, "metadata")));
    }
}

fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
