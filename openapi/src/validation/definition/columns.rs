//! Columns, subresources and selectable fields of a version.

use std::collections::HashSet;

use serde_json::Value;

use api::meta::field::FieldError;

use super::props::Props;
use super::{FAULTS_MAX, items, text};

const TYPES: &str = "boolean,date,integer,number,string";
const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
/// Maximum number of selectable fields: a selector reads each of them in every object.
const SELECTABLE_MAX: usize = 8;

pub(super) fn validate(version: &Value, path: &str, found: &mut Vec<FieldError>) {
    for (index, column) in items(&version["additionalPrinterColumns"]).enumerate() {
        if found.len() >= FAULTS_MAX {
            return;
        }
        let at = |field: &str| format!("{path}[{index}].{field}");
        if text(&column["name"]).is_empty() {
            found.push(FieldError::required(at("name"), ""));
        }
        let one_of = format!("must be one of {TYPES}");
        match text(&column["type"]) {
            "" => found.push(FieldError::required(at("type"), one_of)),
            kind_name if TYPES.split(',').any(|kind| kind == kind_name) => {}
            other => found.push(FieldError::invalid(at("type"), other, one_of)),
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !FORMATS.contains(&format) {
            found.push(FieldError::invalid(
                at("format"),
                format,
                format!("must be one of {}", FORMATS.join(",")),
            ));
        }
        match text(&column["jsonPath"]) {
            "" => found.push(FieldError::required(at("JSONPath"), "")),
            path => drop(simple_path(path, &at("JSONPath"), found)),
        }
    }
}

/// Checks that a path starts with a dot. Nothing more is required.
fn simple_path(text: &str, path: &str, found: &mut Vec<FieldError>) -> bool {
    let is_path = text.starts_with('.');
    if !is_path {
        found.push(FieldError::invalid(path, text, "must be a simple json path starting with ."));
    }
    is_path
}

pub(super) fn validate_subresources(subresources: &Value, path: &str, found: &mut Vec<FieldError>) {
    let Some(scale) = subresources.get("scale") else { return };
    let rows: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    for (field, prefixes, detail) in rows {
        let at = format!("{path}.scale.{field}");
        match text(&scale[field]) {
            "" if field == "labelSelectorPath" => {}
            "" => found.push(FieldError::required(at, "")),
            path => {
                if simple_path(path, &at, found) && !prefixes.iter().any(|start| path.starts_with(start)) {
                    found.push(FieldError::invalid(at, path, detail));
                }
            }
        }
    }
}

pub(super) fn validate_selectable(version: &Value, schema: &Value, path: &str, found: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (index, field) in items(&version["selectableFields"]).enumerate() {
        let at = format!("{path}[{index}].jsonPath");
        let json_path = text(&field["jsonPath"]);
        if json_path.is_empty() {
            found.push(FieldError::required(at, ""));
            continue;
        }
        let (steps, schema) = match field_path(json_path, Props(schema)) {
            Ok(reached) => reached,
            Err(fault) => {
                found.push(FieldError::invalid(at, json_path, format!("is an invalid path: {fault}")));
                continue;
            }
        };
        if steps.first().is_some_and(|step| step == "metadata") {
            found.push(FieldError::invalid(at.clone(), json_path, "must not point to fields in metadata"));
        }
        if !matches!(schema.kind(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            found.push(FieldError::invalid(at.clone(), json_path, detail));
        }
        if !seen.insert(steps) {
            found.push(FieldError::duplicate(at, json_path));
        }
    }
    if seen.len() > SELECTABLE_MAX {
        found.push(FieldError::too_many(path, seen.len(), SELECTABLE_MAX));
    }
}

/// Follows a path of field names through a schema.
fn field_path<'d>(path: &str, schema: Props<'d>) -> Result<(Vec<String>, Props<'d>), String> {
    let (mut at, mut rest, mut steps) = (schema, path, Vec::new());
    while !rest.is_empty() {
        if rest.starts_with('[') {
            return Err("array notation is not allowed".to_owned());
        }
        let end = |text: &str| text.find(['.', '[', ']']).unwrap_or(text.len());
        let Some(after) = rest.strip_prefix('.') else {
            let excerpt = match end(rest) {
                0 => &rest[..1],
                end => &rest[..end],
            };
            return Err(format!("expected [ or . but got: {excerpt}"));
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let taken = end(after).max(1);
        let (name, next) = after.split_at(taken);
        let unknown = || "does not refer to a valid field".to_owned();
        at = match at.properties().next() {
            Some(_) => at.property(name).ok_or_else(unknown)?,
            None => at.schema("additionalProperties").ok_or_else(unknown)?,
        };
        steps.push(name.to_owned());
        rest = next;
    }
    Ok((steps, at))
}
