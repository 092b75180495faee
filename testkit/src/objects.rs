//! JSON of common objects.

use serde_json::{Value, json};

pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Returns a namespace with a placement annotation.
pub fn placed_namespace(name: &str, placement: &str) -> Value {
    let mut namespace = namespace(name);
    namespace["metadata"]["annotations"]["holon.dev/placement"] = placement.into();
    namespace
}

/// Returns a pod spec with one container, `main`.
pub fn pod_spec(image: &str) -> Value {
    json!({ "containers": [{ "name": "main", "image": image }] })
}

/// Returns a pod template with the label `app`.
pub fn template(app: &str, pod_spec: Value) -> Value {
    json!({ "metadata": { "labels": { "app": app } }, "spec": pod_spec })
}

/// Returns a Deployment whose pods have its name as the label `app`.
pub fn deployment(name: &str, replicas: u64, pod_spec: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": template(name, pod_spec),
        },
    })
}

/// Returns the condition of this type, or null if the object has none.
pub fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default()
}

/// Returns whether a condition has the status `True`.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

/// Returns the objects of a list.
pub fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}
