//! All places in a value.

use serde_json::Value;

/// Adds JSON pointers to `value`, which is at `at`, and to everything in it.
pub(crate) fn each_place(value: &Value, at: String, places: &mut Vec<String>) {
    places.push(at.clone());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                each_place(value, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), places);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                each_place(value, format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
}
