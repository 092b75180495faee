//! Accessors for the metadata of an object.

use serde_json::Value;

/// Returns the name; empty if the object has none.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// Returns the namespace; empty for an object of a cluster-scoped kind.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// Returns the generation; 0 for an object of a kind without generations.
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key)?.as_str()
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Reports whether the object has a deletion timestamp: it was deleted and waits for finalizers or its grace period.
pub fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Returns a text field of the metadata; empty if there is none.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_is_read_and_absent_fields_are_empty() {
        let object = json!({ "metadata": {
            "name": "web", "namespace": "shop", "uid": "1", "generation": 3, "finalizers": ["a", "b"],
            "labels": { "app": "web" }, "annotations": { "note": "x" }, "deletionTimestamp": "2026-01-01T00:00:00Z",
        }});
        assert_eq!((name(&object), namespace(&object), uid(&object)), ("web", "shop", "1"));
        assert_eq!((label(&object, "app"), annotation(&object, "note")), (Some("web"), Some("x")));
        assert_eq!(finalizers(&object).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((generation(&object), is_being_deleted(&object)), (3, true));
        for empty in [json!({}), json!({ "metadata": { "deletionTimestamp": null, "labels": null } })] {
            assert_eq!((name(&empty), namespace(&empty), uid(&empty)), ("", "", ""));
            assert_eq!((label(&empty, "app"), annotation(&empty, "note")), (None, None));
            assert_eq!((finalizers(&empty).count(), generation(&empty)), (0, 0));
            assert!(!is_being_deleted(&empty));
        }
    }
}
