//! Access to the fields of an object in JSON.

use std::collections::BTreeMap;

pub(crate) use api::meta::conditions::{find as condition, is_true};
pub(crate) use api::meta::is_being_deleted;
pub(crate) use api::meta::metadata::{annotation, generation, label, name, namespace, uid};
use api::meta::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::objects::kind::ObjectKind;

/// Returns the string at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// Returns the number at a JSON pointer; 0 if there is none.
pub(crate) fn count(object: &Value, pointer: &str) -> i64 {
    number(object, pointer).unwrap_or_default()
}

pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn fields<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

pub(crate) fn creation_time(object: &Value) -> Timestamp {
    timestamp(object, "/metadata/creationTimestamp").unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(crate) fn timestamp(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// Returns a `metav1.Time`: whole seconds.
pub(crate) fn time(at: Timestamp) -> Value {
    api::meta::time::seconds(at).into()
}

/// Returns the owner reference of the controller.
pub(crate) fn controller_reference(object: &Value) -> Option<&Value> {
    list(object, "/metadata/ownerReferences").iter().find(|owner| flag(owner, "/controller"))
}

/// Returns an owner reference that makes `owner` the controller of an object.
pub(crate) fn owner_reference(kind: ObjectKind, owner: &Value) -> Value {
    json!({
        "apiVersion": kind.info().api_version(), "kind": kind.info().kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Returns whether the label selector of a workload matches an object. An empty one matches none: workloads must have a
/// selector.
pub(crate) fn selects(selector: &LabelSelector, object: &Value) -> bool {
    !selector.is_empty() && selector.matches(|key| label(object, key))
}

/// Resolves an IntOrString: a number, or a percentage of `total`. The default is 25%.
pub(crate) fn resolve_int_or_percent(value: &Value, total: i64, round_up: bool) -> i64 {
    let percent = match value {
        Value::Number(number) => return number.as_i64().unwrap_or_default(),
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(25),
        _ => 25,
    };
    (total * percent + if round_up { 99 } else { 0 }) / 100
}

/// Returns whether two values are equal to a controller. The server drops empty and zero fields, so these equal absent
/// ones.
pub(crate) fn is_equivalent(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let all: BTreeMap<&String, ()> = one.keys().chain(other.keys()).map(|key| (key, ())).collect();
            let of = |map: &Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
            all.keys().all(|key| is_equivalent(&of(one, key), &of(other, key)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equivalent(one, other))
        }
        _ => one == other || (is_empty(one) && is_empty(other)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.values().all(is_empty),
    }
}

/// Returns a stable hash of a value, in the characters that Kubernetes uses for generated names.
pub(crate) fn name_hash(value: &Value) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = xxhash_rust::xxh3::xxh3_64(value.to_string().as_bytes());
    let letter = |_| {
        let letter = LETTERS[(rest % LETTERS.len() as u64) as usize];
        rest /= LETTERS.len() as u64;
        char::from(letter)
    };
    (0..10).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_selector_matches_labels_and_an_empty_one_matches_nothing() {
        let check = |selector: Value, labels: Value, expected: bool| {
            let object = json!({"metadata": {"labels": labels}});
            let parsed = LabelSelector::from_value(&selector).unwrap();
            assert_eq!(selects(&parsed, &object), expected, "{selector} of {object}");
        };
        let tier = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        check(json!({"matchLabels": {"app": "web"}}), json!({"app": "web", "x": "y"}), true);
        check(json!({"matchLabels": {"app": "web"}}), json!({"app": "db"}), false);
        check(json!({"matchLabels": {"app": "web"}}), Value::Null, false);
        check(json!({}), json!({"app": "web"}), false);
        check(tier("In", json!(["a", "b"])), json!({"tier": "b"}), true);
        check(tier("NotIn", json!(["a", "b"])), json!({}), true);
        check(tier("Exists", Value::Null), json!({}), false);
        check(tier("DoesNotExist", Value::Null), json!({}), true);
    }

    #[test]
    fn empty_and_zero_fields_equal_absent_ones() {
        let check = |one: Value, other: Value, expected: bool| {
            assert_eq!(is_equivalent(&one, &other), expected, "{one} and {other}");
        };
        check(json!({"a": 0, "b": "x"}), json!({"b": "x", "c": []}), true);
        check(json!({"a": {"b": null}}), Value::Null, true);
        check(json!({"a": 1}), json!({}), false);
        check(json!([1, 2]), json!([2, 1]), false);
    }
}
