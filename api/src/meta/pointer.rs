//! Writes at a JSON pointer (RFC 6901).

use serde_json::{Map, Value};

/// The maximum nesting of lists and objects, as in Kubernetes.
pub const MAX_DEPTH: usize = 127;

/// Returns the nesting of lists and objects. None if it exceeds `MAX_DEPTH`: the result of an expression can have any
/// depth, and all code that traverses it would recurse as deep.
pub fn height(value: &Value) -> Option<usize> {
    height_within(value, MAX_DEPTH)
}

fn height_within(value: &Value, levels: usize) -> Option<usize> {
    match value {
        Value::Array(items) => Some(1 + highest(items.iter(), levels.checked_sub(1)?)?),
        Value::Object(fields) => Some(1 + highest(fields.values(), levels.checked_sub(1)?)?),
        _ => Some(0),
    }
}

fn highest<'v>(mut values: impl Iterator<Item = &'v Value>, levels: usize) -> Option<usize> {
    values.try_fold(0, |highest, value| Some(height_within(value, levels)?.max(highest)))
}

/// Sets the value at a pointer, and creates missing objects on the path. A value of another type on the path (a number
/// instead of an object) is an error, because overwriting it would lose something. `-` after a list appends.
pub fn set(root: &mut Value, pointer: &str, value: Value) -> Result<(), String> {
    let Some(path) = pointer.strip_prefix('/') else {
        return Err(format!("{pointer:?} must begin with a slash, as in /spec/replicas"));
    };
    let segments: Vec<String> = path.split('/').map(unescape).collect();
    if height(&value).is_none_or(|height| segments.len() + height > MAX_DEPTH) {
        return Err(format!("{pointer:?} would be nested more than {MAX_DEPTH} levels deep"));
    }
    let (last, before) = segments.split_last().expect("splitting gives at least one");
    let mut at = root;
    for segment in before {
        at = step(at, segment).ok_or_else(|| blocked(pointer, segment))?;
    }
    match at {
        Value::Null => *at = Value::Object(Map::from_iter([(last.clone(), value)])),
        Value::Object(fields) => drop(fields.insert(last.clone(), value)),
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let item = last.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            *item.ok_or_else(|| blocked(pointer, last))? = value;
        }
        _ => return Err(blocked(pointer, last)),
    }
    Ok(())
}

/// Removes the value at a pointer, if there is one.
pub fn remove(root: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(fields)) = root.pointer_mut(parent) {
        fields.remove(&unescape(last));
    }
}

fn step<'a>(at: &'a mut Value, segment: &str) -> Option<&'a mut Value> {
    if at.is_null() {
        *at = Value::Object(Map::new());
    }
    match at {
        Value::Object(fields) => Some(fields.entry(segment).or_insert(Value::Null)),
        Value::Array(items) => items.get_mut(segment.parse::<usize>().ok()?),
        _ => None,
    }
}

fn blocked(pointer: &str, segment: &str) -> String {
    format!("path {pointer:?} leads through a scalar, or past the end of a list, at {segment:?}")
}

/// Escapes a name for use as a segment of a pointer.
pub fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns the name that a segment of a pointer stands for.
pub fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn set_creates_missing_parents_and_remove_ignores_missing_values() {
        let check = |before: Value, pointer: &str, expected: Option<Value>| {
            let mut value = before.clone();
            let done = set(&mut value, pointer, json!(7));
            assert_eq!(done.is_ok().then_some(value), expected, "{before} {pointer} {done:?}");
        };
        check(json!({}), "/spec/replicas", Some(json!({ "spec": { "replicas": 7 } })));
        check(
            json!({ "spec": { "a": 1 } }),
            "/spec/replicas",
            Some(json!({ "spec": { "a": 1, "replicas": 7 } })),
        );
        check(json!({ "l": [1, 2] }), "/l/1", Some(json!({ "l": [1, 7] })));
        check(json!({ "l": [1] }), "/l/-", Some(json!({ "l": [1, 7] })));
        check(json!({ "l": [{}] }), "/l/0/x", Some(json!({ "l": [{ "x": 7 }] })));
        check(json!({}), "/a~1b/c~0d", Some(json!({ "a/b": { "c~d": 7 } })));
        check(json!({ "l": [1] }), "/l/5", None);
        check(json!({ "n": 3 }), "/n/x", None);
        check(json!({}), "spec", None);
        let mut value = json!({ "a": { "b": 1, "c": 2 } });
        remove(&mut value, "/a/b");
        remove(&mut value, "/x/y");
        assert_eq!(value, json!({ "a": { "c": 2 } }));
    }

    /// An expression may return the object itself, and a path may be long: every reconcile would nest it deeper.
    #[test]
    fn nothing_is_nested_deeper_than_kubernetes_reads() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |value, _| json!({ "a": value }));
        assert_eq!(height(&nested(MAX_DEPTH)), Some(MAX_DEPTH));
        assert_eq!(height(&nested(MAX_DEPTH + 1)), None);
        let mut root = json!({});
        set(&mut root, &"/a".repeat(100), nested(27)).unwrap();
        let before = root.clone();
        let error = set(&mut root, &"/a".repeat(100), nested(28)).unwrap_err();
        assert!(error.contains("more than 127 levels deep"), "{error}");
        assert_eq!(root, before);
    }
}
