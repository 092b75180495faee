//! Whether an object has all desired values.
//!
//! A server adds defaults for omitted fields and drops empty ones. So an object covers the desired one if it has every
//! desired value; additional values are no difference.
//!
//! ```text
//!   desired { replicas: 3, args: [] }     actual { replicas: 3, paused: false }     covered
//! ```

use serde_json::Value;

/// Which lists may have more items than desired.
#[derive(Clone, Copy, Debug)]
pub enum SharedLists<'a> {
    None,
    Any,
    /// Lists of which these managed fields (the part of `fieldsV1` for this value) contain single items by key.
    Keyed(&'a [&'a Value]),
}

impl SharedLists<'_> {
    fn may_have_more(self) -> bool {
        match self {
            SharedLists::None => false,
            SharedLists::Any => true,
            SharedLists::Keyed(fields) => {
                let mut names = fields.iter().filter_map(|field| field.as_object()).flatten();
                names.any(|(name, _)| name.starts_with("k:") || name.starts_with("v:"))
            }
        }
    }
}

/// Reports whether every value of `desired` is in `actual`. A shared list may have additional items at any position.
pub fn covers(actual: &Value, desired: &Value, lists: SharedLists) -> bool {
    let inside = |actual: &Value, desired: &Value, is_field: &dyn Fn(&str) -> bool| match lists {
        SharedLists::None | SharedLists::Any => covers(actual, desired, lists),
        SharedLists::Keyed(fields) => {
            let names = fields.iter().filter_map(|field| field.as_object()).flatten();
            let fields_below: Vec<&Value> =
                names.filter(|(name, _)| is_field(name)).map(|(_, field)| field).collect();
            covers(actual, desired, SharedLists::Keyed(&fields_below))
        }
    };
    match (actual, desired) {
        (Value::Object(actual), Value::Object(desired)) => {
            desired.iter().all(|(name, desired)| match actual.get(name) {
                None | Some(Value::Null) => is_empty(desired),
                Some(actual) => inside(actual, desired, &|field| field.strip_prefix("f:") == Some(name)),
            })
        }
        (Value::Array(actual), Value::Array(desired)) => {
            let fits = actual.len() == desired.len() || lists.may_have_more();
            let mut remaining = actual.iter();
            let mut is_covered = |desired: &Value| {
                remaining.any(|actual| inside(actual, desired, &|field| is_key_of(field, actual)))
            };
            fits && desired.iter().all(&mut is_covered)
        }
        _ => actual == desired,
    }
}

/// Reports whether this managed field, such as `k:{"name":"web"}`, identifies the item of a list.
fn is_key_of(field: &str, item: &Value) -> bool {
    let key = field.strip_prefix("k:").and_then(|key| serde_json::from_str::<Value>(key).ok());
    let Some(Value::Object(key)) = key else { return false };
    key.iter().all(|(name, value)| item[name] == *value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_covers_another_if_it_has_all_of_its_values() {
        let check = |actual: Value, desired: Value, [none, any]: [bool; 2]| {
            assert_eq!(covers(&actual, &desired, SharedLists::None), none, "{actual} {desired}");
            assert_eq!(covers(&actual, &desired, SharedLists::Any), any, "{actual} {desired}");
        };
        check(json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), [true, true]);
        check(json!({ "a": 1 }), json!({ "a": 2 }), [false, false]);
        check(json!({}), json!({ "a": {}, "b": [], "c": null, "d": { "e": null } }), [true, true]);
        check(json!({ "a": null }), json!({ "a": {} }), [true, true]);
        check(json!({}), json!({ "a": false }), [false, false]);
        check(json!({ "a": {} }), json!({ "a": null }), [false, false]);
        check(json!({ "l": [1, 2] }), json!({ "l": [2] }), [false, true]);
        check(json!({ "l": [1, 2] }), json!({ "l": [2, 1] }), [false, false]);
        check(json!({ "l": [1] }), json!({ "l": [1, 2] }), [false, false]);
        check(json!({ "l": [{ "a": 1, "b": 2 }] }), json!({ "l": [{ "a": 1 }] }), [true, true]);
    }

    #[test]
    fn a_list_with_keyed_items_may_have_more() {
        let actual =
            json!({ "ports": [{ "name": "x", "port": 1 }, { "name": "y", "port": 2 }], "args": ["a", "b"] });
        let fields = json!({ "f:ports": { "k:{\"name\":\"y\"}": { "f:port": {} } }, "f:args": {} });
        let check = |desired: Value, expected: bool| {
            assert_eq!(covers(&actual, &desired, SharedLists::Keyed(&[&fields])), expected, "{desired}");
        };
        check(json!({ "ports": [{ "name": "y", "port": 2 }] }), true);
        check(json!({ "ports": [{ "name": "y", "port": 3 }] }), false);
        check(json!({ "args": ["a"] }), false);
        check(json!({ "args": ["a", "b"] }), true);
    }
}
