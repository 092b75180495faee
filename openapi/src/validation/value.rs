//! Accessors for values that have the right types but may be absent.
//!
//! Go has zero values where JSON has absent fields, and Kubernetes' rules are written in Go: an absent string is empty,
//! an absent number is zero. Decoding has rejected values of a wrong type; they would count as absent.

use serde_json::{Map, Value};

use api::meta::quantity::Quantity;

static NULL: Value = Value::Null;

pub(super) fn get<'v>(value: &'v Value, field: &str) -> &'v Value {
    value.get(field).unwrap_or(&NULL)
}

/// Returns the value at a path of fields separated by dots.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, get)
}

pub(super) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    get(value, field).as_str().unwrap_or_default()
}

pub(super) fn int(value: &Value, field: &str) -> i64 {
    get(value, field).as_i64().unwrap_or_default()
}

pub(super) fn truth(value: &Value, field: &str) -> bool {
    get(value, field).as_bool().unwrap_or_default()
}

pub(super) fn has(value: &Value, field: &str) -> bool {
    !get(value, field).is_null()
}

pub(super) fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    get(value, field).as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn entries<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    get(value, field).as_object().into_iter().flatten()
}

pub(super) fn entry_count(value: &Value, field: &str) -> usize {
    get(value, field).as_object().map(Map::len).unwrap_or_default()
}

/// Returns a quantity; zero if it is invalid, which decoding prevents.
pub(super) fn quantity(value: &Value) -> Quantity {
    let parsed = match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    parsed.unwrap_or(Quantity::ZERO)
}

/// Reports whether the value is the zero value of its type in Go.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Reports whether two values are equal as Kubernetes compares them: absent, an empty list and an empty map are the
/// same.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        _ if nothing(left) || nothing(right) => nothing(left) && nothing(right),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let left_equal = left.iter().all(|(key, value)| same(value, right.get(key).unwrap_or(&NULL)));
            left_equal && right.iter().all(|(key, value)| left.contains_key(key) || nothing(value))
        }
        _ => left == right,
    }
}

fn nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(nothing),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_has_many_names() {
        let rows = [
            (json!({ "a": [] }), json!({}), true),
            (json!({ "a": 0 }), json!({}), false),
            (json!({ "a": { "b": null } }), json!({ "a": {} }), true),
            (json!([1, 2]), json!([1]), false),
            (json!(null), json!(""), true),
        ];
        for (left, right, expected) in rows {
            assert_eq!(same(&left, &right), expected, "{left} {right}");
            assert_eq!(same(&right, &left), expected, "{right} {left}");
        }
    }
}
