//! Removes unknown fields from a custom object.
//!
//! Custom objects are trees, not structs: values of a wrong type stay for validation to report, without the fields in
//! them, which are unknown. Built-in kinds are decoded by [`crate::codec::typed`], which prunes while it decodes.

use serde_json::{Map, Value};

use crate::schema::{ObjectSchema, Schema, Shape};

/// Fields of every object, whatever its definition. Metadata is decoded separately.
pub(crate) const ALWAYS_KNOWN: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields and returns their sorted paths.
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut removed = Vec::new();
    descend(value, Some(schema), &mut String::new(), &mut removed);
    removed.sort_unstable();
    removed
}

/// Returns the sorted paths of unknown fields.
pub fn unknown(value: &Value, schema: &Schema) -> Vec<String> {
    prune(&mut value.clone(), schema)
}

/// Prunes a value. Without a schema, all its fields are unknown.
fn descend(value: &mut Value, schema: Option<&Schema>, path: &mut String, removed: &mut Vec<String>) {
    let length = path.len();
    let shape = schema.map(|schema| &schema.shape);
    match (shape, &mut *value) {
        (Some(Shape::Any), _) => {}
        (Some(Shape::Object(object)), Value::Object(fields)) => self::fields(fields, object, path, removed),
        (Some(Shape::Map(map)), Value::Object(fields)) => {
            for (key, value) in fields {
                push_key(path, key);
                descend(value, Some(&map.values), path, removed);
                path.truncate(length);
            }
        }
        (Some(Shape::List(list)), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                push_index(path, index);
                descend(item, Some(&list.items), path, removed);
                path.truncate(length);
            }
        }
        _ if schema.is_some_and(preserves) => {}
        (_, Value::Object(fields)) => self::fields(fields, &ObjectSchema::default(), path, removed),
        (_, Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                push_index(path, index);
                descend(item, None, path, removed);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn fields(
    fields: &mut Map<String, Value>,
    object: &ObjectSchema,
    path: &mut String,
    removed: &mut Vec<String>,
) {
    let length = path.len();
    fields.retain(|key, value| {
        if object.embedded && ALWAYS_KNOWN.contains(&key.as_str()) {
            return true;
        }
        push_key(path, key);
        let keep = match object.fields.get(key.as_str()) {
            Some(field) => {
                descend(value, Some(&field.schema), path, removed);
                true
            }
            None if object.preserve_unknown => true,
            None => {
                removed.push(path.clone());
                false
            }
        };
        path.truncate(length);
        keep
    });
}

fn preserves(schema: &Schema) -> bool {
    schema.rules.as_ref().is_some_and(|rules| rules.preserve)
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn push_index(path: &mut String, index: usize) {
    path.push_str(&format!("[{index}]"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{any, integer, list, map, object, open, string};

    #[test]
    fn fields_unknown_to_the_schema_are_pruned() {
        let widget = object(&[("size", integer()), ("tags", list(object(&[("name", string())])))]);
        let schema = object(&[
            ("spec", widget.clone()),
            ("byName", map(widget)),
            ("free", any()),
            ("half", open(&[("known", object(&[("a", string())]))])),
        ]);
        let mut value = json!({
            "spec": {"size": {"big": 1}, "colour": "red", "tags": [{"name": "a"}, {"name": "b", "x": 1}]},
            "byName": {"one": {"size": 1, "y": null}},
            "free": {"anything": [1, {"goes": true}]},
            "half": {"known": {"a": "1", "b": 2}, "other": {"c": 3}},
            "zzz": 1,
        });
        assert_eq!(unknown(&value, &schema), prune(&mut value.clone(), &schema));
        let removed = prune(&mut value, &schema);
        let expected =
            ["byName.one.y", "half.known.b", "spec.colour", "spec.size.big", "spec.tags[1].x", "zzz"];
        assert_eq!(removed, expected);
        assert_eq!(
            value,
            json!({
                "spec": {"size": {}, "tags": [{"name": "a"}, {"name": "b"}]},
                "byName": {"one": {"size": 1}},
                "free": {"anything": [1, {"goes": true}]},
                "half": {"known": {"a": "1"}, "other": {"c": 3}},
            })
        );
        assert_eq!(unknown(&value, &schema), Vec::<String>::new());
    }
}
