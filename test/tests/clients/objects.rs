//! The objects that are written and watched, and the state that a fresh list returns.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "default";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum ObjectKind {
    ConfigMap,
    Secret,
    Pod,
}

/// The part of a state that a test compares: version and value by kind and name.
pub(crate) type InformerState = BTreeMap<(ObjectKind, String), (u64, String)>;

impl ObjectKind {
    pub(crate) const ALL: [ObjectKind; 3] = [ObjectKind::ConfigMap, ObjectKind::Secret, ObjectKind::Pod];

    pub(crate) fn parse(text: &str) -> Option<ObjectKind> {
        ObjectKind::ALL.into_iter().find(|kind| format!("{kind:?}") == text)
    }

    pub(crate) fn path(self) -> String {
        let plural = match self {
            ObjectKind::ConfigMap => "configmaps",
            ObjectKind::Secret => "secrets",
            ObjectKind::Pod => "pods",
        };
        format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
    }

    /// Returns an object with a value, or a merge patch to that value.
    pub(crate) fn with(self, value: &str) -> Value {
        match self {
            ObjectKind::ConfigMap => json!({ "data": { "value": value } }),
            ObjectKind::Secret => json!({ "data": { "value": STANDARD.encode(value) } }),
            ObjectKind::Pod => json!({ "spec": { "containers": [{ "name": "one", "image": value }] } }),
        }
    }

    fn value(self, object: &Value) -> Option<String> {
        match self {
            ObjectKind::ConfigMap => object["data"]["value"].as_str().map(str::to_owned),
            ObjectKind::Secret => {
                String::from_utf8(STANDARD.decode(object["data"]["value"].as_str()?).ok()?).ok()
            }
            ObjectKind::Pod => object["spec"]["containers"][0]["image"].as_str().map(str::to_owned),
        }
    }
}

/// Sends a request and returns the response, without the logic of a client library. A status other than success is an
/// error.
pub(crate) async fn request(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
    let text = client.request_text(request.body(bytes)?).await?;
    serde_json::from_str(&text)
        .with_context(|| format!("the response to {method} {path} is not JSON: {text}"))
}

pub(crate) fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Returns the state of all objects, with one list per kind.
pub(crate) async fn list(client: &Client, kinds: &[ObjectKind]) -> Result<InformerState> {
    let mut state = InformerState::new();
    for kind in kinds {
        let listed = request(client, "GET", &kind.path(), None).await?;
        for item in listed["items"].as_array().context("the list has no items")? {
            let name = item["metadata"]["name"].as_str().context("the object has no name")?;
            let found =
                (version(item).context("the object has no version")?, kind.value(item).unwrap_or_default());
            state.insert((*kind, name.to_owned()), found);
        }
    }
    Ok(state)
}

/// Returns a short description of the differences, if there are any.
pub(crate) fn difference(found: &InformerState, expected: &InformerState) -> Option<String> {
    let wrong: Vec<_> = expected.iter().filter(|(key, value)| found.get(*key) != Some(value)).collect();
    let surplus: Vec<_> = found.keys().filter(|key| !expected.contains_key(*key)).collect();
    if wrong.is_empty() && surplus.is_empty() {
        return None;
    }
    let first = wrong.first().map(|(key, value)| (key, value, found.get(*key)));
    Some(format!(
        "{} missing or other, {} too many; first missing or other (expected, found): {first:?}, first too many: {:?}",
        wrong.len(),
        surplus.len(),
        surplus.first()
    ))
}
