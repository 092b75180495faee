//! The objects that are written and watched, and the state that a fresh list shows.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "default";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    Pod,
}

/// The part of a state that a test compares: version and value by kind and name.
pub(crate) type State = BTreeMap<(Kind, String), (u64, String)>;

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::ConfigMap, Kind::Secret, Kind::Pod];

    pub(crate) fn parse(text: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == text)
    }

    pub(crate) fn path(self) -> String {
        let plural = match self {
            Kind::ConfigMap => "configmaps",
            Kind::Secret => "secrets",
            Kind::Pod => "pods",
        };
        format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
    }

    /// Returns an object with a value, or a merge patch to that value.
    pub(crate) fn with(self, value: &str) -> Value {
        match self {
            Kind::ConfigMap => json!({ "data": { "value": value } }),
            Kind::Secret => json!({ "data": { "value": STANDARD.encode(value) } }),
            Kind::Pod => json!({ "spec": { "containers": [{ "name": "one", "image": value }] } }),
        }
    }

    fn value(self, object: &Value) -> Option<String> {
        match self {
            Kind::ConfigMap => object["data"]["value"].as_str().map(str::to_owned),
            Kind::Secret => String::from_utf8(STANDARD.decode(object["data"]["value"].as_str()?).ok()?).ok(),
            Kind::Pod => object["spec"]["containers"][0]["image"].as_str().map(str::to_owned),
        }
    }
}

/// Sends a request and returns the response, without the logic of a client library. A status other than success is an
/// error.
pub(crate) async fn ask(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
    let text = client.request_text(request.body(bytes)?).await?;
    serde_json::from_str(&text).with_context(|| format!("{method} {path} answered {text}"))
}

pub(crate) fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Returns the state of all objects, with one list per kind.
pub(crate) async fn list(client: &Client, kinds: &[Kind]) -> Result<State> {
    let mut state = State::new();
    for kind in kinds {
        let listed = ask(client, "GET", &kind.path(), None).await?;
        for item in listed["items"].as_array().context("a list has items")? {
            let name = item["metadata"]["name"].as_str().context("an object has a name")?;
            let found = (version(item).context("and a version")?, kind.value(item).unwrap_or_default());
            state.insert((*kind, name.to_owned()), found);
        }
    }
    Ok(state)
}

/// Returns a short description of the differences, if there are any.
pub(crate) fn difference(found: &State, expected: &State) -> Option<String> {
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
