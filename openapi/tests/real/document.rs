//! Schemas from the server's own OpenAPI document, so that both sides use the same types.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use openapi::schema::{FieldSchema, ListSchema, ListType, MapSchema, ObjectSchema, Schema, SchemaRef, Shape};
use serde_json::Value;

pub(crate) struct Document {
    definitions: Value,
    made: RefCell<BTreeMap<String, SchemaRef>>,
}

impl Document {
    pub(crate) fn new(document: &Value) -> Document {
        Document { definitions: document["components"]["schemas"].clone(), made: RefCell::default() }
    }

    /// Returns the type with this name. Recursive types are not supported; none of the used ones is recursive.
    pub(crate) fn schema(&self, name: &str) -> SchemaRef {
        if let Some(made) = self.made.borrow().get(name) {
            return made.clone();
        }
        let made = Schema { name: Some(name.into()), ..self.read(&self.definitions[name], name) };
        let made = Arc::new(made);
        self.made.borrow_mut().insert(name.to_owned(), made.clone());
        made
    }

    fn reference(&self, value: &Value) -> SchemaRef {
        let reference = value.get("$ref").or_else(|| value["allOf"][0].get("$ref"));
        match reference.and_then(Value::as_str) {
            Some(path) => self.schema(path.trim_start_matches("#/components/schemas/")),
            None => Arc::new(self.read(value, "")),
        }
    }

    fn read(&self, value: &Value, name: &str) -> Schema {
        let format = value["format"].as_str();
        let shape = match value["type"].as_str() {
            _ if name.ends_with(".IntOrString") => Shape::IntOrString,
            _ if name.ends_with(".Quantity") => Shape::String,
            Some("boolean") => Shape::Boolean,
            Some("integer") => Shape::Integer,
            Some("number") => Shape::Number,
            Some("string") => Shape::String,
            Some("array") => {
                Shape::List(ListSchema { items: self.reference(&value["items"]), kind: ListType::Atomic })
            }
            Some("object") if value.get("properties").is_some() => Shape::Object(self.object(value)),
            Some("object") if value.get("additionalProperties").is_some() => Shape::Map(MapSchema {
                values: self.reference(&value["additionalProperties"]),
                atomic: false,
            }),
            _ => Shape::Any,
        };
        Schema { shape, format: format.map(Into::into), ..Schema::default() }
    }

    fn object(&self, value: &Value) -> ObjectSchema {
        let fields = value["properties"].as_object().into_iter().flatten().map(|(name, property)| {
            let strategy = property["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
            let field = FieldSchema {
                patch_merge: strategy.split(',').any(|word| word == "merge"),
                patch_retain_keys: strategy.split(',').any(|word| word == "retainKeys"),
                patch_merge_key: property["x-kubernetes-patch-merge-key"].as_str().map(Into::into),
                ..FieldSchema::of(self.reference(property))
            };
            (name.as_str().into(), field)
        });
        ObjectSchema { fields: fields.collect(), ..ObjectSchema::default() }
    }
}
