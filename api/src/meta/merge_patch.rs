//! JSON merge patch (RFC 7396): values are set, nulls delete, lists are replaced.

use serde_json::Value;

/// Applies the patch to `target`.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        // Objects inside a list lose their nulls too, unless the list replaces an object. The RFC does not define
        // this; Kubernetes does it.
        let replaces_object = target.is_object();
        *target = patch;
        if !replaces_object {
            drop_nulls(target);
        }
        return;
    };
    let Value::Object(fields) = target else {
        *target = Value::Object(changes);
        return drop_nulls(target);
    };
    for (key, change) in changes {
        match change {
            Value::Null => drop(fields.remove(&key)),
            change => merge(fields.entry(key).or_insert(Value::Null), change),
        }
    }
}

/// Removes every field that is null: in a new value there is nothing to delete.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
