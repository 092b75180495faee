//! Short ways into JSON objects. Whatever is not of the expected shape is not there.

use serde_json::{Map, Value};

pub(super) type Fields = Map<String, Value>;

/// The text of a field; none is empty.
pub(super) fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The number of a field; none is 0.
pub(super) fn number(fields: &Fields, name: &str) -> i64 {
    fields.get(name).and_then(Value::as_i64).unwrap_or_default()
}

/// The object a path of names leads to.
pub(super) fn inner<'a>(fields: &'a Fields, path: &[&str]) -> Option<&'a Fields> {
    path.iter().try_fold(fields, |at, step| at.get(*step)?.as_object())
}

pub(super) fn inner_mut<'a>(fields: &'a mut Fields, path: &[&str]) -> Option<&'a mut Fields> {
    path.iter().try_fold(fields, |at, step| at.get_mut(*step)?.as_object_mut())
}

/// The object under a name, made where there is none. None where something else is in its place.
pub(super) fn made<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    let value = fields.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// The objects in a list.
pub(super) fn items<'a>(fields: &'a Fields, name: &str) -> impl Iterator<Item = &'a Fields> {
    fields.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

pub(super) fn items_mut<'a>(fields: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> {
    let list = fields.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Whether there is anything in the list or map under a name.
pub(super) fn is_filled(fields: &Fields, name: &str) -> bool {
    match fields.get(name) {
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(entries)) => !entries.is_empty(),
        _ => false,
    }
}
