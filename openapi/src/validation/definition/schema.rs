//! Validation of the whole schema of a version.

use serde_json::Value;

use api::meta::field::FieldError;

use super::budget::Budget;
use super::props::{self, Props};
use super::{defaults, openapi, structural};

/// The properties that the root may have if there is a status subresource.
const AT_ROOT: &[(&str, &str)] = &[
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

pub(super) fn validate(
    schema: &Value,
    has_status: bool,
    path: &str,
    budget: &mut Budget,
    found: &mut Vec<FieldError>,
) {
    if schema.is_null() {
        return;
    }
    let before = found.len();
    let path = format!("{path}.openAPIV3Schema");
    if has_status {
        validate_root(Props(schema), &path, found);
    }
    if Props(schema).is("nullable") {
        let detail = "nullable cannot be true at the root";
        found.push(FieldError::forbidden(format!("{path}.nullable"), detail));
    }
    let unsupported = unsupported(schema);
    if unsupported.is_none() {
        let mut faults = structural::validate(Props(schema), &path, budget);
        if faults.is_empty() {
            faults = defaults::validate(schema, &path);
        }
        found.extend(faults);
    }
    openapi::validate(Props(schema), &path, found);
    if let (true, Some(fault)) = (found.len() == before, unsupported) {
        found.push(FieldError::invalid(path, "", fault));
    }
}

fn validate_root(schema: Props<'_>, path: &str, found: &mut Vec<FieldError>) {
    let kind = schema.kind();
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        found.push(FieldError::invalid(format!("{path}.type"), kind, detail));
        return;
    }
    let fields = schema.0.as_object().into_iter().flatten();
    let mut unwanted = fields.filter(|(name, value)| {
        let is_zero = value.is_null() || **value == Value::Bool(false) || value.as_str() == Some("");
        !is_zero && !AT_ROOT.iter().any(|(allowed, _)| allowed == name)
    });
    if unwanted.next().is_some() {
        let names: Vec<&str> = AT_ROOT.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        found.push(FieldError::invalid(path, schema.0.clone(), detail));
    }
}

/// Returns why a schema cannot even be validated as a structural one.
fn unsupported(schema: &Value) -> Option<String> {
    const FIELDS: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    let mut fault = None;
    props::each(schema, &mut |node| {
        if let Some((_, field_name)) = FIELDS.iter().find(|(name, _)| node.has(name)) {
            fault.get_or_insert_with(|| format!("OpenAPIV3Schema '{field_name}' is not supported"));
        }
        if node.get("items").is_some_and(Value::is_array) {
            fault.get_or_insert_with(|| {
                "OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned()
            });
        }
        if node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let words = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
            fault.get_or_insert_with(|| words.to_owned());
        }
    });
    fault
}
