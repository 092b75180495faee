//! Converts definitions of custom types to OpenAPI v2.
//!
//! kubectl's parser of version 2 fails on parts of what version 3 allows, so the schema is reduced.

use serde_json::{Map, Value};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// Returns a definition for OpenAPI v2. The caller rewrites references and defaults.
pub(crate) fn in_v2(json: Value) -> Value {
    const KIND: [&str; 2] = ["x-kubernetes-group-version-kind", "x-kubernetes-selectable-fields"];
    match json {
        Value::Object(entries) if entries.get(PRESERVE) == Some(&Value::Bool(true)) => {
            // With any property listed here, kubectl would reject all others.
            let mut kept: Map<String, Value> =
                entries.into_iter().filter(|(key, _)| KIND.contains(&key.as_str())).collect();
            kept.insert("type".to_owned(), "object".into());
            kept.into()
        }
        json => cut_back(json),
    }
}

fn cut_back(json: Value) -> Value {
    let Value::Object(mut entries) = json else { return json };
    let is = |entries: &Map<String, Value>, key: &str| entries.get(key) == Some(&Value::Bool(true));
    let (nullable, preserves, embedded) =
        (is(&entries, "nullable"), is(&entries, PRESERVE), is(&entries, EMBEDDED));
    for unknown in ["anyOf", "oneOf", "not"] {
        entries.remove(unknown);
    }
    if entries.get("allOf").is_some_and(|all| all[0].get("$ref").is_none()) {
        entries.remove("allOf");
    }
    if nullable || preserves {
        entries.remove("items");
        entries.remove("properties");
    }
    let kind = entries.get("type").and_then(Value::as_str).unwrap_or_default();
    let untyped =
        nullable || kind == "array" && !entries.contains_key("items") || kind == "object" && preserves;
    if untyped {
        entries.remove("type");
    }
    if preserves && embedded {
        entries.remove("required");
    }
    let is_nullable = |json: &Value| json.get("nullable") == Some(&Value::Bool(true));
    let optional: Vec<String> = match entries.get("properties") {
        Some(Value::Object(fields)) => {
            fields.iter().filter(|(_, field)| is_nullable(field)).map(|(name, _)| name.clone()).collect()
        }
        _ => Vec::new(),
    };
    if let Some(Value::Array(required)) = entries.get_mut("required") {
        required.retain(|name| !optional.iter().any(|optional| name == optional));
        if required.is_empty() {
            entries.remove("required");
        }
    }
    if entries.get("additionalProperties").is_some_and(is_nullable) {
        entries.remove("required");
    }
    for (key, value) in &mut entries {
        match key.as_str() {
            "properties" => {
                value
                    .as_object_mut()
                    .into_iter()
                    .flatten()
                    .for_each(|(_, field)| *field = cut_back(field.take()));
            }
            "items" | "additionalProperties" => *value = cut_back(value.take()),
            _ => {}
        }
    }
    entries.into()
}
