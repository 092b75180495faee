//! Looking at objects: JSON as the API server keeps it, field by field.

use std::collections::BTreeMap;

pub(crate) use api::meta::conditions::{find as condition, is_true};
pub(crate) use api::meta::is_being_deleted;
pub(crate) use api::meta::metadata::{annotation, generation, label, name, namespace, uid};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kind::Kind;

/// A text at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// A number of things; none if nobody said.
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

pub(crate) fn created(object: &Value) -> Timestamp {
    moment(object, "/metadata/creationTimestamp").unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(crate) fn moment(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// A moment as Kubernetes writes it: to the second.
pub(crate) fn time(moment: Timestamp) -> Value {
    api::meta::time::seconds(moment).into()
}

/// The owner that controls it.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    list(object, "/metadata/ownerReferences").iter().find(|owner| flag(owner, "/controller"))
}

/// What says that `owner` controls an object.
pub(crate) fn reference(kind: Kind, owner: &Value) -> Value {
    json!({
        "apiVersion": kind.row().api_version(), "kind": kind.row().kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Whether a label selector takes these labels. One that says nothing takes none: that is what workloads mean by it.
pub(crate) fn selects(selector: &Value, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let mut exact = fields(selector, "/matchLabels");
    let mut expressions = list(selector, "/matchExpressions").iter();
    let says_something = exact.next().is_some() || expressions.next().is_some();
    says_something
        && fields(selector, "/matchLabels").all(|(key, value)| labels[key] == *value)
        && list(selector, "/matchExpressions").iter().all(|expression| meets(expression, labels))
}

/// Whether one requirement holds; the same words are used for labels of pods and of nodes.
pub(crate) fn meets(expression: &Value, labels: &Value) -> bool {
    let value = labels.get(text(expression, "/key"));
    let listed = || value.is_some_and(|value| list(expression, "/values").contains(value));
    let numbers = || {
        let limit: i64 = list(expression, "/values").first()?.as_str()?.parse().ok()?;
        Some((value?.as_str()?.parse::<i64>().ok()?, limit))
    };
    match text(expression, "/operator") {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers().is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

/// Whether two values say the same to a controller. The server leaves out what is empty or zero.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let all: BTreeMap<&String, ()> = one.keys().chain(other.keys()).map(|key| (key, ())).collect();
            let of = |map: &Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
            all.keys().all(|key| same(&of(one, key), &of(other, key)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
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

/// A hash that is the same for the same value, in the letters Kubernetes makes names of.
pub(crate) fn hash(value: &Value) -> String {
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
    fn a_selector_takes_what_it_says() {
        let check = |selector: Value, labels: Value, expected: bool| {
            let object = json!({"metadata": {"labels": labels}});
            assert_eq!(selects(&selector, &object), expected, "{selector} of {object}");
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
        check(tier("Gt", json!(["3"])), json!({"tier": "4"}), true);
    }

    #[test]
    fn what_the_server_leaves_out_is_the_same_as_nothing() {
        let check = |one: Value, other: Value, expected: bool| {
            assert_eq!(same(&one, &other), expected, "{one} and {other}");
        };
        check(json!({"a": 0, "b": "x"}), json!({"b": "x", "c": []}), true);
        check(json!({"a": {"b": null}}), Value::Null, true);
        check(json!({"a": 1}), json!({}), false);
        check(json!([1, 2]), json!([2, 1]), false);
    }
}
