//! Completes the definitions with what only the table of facts knows, in the form a kube-apiserver publishes them.

use serde_json::{Map, Value, json};

type Definitions = Map<String, Value>;

const PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const API_EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// `{"kinds": {"apps/v1/Deployment": <type>, …}, "schemas": {<type>: <definition>, …}}`
pub(crate) fn document(mut definitions: Definitions, facts: &Value) -> Value {
    add_lists(&mut definitions, facts);
    let mut schemas = Map::new();
    let mut kinds = Map::new();
    for (name, definition) in &definitions {
        let facts = &facts[name];
        for kind in strings(&facts["kinds"]) {
            kinds.insert(kind.to_owned(), json!(name));
        }
        schemas.insert(name.clone(), complete(name, definition, facts, &definitions));
    }
    json!({ "kinds": kinds, "schemas": schemas })
}

/// Values with a form of their own, which the crate describes otherwise than a server does.
fn explicit_form(name: &str) -> Option<Value> {
    if let Some(extension) = name.strip_prefix(API_EXTENSIONS) {
        return extension
            .starts_with(".JSON")
            .then(|| json!({}))
            .filter(|_| !name.ends_with(".JSONSchemaProps"));
    }
    match name {
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            Some(json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] }))
        }
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            Some(json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }))
        }
        _ => None,
    }
}

/// The crate has one generic list; a server has a list type for each kind.
fn add_lists(definitions: &mut Definitions, facts: &Value) {
    for (name, facts_of_type) in facts.as_object().expect("a table by type") {
        let Some(item) = name.strip_suffix("List").filter(|_| !definitions.contains_key(name)) else {
            continue;
        };
        let Some(of) = definitions.get(item) else { continue };
        assert!(!facts_of_type["kinds"].is_null(), "{name} is no kind");
        let short = item.rsplit('.').next().unwrap_or(item);
        let list = json!({
            "description": format!("{short}List is a list of {short} objects."),
            "type": "object",
            "properties": {
                "apiVersion": of["properties"]["apiVersion"],
                "kind": of["properties"]["kind"],
                "metadata": {
                    "description": "What the server says about the list as a whole.",
                    "$ref": format!("{PREFIX}{META}.ListMeta"),
                },
                "items": {
                    "description": format!("The {short} objects."),
                    "type": "array",
                    "items": { "$ref": format!("{PREFIX}{item}") },
                },
            },
        });
        definitions.insert(name.clone(), list);
    }
}

fn complete(name: &str, definition: &Value, facts: &Value, all: &Definitions) -> Value {
    if let Some(mut form) = explicit_form(name) {
        form["description"] = definition["description"].clone();
        return form;
    }
    let mut definition = definition.clone();
    let entries = definition.as_object_mut().expect("a definition is an object");
    // What Rust cannot do without and what a server requires are not the same.
    entries.remove("required");
    put(entries, "required", &facts["required"]);
    if let Some(Value::Object(properties)) = entries.get_mut("properties") {
        let zeros: Vec<&str> = strings(&facts["zeros"]).collect();
        for (field, property) in properties {
            *property =
                complete_property(property, &facts["fields"][field], zeros.contains(&field.as_str()), all);
        }
    }
    put(entries, "x-kubernetes-map-type", &facts["map"]);
    put(entries, "x-kubernetes-unions", &facts["unions"]);
    let kinds: Vec<Value> = strings(&facts["kinds"]).map(kind_tag).collect();
    if !kinds.is_empty() {
        entries.insert("x-kubernetes-group-version-kind".into(), kinds.into());
    }
    definition
}

fn complete_property(property: &Value, facts: &Value, is_zero: bool, all: &Definitions) -> Value {
    let mut entries = property.as_object().expect("a property is an object").clone();
    for inner in ["items", "additionalProperties"] {
        if let Some(item) = entries.get_mut(inner).filter(|item| item.is_object()) {
            *item = complete_item(item, &facts["item_enum"], all);
        }
    }
    if is_zero {
        entries.insert("default".into(), zero(&entries));
    }
    for (extension, fact) in [
        ("x-kubernetes-list-type", "list"),
        ("x-kubernetes-list-map-keys", "keys"),
        ("x-kubernetes-map-type", "map"),
        ("x-kubernetes-patch-strategy", "patch"),
        ("x-kubernetes-patch-merge-key", "key"),
        ("default", "default"),
        ("enum", "enum"),
    ] {
        put(&mut entries, extension, &facts[fact]);
    }
    beside_reference(entries)
}

/// Items and map values are never pointers, so each has the default of its type; but a type with a form of its own has
/// none.
fn complete_item(item: &Value, choices: &Value, all: &Definitions) -> Value {
    let mut entries = item.as_object().expect("an item is an object").clone();
    if let Some(inner) = entries.get_mut("items") {
        *inner = complete_item(inner, &Value::Null, all);
        return entries.into();
    }
    let to = entries.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix(PREFIX));
    let is_plain = match to {
        Some(to) => explicit_form(to).is_none() && all[to]["type"] == "object",
        None => !entries.contains_key("format") || entries["type"] == "integer",
    };
    if is_plain {
        entries.insert("default".into(), zero(&entries));
    }
    put(&mut entries, "enum", choices);
    beside_reference(entries)
}

/// The zero value of a Go field of this type.
fn zero(entries: &Map<String, Value>) -> Value {
    match entries.get("type").and_then(Value::as_str) {
        Some("string") => json!(""),
        Some("integer" | "number") => json!(0),
        Some("boolean") => json!(false),
        _ => json!({}),
    }
}

/// In OpenAPI v3 a reference hides everything beside it, so it moves into an `allOf`.
fn beside_reference(mut entries: Map<String, Value>) -> Value {
    if entries.len() > 1
        && let Some(to) = entries.remove("$ref")
    {
        entries.insert("allOf".into(), json!([{ "$ref": to }]));
    }
    entries.into()
}

fn put(entries: &mut Map<String, Value>, key: &str, value: &Value) {
    if !value.is_null() {
        entries.insert(key.to_owned(), value.clone());
    }
}

/// `apps/v1/Deployment` as the object documents use. The core group has no name: `/v1/Pod`.
fn kind_tag(kind: &str) -> Value {
    let mut segments = kind.split('/');
    let mut next = || segments.next().expect("group/version/Kind");
    json!({ "group": next(), "version": next(), "kind": next() })
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}
