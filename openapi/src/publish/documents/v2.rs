//! OpenAPI v2: one document for everything a logical cluster serves. Old clients and Argo CD use it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::parameters::{Parameter, ParameterLocation};
use super::paths::{self, BodyType, DocumentOperation, DocumentPath, OperationBody};
use super::{OpenApiDocument, PREFIX, bearer_token, closure, gnostic, information, watch_event, with_kinds};
use crate::catalog::resource_info::ResourceInfo;
use crate::publish::documents::custom::in_v2;
use crate::schema::OpenApiDefinitions;

const DEFINITIONS: &str = "#/definitions/";

/// Parameters that kubectl expects in the operation itself. It does not follow references to them.
const INLINE: [&str; 2] = ["dryRun", "fieldValidation"];

/// Returns the document as JSON.
pub fn v2(rows: &[Arc<ResourceInfo>], custom: &OpenApiDefinitions) -> OpenApiDocument {
    OpenApiDocument::of(tree(rows, custom).to_string())
}

/// Returns the document in gnostic's protobuf encoding.
pub fn v2_protobuf(rows: &[Arc<ResourceInfo>], custom: &OpenApiDefinitions) -> Vec<u8> {
    gnostic::encode(&tree(rows, custom))
}

fn tree(rows: &[Arc<ResourceInfo>], custom: &OpenApiDefinitions) -> Value {
    let versions: BTreeSet<(&str, &str)> =
        rows.iter().map(|resource| (&*resource.group, &*resource.version)).collect();
    let mut items = Map::new();
    let mut shared = Map::new();
    let mut referred = String::new();
    for (group, version) in &versions {
        let of: Vec<&ResourceInfo> = rows
            .iter()
            .map(|resource| &**resource)
            .filter(|resource| (&*resource.group, &*resource.version) == (*group, *version))
            .collect();
        referred += watch_event(&of);
        for path in paths::of_version(&of, group, version) {
            let item = path_item(&path, &mut shared);
            // References to definitions have the same names in both versions, with another prefix.
            referred += &item.to_string().replace(DEFINITIONS, PREFIX);
            items.insert(path.path, item);
        }
    }
    referred += &Value::Object(shared.clone()).to_string().replace(DEFINITIONS, PREFIX);
    let versions: Vec<(&str, &str)> = versions.into_iter().collect();
    let definitions: Map<String, Value> = closure(&referred, custom)
        .into_iter()
        .map(|(name, text)| {
            let definition = match custom.contains_key(&name) {
                true => simplified(in_v2(serde_json::from_str(&text).unwrap_or_default())),
                false => definition(&with_kinds(&name, &text, &versions)),
            };
            (name.to_string(), definition)
        })
        .collect();
    json!({
        "swagger": "2.0",
        "info": information(),
        "paths": items,
        "definitions": definitions,
        "parameters": shared,
        "securityDefinitions": { "BearerToken": bearer_token() },
        "security": [{ "BearerToken": [] }],
    })
}

fn path_item(path: &DocumentPath, shared: &mut Map<String, Value>) -> Value {
    let mut item = Map::new();
    for operation in &path.operations {
        item.insert(operation.method.to_owned(), self::operation(operation, shared));
    }
    if !path.parameters.is_empty() {
        let parameters = path.parameters.iter().map(|one| parameter(one, shared)).collect();
        item.insert("parameters".into(), parameters);
    }
    item.into()
}

fn operation(operation: &DocumentOperation, shared: &mut Map<String, Value>) -> Value {
    let mut json = operation.common();
    json["schemes"] = json!(["https"]);
    json["produces"] = json!(operation.produces);
    json["consumes"] = json!(["*/*"]);
    let mut parameters: Vec<Value> = operation.parameters.iter().map(|one| parameter(one, shared)).collect();
    match &operation.body {
        OperationBody::None => {}
        OperationBody::Object(of) => parameters.insert(0, body(of, true)),
        OperationBody::DeleteOptions => parameters.insert(0, body(&BodyType::meta("DeleteOptions"), false)),
        OperationBody::Patch(media) => {
            json["consumes"] = json!(media);
            parameters.insert(0, body(&BodyType::meta("Patch"), true));
        }
    }
    if !parameters.is_empty() {
        json["parameters"] = parameters.into();
    }
    for (code, of) in &operation.answers {
        json["responses"][*code] =
            json!({ "description": paths::meaning(code), "schema": of.json(DEFINITIONS) });
    }
    json
}

fn body(of: &BodyType, required: bool) -> Value {
    let mut json = json!({ "name": "body", "in": "body", "schema": of.json(DEFINITIONS) });
    if required {
        json["required"] = true.into();
    }
    json
}

/// Returns a reference to a shared parameter, which is added if it is new.
fn parameter(parameter: &Parameter, shared: &mut Map<String, Value>) -> Value {
    if INLINE.contains(&parameter.name) {
        return parameter.v2();
    }
    let key = match parameter.location {
        ParameterLocation::Path => format!("{}-in-path", parameter.name),
        ParameterLocation::Query => parameter.name.to_owned(),
    };
    shared.entry(key.clone()).or_insert_with(|| parameter.v2());
    json!({ "$ref": format!("#/parameters/{key}") })
}

/// Converts a definition of v3 to v2.
fn definition(text: &str) -> Value {
    simplified(serde_json::from_str(text).unwrap_or_default())
}

fn simplified(json: Value) -> Value {
    let Value::Object(mut entries) = json else { return json };
    let choices = entries.remove("oneOf");
    for absent_in_v2 in ["default", "anyOf", "not", "nullable"] {
        entries.remove(absent_in_v2);
    }
    // Int-or-string is a string in v2.
    let is_text =
        choices.iter().flat_map(|choices| choices.as_array()).flatten().any(|one| one["type"] == "string");
    if is_text {
        entries.insert("type".into(), "string".into());
    }
    if let Some(to) = entries.remove("allOf").and_then(|all| all[0]["$ref"].as_str().map(str::to_owned)) {
        entries.insert("$ref".into(), to.into());
    }
    for (key, value) in &mut entries {
        match (key.as_str(), value.take()) {
            ("$ref", Value::String(to)) => *value = to.replace(PREFIX, DEFINITIONS).into(),
            ("items" | "additionalProperties", inner) => *value = simplified(inner),
            ("properties", Value::Object(properties)) => {
                *value =
                    properties.into_iter().map(|(name, property)| (name, simplified(property))).collect();
            }
            (_, other) => *value = other,
        }
    }
    entries.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::built_in;

    #[test]
    fn every_reference_resolves_and_every_kind_has_one_type() {
        let document = tree(built_in(), &OpenApiDefinitions::new());
        let text = document.to_string();
        for segment in text.split("\"$ref\":\"#").skip(1) {
            let pointer = segment.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        let mut kinds = BTreeSet::new();
        for (name, definition) in document["definitions"].as_object().unwrap() {
            for kind in definition["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                assert!(kinds.insert(kind.to_string()), "{kind} is also {name}");
            }
        }
        assert!(kinds.len() > 100);
    }

    #[test]
    fn v2_definitions_are_converted_from_v3() {
        let check = |v3: Value, v2: Value| assert_eq!(definition(&v3.to_string()), v2);
        check(
            json!({ "default": {}, "description": "d", "allOf": [{ "$ref": "#/components/schemas/A" }] }),
            json!({ "description": "d", "$ref": "#/definitions/A" }),
        );
        check(
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] }),
            json!({ "format": "int-or-string", "type": "string" }),
        );
        // A field may have the name of a keyword.
        check(
            json!({ "properties": { "default": { "$ref": "#/components/schemas/J" }, "oneOf": { "type": "array" } } }),
            json!({ "properties": { "default": { "$ref": "#/definitions/J" }, "oneOf": { "type": "array" } } }),
        );
    }
}
