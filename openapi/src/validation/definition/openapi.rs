//! Validation of the OpenAPI keywords that a schema may use.

use std::collections::HashSet;

use serde_json::Value;

use api::meta::field::FieldError;

use super::FAULTS_MAX;
use super::props::Props;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Why a default is forbidden at a place.
type Forbidden = Option<String>;

#[derive(Clone)]
struct SchemaPosition {
    path: String,
    no_default: Forbidden,
    in_metadata: bool,
    root: bool,
}

impl SchemaPosition {
    fn child(&self, step: &str) -> SchemaPosition {
        SchemaPosition { path: format!("{}.{step}", self.path), root: false, ..self.clone() }
    }
}

pub(super) fn validate(schema: Props<'_>, path: &str, found: &mut Vec<FieldError>) {
    let root = SchemaPosition { path: path.to_owned(), no_default: None, in_metadata: false, root: true };
    node(schema, &root, found);
}

fn node(schema: Props<'_>, at: &SchemaPosition, found: &mut Vec<FieldError>) {
    if found.len() >= FAULTS_MAX {
        return;
    }
    unsupported(schema, at, found);
    if schema.is("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.push(FieldError::forbidden(format!("{}.uniqueItems", at.path), detail));
    }
    if let Some(values) = schema.get("additionalProperties") {
        if schema.properties().next().is_some() && *values != true {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.push(FieldError::forbidden(format!("{}.additionalProperties", at.path), detail));
        }
        let mut child = at.child("additionalProperties");
        if at.in_metadata {
            child.no_default = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        schema.schema("additionalProperties").into_iter().for_each(|values| node(values, &child, found));
    }
    let is_object = at.root || schema.is("x-kubernetes-embedded-resource");
    for (name, property) in schema.properties() {
        let mut child = at.child(&format!("properties[{name}]"));
        if is_object && matches!(name, "metadata" | "kind" | "apiVersion") {
            child.in_metadata = true;
            if at.root {
                child.no_default = Some(format!("in top-level {name}"));
            }
        }
        node(property, &child, found);
    }
    schema.schema("not").into_iter().for_each(|not| node(not, &at.child("not"), found));
    for list in ["allOf", "oneOf", "anyOf"] {
        for (index, condition) in schema.schemas(list).enumerate() {
            node(condition, &at.child(&format!("{list}[{index}]")), found);
        }
    }
    for (name, definition) in schema.named("definitions") {
        node(definition, &at.child(&format!("definitions[{name}]")), found);
    }
    schema.schema("items").into_iter().for_each(|items| node(items, &at.child("items"), found));
    for (index, items) in schema.schemas("items").enumerate() {
        node(items, &at.child(&format!("items[{index}]")), found);
    }
    for (name, dependency) in schema.named("dependencies").filter(|(_, dependency)| dependency.0.is_object())
    {
        node(dependency, &at.child(&format!("dependencies[{name}]")), found);
    }
    extensions(schema, &at.path, found);
    rules(schema, &at.path, found);
}

/// Reports keywords that no schema of a definition may use.
fn unsupported(schema: Props<'_>, at: &SchemaPosition, found: &mut Vec<FieldError>) {
    let path = |field: &str| format!("{}.{field}", at.path);
    let kind = schema.kind();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        found.push(FieldError::not_supported(path("type"), kind, &TYPES));
    }
    if let (true, Some(why)) = (schema.has("default"), &at.no_default) {
        found.push(FieldError::forbidden(path("default"), format!("must not be set {why}")));
    }
    for field in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.has(field) {
            found.push(FieldError::forbidden(path(field), format!("{field} is not supported")));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        found.push(FieldError::forbidden(path("type"), detail));
    }
    if !schema.list("items").is_empty() {
        found.push(FieldError::forbidden(path("items"), "items must be a schema object and not an array"));
    }
    if at.in_metadata && schema.is("x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        found.push(FieldError::forbidden(path("x-kubernetes-embedded-resource"), detail));
    }
}

/// Validates the `x-kubernetes-*` extensions for lists, maps and unknown fields.
fn extensions(schema: Props<'_>, path: &str, found: &mut Vec<FieldError>) {
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
        found.push(FieldError::invalid(at, false, "must be true or undefined"));
    }
    let of_type = |name: &str, expected: &str, found: &mut Vec<FieldError>| {
        let detail = format!("must be {expected} if {name} is specified");
        match schema.kind() {
            kind if kind == expected => return true,
            "" => found.push(FieldError::required(format!("{path}.type"), detail)),
            other => found.push(FieldError::invalid(format!("{path}.type"), other, detail)),
        }
        false
    };
    if let Some(kind) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
        of_type("x-kubernetes-map-type", "object", found);
        if !matches!(kind, "atomic" | "granular") {
            let at = format!("{path}.x-kubernetes-map-type");
            found.push(FieldError::not_supported(at, kind, &["atomic", "granular"]));
        }
    }
    let kind = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    if let Some(kind) = kind {
        if of_type("x-kubernetes-list-type", "array", found) && kind == "set" {
            set_items(schema, path, found);
        }
        if !matches!(kind, "atomic" | "set" | "map") {
            let at = format!("{path}.x-kubernetes-list-type");
            found.push(FieldError::not_supported(at, kind, &["atomic", "set", "map"]));
        }
    }
    if !schema.list("x-kubernetes-list-map-keys").is_empty() && kind != Some("map") {
        let (at, detail) = (
            format!("{path}.x-kubernetes-list-type"),
            "must be map if x-kubernetes-list-map-keys is non-empty",
        );
        found.push(match kind {
            None => FieldError::required(at, detail),
            Some(other) => FieldError::invalid(at, other, detail),
        });
    }
    if kind == Some("map") {
        map_items(schema, path, found);
    }
    if matches!(kind, Some("map" | "set")) {
        keyed(schema, kind.unwrap_or_default(), path, found);
    }
}

/// Validates the items of a set, which are compared as a whole.
fn set_items(schema: Props<'_>, path: &str, found: &mut Vec<FieldError>) {
    let Some(items) = schema.schema("items") else { return };
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.get("x-kubernetes-list-type");
    match items.kind() {
        "array" if list_type.is_some_and(|kind| kind != "atomic") => {
            let at = format!("{path}.items.x-kubernetes-list-type");
            found.push(FieldError::invalid(at, list_type.cloned().unwrap_or_default(), detail));
        }
        "object" if items.text("x-kubernetes-map-type") != "atomic" => {
            let at = format!("{path}.items.x-kubernetes-map-type");
            found.push(FieldError::invalid(at, list_type.cloned().unwrap_or_default(), detail));
        }
        _ => {}
    }
}

/// Validates the items of an associative list: objects with scalar key fields.
fn map_items(schema: Props<'_>, path: &str, found: &mut Vec<FieldError>) {
    let keys = schema.list("x-kubernetes-list-map-keys");
    let keys_at = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        found.push(FieldError::required(
            keys_at.clone(),
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let Some(items) = schema.schema("items") else {
        if !schema.has("items") {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            found.push(FieldError::required(format!("{path}.items"), detail));
        }
        return;
    };
    if items.kind() != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        found.push(FieldError::invalid(format!("{path}.items.type"), items.kind(), detail));
        return;
    }
    // Both texts list all keys, so each is reported once and not for every key.
    let report = |detail: &str, found: &mut Vec<FieldError>| {
        found.push(FieldError::invalid(keys_at.clone(), keys.to_vec(), detail));
    };
    let (mut seen, mut has_reported_unknown, mut has_reported_repeated) = (HashSet::new(), false, false);
    for name in keys.iter().map(|key| key.as_str().unwrap_or_default()) {
        if found.len() >= FAULTS_MAX {
            return;
        }
        match items.property(name) {
            None if !has_reported_unknown => {
                has_reported_unknown = true;
                report("entries must all be names of item properties", found);
            }
            Some(property) if matches!(property.kind(), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let at = format!("{path}.items.properties[{name}].type");
                found.push(FieldError::invalid(at, items.kind(), detail));
            }
            _ => {}
        }
        if !seen.insert(name) && !has_reported_repeated {
            has_reported_repeated = true;
            report("must not contain duplicate entries", found);
        }
    }
}

/// Checks that items and their key fields are always present.
fn keyed(schema: Props<'_>, kind: &str, path: &str, found: &mut Vec<FieldError>) {
    let Some(items) = schema.schema("items") else { return };
    if items.is("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        found.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if kind != "map" {
        return;
    }
    let required: HashSet<&str> = items.list("required").iter().filter_map(Value::as_str).collect();
    for key in schema.list("x-kubernetes-list-map-keys").iter().filter_map(Value::as_str) {
        if found.len() >= FAULTS_MAX {
            return;
        }
        let Some(property) = items.property(key) else { continue };
        let at = |field: &str| format!("{path}.items.properties[{key}].{field}");
        if !required.contains(key) && !property.has("default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                          required property";
            found.push(FieldError::required(at("default"), detail));
        }
        if property.is("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            found.push(FieldError::forbidden(at("nullable"), detail));
        }
    }
}

/// Validates CEL rules, apart from their CEL expressions.
fn rules(schema: Props<'_>, path: &str, found: &mut Vec<FieldError>) {
    for (index, rule) in schema.schemas("x-kubernetes-validations").enumerate() {
        if found.len() >= FAULTS_MAX {
            return;
        }
        let at = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let has_breaks = |text: &str| text.contains(['\n', '\r']);
        let (expression, message) = (rule.text("rule").trim(), rule.text("message"));
        if expression.is_empty() {
            found.push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            found.push(FieldError::invalid(at("message"), message, "must be non-empty if specified"));
        } else if has_breaks(message.trim()) {
            found.push(FieldError::invalid(at("message"), message, "must not contain line breaks"));
        } else if has_breaks(expression) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            found.push(FieldError::required(at("message"), detail));
        }
        let made = rule.text("messageExpression");
        if !made.is_empty() && made.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            found.push(FieldError::required(at("messageExpression"), detail));
        }
        if let Some(reason) =
            rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason))
        {
            found.push(FieldError::not_supported(at("reason"), reason, &REASONS));
        }
        let field = rule.text("fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            found.push(FieldError::invalid(at("fieldPath"), field, "must be non-empty if specified"));
        }
        if has_breaks(field) {
            found.push(FieldError::invalid(at("fieldPath"), field, "must not contain line breaks"));
        }
    }
}
