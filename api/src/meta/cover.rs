//! Whether an object has all wanted values.
//!
//! A server adds defaults for omitted fields and drops empty ones. So an object covers the wanted one if it has every
//! wanted value; additional values are no difference.
//!
//! ```text
//!   wanted  { replicas: 3, args: [] }     found  { replicas: 3, paused: false }     covered
//! ```

use serde_json::Value;

/// Which lists may have more items than wanted.
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
                let mut names = fields.iter().filter_map(|part| part.as_object()).flatten();
                names.any(|(name, _)| name.starts_with("k:") || name.starts_with("v:"))
            }
        }
    }
}

/// Reports whether every value of `wanted` is in `found`. A shared list may have additional items at any position.
pub fn covers(found: &Value, wanted: &Value, lists: SharedLists) -> bool {
    let inside = |found: &Value, wanted: &Value, is_part: &dyn Fn(&str) -> bool| match lists {
        SharedLists::None | SharedLists::Any => covers(found, wanted, lists),
        SharedLists::Keyed(fields) => {
            let names = fields.iter().filter_map(|part| part.as_object()).flatten();
            let parts: Vec<&Value> = names.filter(|(name, _)| is_part(name)).map(|(_, part)| part).collect();
            covers(found, wanted, SharedLists::Keyed(&parts))
        }
    };
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| match found.get(name) {
                None | Some(Value::Null) => is_empty(wanted),
                Some(found) => inside(found, wanted, &|part| part.strip_prefix("f:") == Some(name)),
            })
        }
        (Value::Array(found), Value::Array(wanted)) => {
            let fits = found.len() == wanted.len() || lists.may_have_more();
            let mut rest = found.iter();
            let mut is_there =
                |wanted: &Value| rest.any(|found| inside(found, wanted, &|part| is_key_of(part, found)));
            fits && wanted.iter().all(&mut is_there)
        }
        _ => found == wanted,
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
        let check = |found: Value, wanted: Value, [none, any]: [bool; 2]| {
            assert_eq!(covers(&found, &wanted, SharedLists::None), none, "{found} {wanted}");
            assert_eq!(covers(&found, &wanted, SharedLists::Any), any, "{found} {wanted}");
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
        let found =
            json!({ "ports": [{ "name": "x", "port": 1 }, { "name": "y", "port": 2 }], "args": ["a", "b"] });
        let fields = json!({ "f:ports": { "k:{\"name\":\"y\"}": { "f:port": {} } }, "f:args": {} });
        let check = |wanted: Value, expected: bool| {
            assert_eq!(covers(&found, &wanted, SharedLists::Keyed(&[&fields])), expected, "{wanted}");
        };
        check(json!({ "ports": [{ "name": "y", "port": 2 }] }), true);
        check(json!({ "ports": [{ "name": "y", "port": 3 }] }), false);
        check(json!({ "args": ["a"] }), false);
        check(json!({ "args": ["a", "b"] }), true);
    }
}
