//! Field sets in `FieldsV1`, the format of managedFields.
//!
//! ```text
//! {"f:spec": {"f:replicas": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:name": {}}}}}
//! ```
//!
//! Each path element is a key. An empty object marks a member without members below it; a `.` beside other keys marks a
//! member that has some.

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path_element::{InvalidPathElement, PathElement};

const SELF: &str = ".";

/// Decodes a set. Path elements of an unknown type are ignored.
pub(super) fn decode(fields: &Value) -> Result<FieldSet<'_>, InvalidPathElement> {
    match fields {
        Value::Null => Ok(FieldSet::default()),
        Value::Object(fields) => level(fields),
        _ => Err(InvalidPathElement),
    }
}

fn level(fields: &Map<String, Value>) -> Result<FieldSet<'_>, InvalidPathElement> {
    let mut set = FieldSet::default();
    for (key, inner) in fields.iter().filter(|(key, _)| *key != SELF) {
        let Some(element) = PathElement::parse(key)? else { continue };
        let inner = inner.as_object().ok_or(InvalidPathElement)?;
        let children = level(inner)?;
        let member = inner.contains_key(SELF) || children.is_empty();
        set.push(element, member, children);
    }
    set.sort();
    Ok(set)
}

pub(super) fn encode(set: &FieldSet<'_>) -> Value {
    let mut fields = Map::new();
    for node in set.nodes() {
        let mut children = encode(&node.children);
        if let (true, false, Value::Object(inner)) = (node.member, node.children.is_empty(), &mut children) {
            inner.insert(SELF.to_owned(), Value::Object(Map::new()));
        }
        fields.insert(node.element.encode(), children);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_round_trip() {
        for fields in [
            json!({}),
            json!({ "f:a": {} }),
            json!({ "f:a": { ".": {}, "f:b": {} }, "f:c": { "v:\"x\"": {} } }),
            json!({ "f:p": { "k:{\"port\":443}": { ".": {} , "f:x": {} }, "k:{\"port\":80}": {}, "i:3": {} } }),
        ] {
            assert_eq!(encode(&decode(&fields).unwrap()), fields);
        }
        assert!(decode(&json!(null)).unwrap().is_empty());
        assert_eq!(encode(&decode(&json!({ "f:a": { "z:b": {} } })).unwrap()), json!({ "f:a": {} }));
        for malformed in [json!(1), json!({ "a": {} }), json!({ "f:a": 1 })] {
            assert!(decode(&malformed).is_err(), "{malformed}");
        }
    }
}
