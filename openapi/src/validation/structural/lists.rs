//! Validation of lists with unique items or unique keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::schema::{ListSchema, ListType, Schema, Shape};
use api::meta::field::FieldError;

/// Reports every duplicate in a value at its second occurrence.
pub(in crate::validation) fn validate(
    value: &Value,
    schema: &Schema,
    path: &str,
    found: &mut Vec<FieldError>,
) {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            for (name, value) in fields {
                let is_embedded_metadata = object.embedded && name == "metadata";
                if let Some(field) = object.fields.get(name.as_str()).filter(|_| !is_embedded_metadata) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    validate(value, &field.schema, &path, found);
                }
            }
        }
        (Shape::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                validate(value, &map.values, &format!("{path}[{name}]"), found);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            repeated(items, list, path, found);
            for (index, item) in items.iter().enumerate() {
                validate(item, &list.items, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn repeated(items: &[Value], list: &ListSchema, path: &str, found: &mut Vec<FieldError>) {
    match &list.kind {
        ListType::Atomic => {}
        ListType::Set => {
            for index in seconds(items.iter().map(Value::to_string)) {
                found.push(FieldError::duplicate(format!("{path}[{index}]"), items[index].clone()));
            }
        }
        ListType::Map { keys } => {
            let strange = items.iter().position(|item| !item.is_object() && !item.is_null());
            if let Some(index) = strange {
                let detail = "must be an object for an array of list-type map";
                found.push(FieldError::invalid(format!("{path}[{index}]"), items[index].clone(), detail));
                return;
            }
            let key = |item: &Value| -> Value {
                let fields = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
                Value::Object(fields.collect::<Map<_, _>>())
            };
            for index in seconds(items.iter().map(|item| key(item).to_string())) {
                found.push(FieldError::duplicate(format!("{path}[{index}]"), key(&items[index])));
            }
        }
    }
}

/// Returns the index of each text's second occurrence. Further occurrences are not reported.
fn seconds(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, text) in texts.enumerate() {
        let times = times.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}
