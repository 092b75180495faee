//! Defaults of custom kinds.

use serde_json::Value;

use crate::schema::{Schema, Shape};

/// Fills in the defaults of a schema: where a field is absent, or null and may not be. Twice changes nothing.
pub(crate) fn fill(value: &mut Value, schema: &Schema) {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            for (name, field) in &object.fields {
                if let Some(default) = &field.schema.default
                    && !is_said(fields.get(&**name), &field.schema)
                {
                    fields.insert(name.to_string(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                match object.fields.get(name.as_str()) {
                    Some(_) if object.embedded && name == "metadata" => {
                        let said = schema.rules.as_ref().and_then(|rules| rules.metadata.as_ref());
                        said.into_iter().for_each(|said| fill(value, said));
                    }
                    Some(field) => fill(value, &field.schema),
                    None => {}
                }
            }
        }
        (Shape::Map(map), Value::Object(fields)) => {
            fields.values_mut().for_each(|value| one(value, &map.values))
        }
        (Shape::List(list), Value::Array(items)) => items.iter_mut().for_each(|item| one(item, &list.items)),
        _ => {}
    }
}

/// A value that is there, if only as null.
fn one(value: &mut Value, schema: &Schema) {
    if let Some(default) = &schema.default
        && !is_said(Some(value), schema)
    {
        *value = default.clone();
    }
    fill(value, schema);
}

fn is_said(value: Option<&Value>, schema: &Schema) -> bool {
    value.is_some_and(|value| !value.is_null() || schema.nullable)
}
