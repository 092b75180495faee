//! Parses a [`Schema`] from OpenAPI v3 JSON, for built-in types and custom resource definitions.
//!
//! Every input has a result: a schema without a known type is [`Shape::Any`]. Validation of definitions decides whether
//! a server accepts one.
//!
//! The same JSON means slightly different things in the two. In a built-in type a default of `""`, `0`, `false` or `{}`
//! only means that the Go field is not a pointer, and an object without properties may have any fields. In a custom
//! type defaults are real, and fields without a schema are unknown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::Origin;
use crate::schema::builtin;
use crate::schema::constraints;
use crate::schema::{
    Constraints, FieldSchema, ListSchema, ListType, MapSchema, ObjectSchema, Schema, SchemaRef, Shape,
};

/// Resolves a reference such as `#/components/schemas/io.k8s.api.core.v1.PodSpec`.
pub type Resolve<'a> = dyn FnMut(&str) -> SchemaRef + 'a;

/// Parses a type. `resolve` is called for every reference in it.
pub fn schema(json: &Value, origin: Origin, resolve: &mut Resolve<'_>) -> Schema {
    let mut schema = Schema {
        name: None,
        description: description(json, origin),
        shape: shape(json, origin, resolve),
        format: text(&json["format"]),
        default: default(json, origin),
        nullable: json["nullable"] == true,
        rules: None,
    };
    if origin == Origin::Custom {
        schema.format = constraints::supported_format(json).map(Arc::from);
        schema.rules = Constraints::read(json);
        if json["x-kubernetes-embedded-resource"] == true {
            embed(&mut schema);
        }
    }
    schema
}

/// Makes a custom type one with apiVersion, kind and metadata. The constraints of the definition on the metadata are
/// kept separately, because a definition cannot change the type of metadata.
pub fn embed(schema: &mut Schema) {
    let Shape::Object(object) = &mut schema.shape else { return };
    object.embedded = true;
    for name in ["apiVersion", "kind"] {
        let text = || FieldSchema::of(Arc::new(Schema { shape: Shape::String, ..Schema::default() }));
        object.fields.entry(name.into()).or_insert_with(text);
    }
    let metadata = builtin::schema(OBJECT_META).expect("the built-in types have metadata").clone();
    if let Some(metadata_field) = object.fields.insert("metadata".into(), FieldSchema::of(metadata)) {
        schema.rules.get_or_insert_default().metadata = Some(metadata_field.schema);
    }
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Returns the description of a built-in type. Those of custom types appear only in documents, which are built from the
/// definition itself.
fn description(json: &Value, origin: Origin) -> Option<Arc<str>> {
    text(&json["description"]).filter(|_| origin == Origin::BuiltIn)
}

fn shape(json: &Value, origin: Origin, resolve: &mut Resolve<'_>) -> Shape {
    if json["x-kubernetes-int-or-string"] == true || json.get("oneOf").is_some_and(is_number_or_string) {
        return Shape::IntOrString;
    }
    let has = |name: &str| json.get(name).is_some();
    match json["type"].as_str() {
        Some("boolean") => Shape::Boolean,
        Some("integer") => Shape::Integer,
        Some("number") => Shape::Number,
        Some("string") => Shape::String,
        Some("array") => Shape::List(list(json, origin, resolve)),
        Some("object") => object(json, origin, resolve),
        _ if has("properties") || has("additionalProperties") => object(json, origin, resolve),
        _ if has("items") => Shape::List(list(json, origin, resolve)),
        _ => Shape::Any,
    }
}

/// Recognizes int-or-string in built-in definitions. In a custom definition `oneOf` has conditions, which have no
/// types.
fn is_number_or_string(choices: &Value) -> bool {
    let types: Vec<_> =
        choices.as_array().into_iter().flatten().map(|choice| choice["type"].as_str()).collect();
    types.contains(&Some("string")) && types.iter().any(|kind| matches!(kind, Some("integer" | "number")))
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn list(json: &Value, origin: Origin, resolve: &mut Resolve<'_>) -> ListSchema {
    let keys =
        || json["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(text).collect();
    let kind = match json["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map { keys: keys() },
        _ => ListType::Atomic,
    };
    if origin == Origin::Custom && json[PRESERVE] == true && json["items"].is_object() {
        // A list preserves unknown fields in its items.
        let mut items = json["items"].clone();
        items[PRESERVE] = true.into();
        return ListSchema { items: reference(&items, origin, resolve), kind };
    }
    ListSchema { items: reference(&json["items"], origin, resolve), kind }
}

fn object(json: &Value, origin: Origin, resolve: &mut Resolve<'_>) -> Shape {
    let atomic = json["x-kubernetes-map-type"] == "atomic";
    let preserves = json[PRESERVE] == true;
    let values = json.get("additionalProperties");
    let properties = json["properties"].as_object().filter(|properties| !properties.is_empty());
    match (values, properties) {
        (Some(Value::Object(_)), None) => {
            let values = reference(&json["additionalProperties"], origin, resolve);
            return Shape::Map(MapSchema { values, atomic });
        }
        // All keys are known then, but no field in their values is.
        (Some(Value::Bool(_)), None) if origin == Origin::Custom => {
            let rules = Some(Box::new(Constraints { untyped: true, ..Constraints::default() }));
            let nothing =
                Schema { shape: Shape::Object(ObjectSchema::default()), rules, ..Schema::default() };
            return Shape::Map(MapSchema { values: Arc::new(nothing), atomic });
        }
        _ => {}
    }
    let fields: BTreeMap<Arc<str>, FieldSchema> = properties
        .into_iter()
        .flatten()
        .map(|(name, property)| (name.as_str().into(), field(property, origin, resolve)))
        .collect();
    let is_open = fields.is_empty() && origin == Origin::BuiltIn || json["additionalProperties"] == true;
    let required = json["required"].as_array().into_iter().flatten().filter_map(text).collect();
    Shape::Object(ObjectSchema {
        fields,
        required,
        preserve_unknown: preserves || is_open,
        atomic,
        embedded: false,
    })
}

fn field(json: &Value, origin: Origin, resolve: &mut Resolve<'_>) -> FieldSchema {
    let strategy = json["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
    FieldSchema {
        schema: reference(json, origin, resolve),
        description: description(json, origin),
        default: default(json, origin),
        patch_merge: strategy.split(',').any(|word| word == "merge"),
        patch_retain_keys: strategy.split(',').any(|word| word == "retainKeys"),
        patch_replace: strategy.split(',').any(|word| word == "replace"),
        patch_merge_key: text(&json["x-kubernetes-patch-merge-key"]),
    }
}

/// Parses the type of a property or an item: a reference, possibly inside an `allOf` with other keywords beside it, or
/// an inline type.
fn reference(json: &Value, origin: Origin, resolve: &mut Resolve<'_>) -> SchemaRef {
    let Some(to) = json["$ref"].as_str().or_else(|| json["allOf"][0]["$ref"].as_str()) else {
        let mut schema = schema(json, origin, resolve);
        if origin == Origin::BuiltIn {
            // These belong to the field; without them, an inline type equals other inline types of the same form.
            (schema.description, schema.default) = (None, None);
        }
        return Arc::new(schema);
    };
    let schema = resolve(to.rsplit('/').next().unwrap_or(to));
    match json["x-kubernetes-map-type"].as_str() {
        Some("atomic") => atomic(&schema),
        _ => schema,
    }
}

/// Returns the type for a field in which it is atomic.
fn atomic(schema: &SchemaRef) -> SchemaRef {
    let mut schema = Schema::clone(schema);
    match &mut schema.shape {
        Shape::Object(object) => object.atomic = true,
        Shape::Map(map) => map.atomic = true,
        _ => {}
    }
    Arc::new(schema)
}

fn default(json: &Value, origin: Origin) -> Option<Value> {
    let is_go_zero = |value: &&Value| match value {
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    json.get("default").filter(|value| origin == Origin::Custom || !is_go_zero(value)).cloned()
}

fn text(json: &Value) -> Option<Arc<str>> {
    json.as_str().map(Arc::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: Value, origin: Origin) -> Schema {
        schema(&json, origin, &mut |name| Arc::new(Schema { name: Some(name.into()), ..Schema::default() }))
    }

    #[test]
    fn every_json_has_a_shape() {
        let check = |json: Value, expected: Shape| {
            assert_eq!(read(json.clone(), Origin::Custom).shape, expected, "{json}");
        };
        check(json!(null), Shape::Any);
        check(json!([1]), Shape::Any);
        check(json!({ "type": "nonsense" }), Shape::Any);
        check(json!({ "type": "integer" }), Shape::Integer);
        check(json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }), Shape::IntOrString);
        check(json!({ "x-kubernetes-int-or-string": true, "type": "string" }), Shape::IntOrString);
        check(json!({ "oneOf": [{ "required": ["a"] }] }), Shape::Any);
        check(json!({ "type": "object" }), Shape::Object(ObjectSchema::default()));
    }

    #[test]
    fn a_built_in_field_keeps_only_defaults_other_than_zero() {
        let json = json!({ "type": "object", "properties": {
            "name": { "type": "string", "default": "" },
            "protocol": { "type": "string", "default": "TCP" },
        }});
        let Shape::Object(object) = read(json.clone(), Origin::BuiltIn).shape else { panic!("an object") };
        assert_eq!(object.fields["name"].default, None);
        assert_eq!(object.fields["protocol"].default, Some(json!("TCP")));
        let Shape::Object(object) = read(json, Origin::Custom).shape else { panic!("an object") };
        assert_eq!(object.fields["name"].default, Some(json!("")));
    }

    #[test]
    fn a_reference_is_resolved_and_may_be_atomic() {
        let json = json!({ "type": "object", "properties": {
            "ports": {
                "type": "array",
                "items": { "default": {}, "allOf": [{ "$ref": "#/components/schemas/Port" }] },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "port",
            },
        }});
        let Shape::Object(object) = read(json, Origin::BuiltIn).shape else { panic!("an object") };
        let ports = &object.fields["ports"];
        assert!(ports.patch_merge && ports.patch_retain_keys);
        assert_eq!(ports.patch_merge_key.as_deref(), Some("port"));
        let Shape::List(list) = &ports.schema.shape else { panic!("a list") };
        assert_eq!(list.items.name.as_deref(), Some("Port"));
        assert_eq!(list.kind, ListType::Map { keys: vec!["port".into(), "protocol".into()] });
    }
}
