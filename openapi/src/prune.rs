//! Takes out of a custom object what its schema does not know.
//!
//! Custom objects are trees, not structs: values of a wrong type and nulls stay where they are, for validation and
//! defaulting to deal with. Built-in kinds are read by [`crate::walk`], which prunes on the way.

use serde_json::Value;

use crate::schema::{Schema, Shape};

/// Removes unknown fields and returns where they were, in order.
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut removed = Vec::new();
    descend(value, schema, &mut String::new(), &mut removed);
    removed.sort_unstable();
    removed
}

/// Where there are unknown fields, in order.
pub fn unknown(value: &Value, schema: &Schema) -> Vec<String> {
    prune(&mut value.clone(), schema)
}

fn descend(value: &mut Value, schema: &Schema, path: &mut String, removed: &mut Vec<String>) {
    let here = path.len();
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            fields.retain(|key, value| {
                push_key(path, key);
                let keep = match object.fields.get(key.as_str()) {
                    Some(field) => {
                        descend(value, &field.schema, path, removed);
                        true
                    }
                    None if object.preserve_unknown => true,
                    None => {
                        removed.push(path.clone());
                        false
                    }
                };
                path.truncate(here);
                keep
            });
        }
        (Shape::Map(map), Value::Object(fields)) => {
            for (key, value) in fields {
                push_key(path, key);
                descend(value, &map.values, path, removed);
                path.truncate(here);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                descend(item, &list.items, path, removed);
                path.truncate(here);
            }
        }
        _ => {}
    }
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{any, integer, list, map, object, open, string};

    #[test]
    fn what_a_schema_does_not_know_goes() {
        let widget = object(&[("size", integer()), ("tags", list(object(&[("name", string())])))]);
        let schema = object(&[
            ("spec", widget.clone()),
            ("byName", map(widget)),
            ("free", any()),
            ("half", open(&[("known", object(&[("a", string())]))])),
        ]);
        let mut value = json!({
            "spec": {"size": "big", "colour": "red", "tags": [{"name": "a"}, {"name": "b", "x": 1}]},
            "byName": {"one": {"size": 1, "y": null}},
            "free": {"anything": [1, {"goes": true}]},
            "half": {"known": {"a": "1", "b": 2}, "other": {"c": 3}},
            "zzz": 1,
        });
        assert_eq!(unknown(&value, &schema), prune(&mut value.clone(), &schema));
        let removed = prune(&mut value, &schema);
        assert_eq!(removed, ["byName.one.y", "half.known.b", "spec.colour", "spec.tags[1].x", "zzz"]);
        assert_eq!(
            value,
            json!({
                "spec": {"size": "big", "tags": [{"name": "a"}, {"name": "b"}]},
                "byName": {"one": {"size": 1}},
                "free": {"anything": [1, {"goes": true}]},
                "half": {"known": {"a": "1"}, "other": {"c": 3}},
            })
        );
        assert_eq!(unknown(&value, &schema), Vec::<String>::new());
    }
}
