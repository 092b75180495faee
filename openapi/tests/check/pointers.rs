//! The JSON pointers to all values in a value.

use serde_json::Value;

/// Adds JSON pointers to `value`, which is at `at`, and to everything in it.
pub(crate) fn collect_pointers(value: &Value, at: String, pointers: &mut Vec<String>) {
    pointers.push(at.clone());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_pointers(
                    value,
                    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                    pointers,
                );
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_pointers(value, format!("{at}/{index}"), pointers);
            }
        }
        _ => {}
    }
}
