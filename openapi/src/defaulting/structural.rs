//! Defaults of custom kinds.
//!
//! A default is written once and applied wherever its field is missing: one of a megabyte, in each of a million items,
//! is more than any machine has. So the size of all defaults is measured first. An object with too many stays without
//! them: reads return it so, and [validation](crate::validation) rejects writes of it.
//!
//! The status is measured separately, because most writes drop either the status or everything else after defaulting.

use serde_json::Value;

use crate::schema::{ObjectSchema, Schema, Shape};
use api::meta::field::FieldError;

/// Maximum bytes of applied defaults, about the maximum size of a body.
const BYTES_MAX: usize = 3 << 20;
/// Maximum number of schema fields visited. The largest body of a kind with dozens of fields is below it.
const STEPS_MAX: usize = 20_000_000;

/// Applies the defaults of a schema to fields that are absent, or null without being nullable. It is idempotent.
pub(crate) fn apply_structural_defaults(object: &mut Value, schema: &Schema) {
    for part in [ObjectPart::Main, ObjectPart::Status] {
        if part.fits(object, schema) {
            part.apply_defaults_to(object, schema);
        }
    }
}

/// Reports an object that has no defaults because they would be too large.
pub(crate) fn validate(object: &Value, schema: &Schema, found: &mut Vec<FieldError>) {
    if !(ObjectPart::Main.fits(object, schema) && ObjectPart::Status.fits(object, schema)) {
        found.push(refused("<nil>"));
    }
}

/// Reports a status that has no defaults because they would be too large.
pub(crate) fn validate_status(object: &Value, schema: &Schema, found: &mut Vec<FieldError>) {
    if !ObjectPart::Status.fits(object, schema) {
        found.push(refused("status"));
    }
}

fn refused(field: &str) -> FieldError {
    let detail = format!("the defaults exceed {BYTES_MAX} bytes, or take too long to compute");
    FieldError::invalid(field, "", detail)
}

/// A part of an object that gets either all of its defaults or none.
#[derive(Clone, Copy, PartialEq)]
enum ObjectPart {
    Status,
    Main,
}

impl ObjectPart {
    fn has(self, name: &str) -> bool {
        (name == "status") == (self == ObjectPart::Status)
    }

    fn fits(self, value: &Value, schema: &Schema) -> bool {
        let mut left = DefaultingBudget { bytes: BYTES_MAX, steps: STEPS_MAX };
        match (&schema.shape, value) {
            (Shape::Object(object), Value::Object(fields)) => {
                left.fields(fields, object, schema, |name| self.has(name)).is_some()
            }
            _ => true,
        }
    }

    fn apply_defaults_to(self, value: &mut Value, schema: &Schema) {
        if let (Shape::Object(object), Value::Object(fields)) = (&schema.shape, value) {
            default_fields(fields, object, schema, |name| self.has(name));
        }
    }
}

type Fields = serde_json::Map<String, Value>;

fn default_value(value: &mut Value, schema: &Schema) {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => default_fields(fields, object, schema, |_| true),
        (Shape::Map(map), Value::Object(fields)) => {
            fields.values_mut().for_each(|value| default_item(value, &map.values))
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| default_item(item, &list.items))
        }
        _ => {}
    }
}

fn default_fields(
    fields: &mut Fields,
    object: &ObjectSchema,
    schema: &Schema,
    is_included: impl Fn(&str) -> bool,
) {
    for (name, field) in object.fields.iter().filter(|(name, _)| is_included(name)) {
        if let Some(default) = missing(fields.get(&**name), &field.schema) {
            fields.insert(name.to_string(), default.clone());
        }
    }
    for (name, value) in fields.iter_mut().filter(|(name, _)| is_included(name)) {
        if let Some(inner) = schema_of(name, object, schema) {
            default_value(value, inner);
        }
    }
}

/// Applies defaults to a value that is present, even if it is null.
fn default_item(value: &mut Value, schema: &Schema) {
    if let Some(default) = missing(Some(value), schema) {
        *value = default.clone();
    }
    default_value(value, schema);
}

/// The remaining budget for defaults. Measuring visits the same fields as defaulting and changes nothing; it returns
/// none once the budget is exceeded.
struct DefaultingBudget {
    bytes: usize,
    steps: usize,
}

impl DefaultingBudget {
    fn value(&mut self, value: &Value, schema: &Schema) -> Option<()> {
        self.step()?;
        match (&schema.shape, value) {
            (Shape::Object(object), Value::Object(fields)) => self.fields(fields, object, schema, |_| true),
            (Shape::Map(map), Value::Object(fields)) => {
                fields.values().try_for_each(|value| self.one(value, &map.values))
            }
            (Shape::List(list), Value::Array(items)) => {
                items.iter().try_for_each(|item| self.one(item, &list.items))
            }
            _ => Some(()),
        }
    }

    fn fields(
        &mut self,
        fields: &Fields,
        object: &ObjectSchema,
        schema: &Schema,
        is_included: impl Fn(&str) -> bool,
    ) -> Option<()> {
        for (name, field) in object.fields.iter().filter(|(name, _)| is_included(name)) {
            self.step()?;
            if let Some(default) = missing(fields.get(&**name), &field.schema) {
                self.text(name)?;
                self.put(default)?;
                schema_of(name, object, schema).map_or(Some(()), |inner| self.value(default, inner))?;
            }
        }
        for (name, value) in fields.iter().filter(|(name, _)| is_included(name)) {
            let inner = schema_of(name, object, schema);
            let is_missing = object
                .fields
                .get(name.as_str())
                .is_some_and(|field| missing(Some(value), &field.schema).is_some());
            if let Some(inner) = inner.filter(|_| !is_missing) {
                self.value(value, inner)?;
            }
        }
        Some(())
    }

    fn one(&mut self, value: &Value, schema: &Schema) -> Option<()> {
        match missing(Some(value), schema) {
            Some(default) => {
                self.put(default)?;
                self.value(default, schema)
            }
            None => self.value(value, schema),
        }
    }

    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.bytes = self.bytes.checked_sub(text.len() + "\"\":".len())?;
        Some(())
    }

    /// Subtracts the approximate length of a default in JSON.
    fn put(&mut self, default: &Value) -> Option<()> {
        self.text("")?;
        match default {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter().try_for_each(|item| self.put(item)),
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
                self.text(name)?;
                self.put(value)
            }),
            _ => Some(()),
        }
    }
}

/// Returns the default to apply, if the value is absent or null without being nullable.
fn missing<'s>(value: Option<&Value>, schema: &'s Schema) -> Option<&'s Value> {
    let is_set = value.is_some_and(|value| !value.is_null() || schema.nullable);
    schema.default.as_ref().filter(|_| !is_set)
}

/// Returns the schema with a field's defaults. The metadata of an embedded object has a schema of its own.
fn schema_of<'s>(name: &str, object: &'s ObjectSchema, schema: &'s Schema) -> Option<&'s Schema> {
    let field = object.fields.get(name)?;
    match object.embedded && name == "metadata" {
        true => schema.rules.as_ref()?.metadata.as_deref(),
        false => Some(&field.schema),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::schema::Origin;
    use crate::schema::parse;

    fn schema(spec: Value) -> Schema {
        let json = json!({ "type": "object", "properties": { "spec": spec } });
        parse::schema(&json, Origin::Custom, &mut |_| Arc::new(Schema::default()))
    }

    fn is_refused(schema: &Schema, spec: Value) -> bool {
        let object = json!({ "spec": spec });
        let mut defaulted = object.clone();
        apply_structural_defaults(&mut defaulted, schema);
        let mut found = Vec::new();
        validate(&defaulted, schema, &mut found);
        assert_eq!(found.is_empty(), defaulted != object, "the object is either defaulted or rejected");
        !found.is_empty()
    }

    #[test]
    fn a_large_default_is_not_copied_into_many_items() {
        let item = json!({ "type": "object", "properties": {
            "a": { "type": "string", "default": "x".repeat(1 << 20) },
        }});
        let schema = schema(json!({ "type": "array", "items": item }));
        assert!(!is_refused(&schema, json!([{}, {}])));
        assert!(is_refused(&schema, json!(vec![json!({}); 100_000])));
    }

    /// Each default adds items that get defaults in turn: a thousand times a thousand times a thousand.
    #[test]
    fn defaults_of_defaults_count() {
        let mut inner = json!({ "type": "string", "default": "x" });
        for _ in 0..3 {
            inner = json!({ "type": "object", "properties": { "a": {
                "type": "array", "items": inner, "default": vec![json!({}); 1000],
            }}, "default": {} });
        }
        assert!(is_refused(&schema(inner), json!({})));
    }
}
