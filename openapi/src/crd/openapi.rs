//! OpenAPI definitions of custom resources.
//!
//! The schema of a definition is published as it is, plus the fields every object has: apiVersion, kind, metadata.
//! OpenAPI version 2 can express less, and kubectl's parser fails on part of the rest, so the schema is reduced there.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use crate::catalog::resource_info::ResourceInfo;
use crate::schema::OpenApiDefinitions;
use crate::schema::builtin;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const CONVENTIONS: &str =
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Returns `com.example.shop.v1.Widget` for `Widget` of `shop.example.com/v1`.
pub(super) fn type_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// Returns the OpenAPI definitions of one version's objects and of lists of them.
pub(super) fn definitions(row: &ResourceInfo, version: &Value) -> OpenApiDefinitions {
    let kinds = |kind: &str| json!([{ "group": row.group, "version": row.version, "kind": kind }]);
    let mut object = with_embedded(published(&version["schema"]["openAPIV3Schema"]));
    if object.get("type").is_none() {
        object["type"] = "object".into();
    }
    add_property(&mut object, "apiVersion", type_meta("apiVersion"));
    add_property(&mut object, "kind", type_meta("kind"));
    add_property(&mut object, "metadata", reference("ObjectMeta", OBJECT_META_DESCRIPTION));
    object["x-kubernetes-group-version-kind"] = kinds(&row.kind);
    let mut list = json!({
        "type": "object",
        "description": format!("{} is a list of {}", row.list_kind, row.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": type_meta("apiVersion"),
            "kind": type_meta("kind"),
            "metadata": reference("ListMeta", "Standard list metadata."),
            "items": {
                "type": "array",
                "description": format!("List of {}. {CONVENTIONS}", row.plural),
                "items": { "$ref": format!("#/components/schemas/{}", row.type_name) },
            },
        },
        "x-kubernetes-group-version-kind": kinds(&row.list_kind),
    });
    list["properties"]["metadata"]["description"] =
        format!("Standard list metadata. {CONVENTIONS}#types-kinds").into();
    let selectable: Vec<Value> = version["selectableFields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|field| field["jsonPath"].as_str())
        .map(|path| json!({ "fieldPath": path.strip_prefix('.').unwrap_or(path) }))
        .collect();
    if !selectable.is_empty() {
        for published in [&mut object, &mut list] {
            published["x-kubernetes-selectable-fields"] = selectable.clone().into();
        }
    }
    let list_name = type_name(&row.group, &row.version, &row.list_kind);
    let named = |name: &str, json: Value| (Arc::from(name), Arc::from(json.to_string()));
    [named(&row.type_name, object), named(&list_name, list)].into()
}

fn add_property(schema: &mut Value, name: &str, property: Value) {
    match schema.get_mut("properties") {
        Some(Value::Object(properties)) => {
            properties.insert(name.to_owned(), property);
        }
        _ => schema["properties"] = json!({ name: property }),
    }
}

const OBJECT_META_DESCRIPTION: &str = "Standard object's metadata.";

fn reference(kind: &str, description: &str) -> Value {
    json!({
        "description": format!("{description} {CONVENTIONS}#metadata"),
        "allOf": [{ "$ref": format!("#/components/schemas/{META}.{kind}") }],
    })
}

/// Returns the schema of apiVersion or kind, with the description that built-in kinds have.
fn type_meta(field: &str) -> Value {
    static CONFIG_MAP: LazyLock<Value> = LazyLock::new(|| properties("io.k8s.api.core.v1.ConfigMap"));
    json!({ "type": "string", "description": CONFIG_MAP[field]["description"] })
}

/// Returns the description of a field of ObjectMeta.
pub(super) fn metadata_description(field: &str) -> &'static str {
    static METADATA: LazyLock<Value> = LazyLock::new(|| properties(&format!("{META}.ObjectMeta")));
    METADATA[field]["description"].as_str().unwrap_or_default()
}

/// Returns the properties of a built-in type in OpenAPI documents.
fn properties(type_name: &str) -> Value {
    let definition = builtin::definition(type_name).and_then(|text| serde_json::from_str::<Value>(text).ok());
    definition.map(|mut definition| definition["properties"].take()).unwrap_or_default()
}

/// Returns a schema without empty properties, and with both types for int-or-string.
fn published(json: &Value) -> Value {
    let Value::Object(entries) = json else { return json!({}) };
    let mut out = Map::new();
    for (key, value) in entries {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, field)| (name.clone(), published(field))).collect()
            }
            ("items" | "additionalProperties" | "not", Value::Object(_)) => published(value),
            ("allOf" | "anyOf" | "oneOf", Value::Array(conditions)) => {
                conditions.iter().map(published).collect()
            }
            (_, Value::Null | Value::Bool(false)) if key != "additionalProperties" && key != "default" => {
                continue;
            }
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    let mut out = Value::Object(out);
    if out[INT_OR_STRING] == true
        && !names_both_types(&out["anyOf"])
        && !names_both_types(&out["allOf"][0]["anyOf"])
    {
        let both = json!([{ "type": "integer" }, { "type": "string" }]);
        match out.get("anyOf") {
            None => out["anyOf"] = both,
            Some(_) => {
                let mut all = vec![json!({ "anyOf": both })];
                all.extend(out["allOf"].as_array().cloned().unwrap_or_default());
                out["allOf"] = all.into();
            }
        }
    }
    strip_nulls(&mut out);
    out
}

/// Removes the nulls that mutable indexing of a `Value` inserts for absent keys.
fn strip_nulls(json: &mut Value) {
    if let Value::Object(entries) = json {
        entries.retain(|key, value| !value.is_null() || key == "default");
    }
}

fn names_both_types(choices: &Value) -> bool {
    *choices == json!([{ "type": "integer" }, { "type": "string" }])
}

/// Adds apiVersion, kind and metadata to the schemas of embedded objects.
fn with_embedded(mut json: Value) -> Value {
    if let Some(fields) = json.get_mut("properties").and_then(Value::as_object_mut) {
        for field in fields.values_mut() {
            *field = with_embedded(field.take());
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = json.get_mut(inner).filter(|inner| inner.is_object()) {
            *inner = with_embedded(inner.take());
        }
    }
    if json.get(EMBEDDED) == Some(&Value::Bool(true)) {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let version = format!(
            "apiVersion defines the versioned schema of this representation of an object. {CONVENTIONS}#resources"
        );
        let kind = format!(
            "kind is a string value representing the type of this object. In CamelCase. {CONVENTIONS}#types-kinds"
        );
        add_property(&mut json, "apiVersion", text(&version));
        add_property(&mut json, "kind", text(&kind));
        add_property(&mut json, "metadata", reference("ObjectMeta", OBJECT_META_DESCRIPTION));
        let mut required = json["required"].as_array().cloned().unwrap_or_default();
        for field in ["kind", "apiVersion"] {
            if !required.iter().any(|name| name == field) {
                required.push(field.into());
            }
        }
        json["required"] = required.into();
    }
    json
}
