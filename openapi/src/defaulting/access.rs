//! Accessors for JSON objects. They treat a value of an unexpected type as absent.

use serde_json::{Map, Value};

pub(super) type Fields = Map<String, Value>;

/// Returns the text of a field; empty if absent.
pub(super) fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number of a field; 0 if absent.
pub(super) fn number(fields: &Fields, name: &str) -> i64 {
    fields.get(name).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the object at a path of field names.
pub(super) fn inner<'a>(fields: &'a Fields, path: &[&str]) -> Option<&'a Fields> {
    path.iter().try_fold(fields, |at, step| at.get(*step)?.as_object())
}

pub(super) fn inner_mut<'a>(fields: &'a mut Fields, path: &[&str]) -> Option<&'a mut Fields> {
    path.iter().try_fold(fields, |at, step| at.get_mut(*step)?.as_object_mut())
}

/// Returns the object in a field and creates it if absent. Returns none if the field has another value.
pub(super) fn made<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    let value = fields.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Returns the objects in a list.
pub(super) fn items<'a>(fields: &'a Fields, name: &str) -> impl Iterator<Item = &'a Fields> {
    fields.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

pub(super) fn items_mut<'a>(fields: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> {
    let list = fields.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Reports whether the list or map in a field has entries.
pub(super) fn is_non_empty(fields: &Fields, name: &str) -> bool {
    match fields.get(name) {
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(entries)) => !entries.is_empty(),
        _ => false,
    }
}
