//! How somebody who has always applied from the client begins to apply on the server.
//!
//! `kubectl apply` used to keep what it applied in an annotation, and owned its fields as one who updates. Whoever comes
//! back as `kubectl` and applies on the server does not conflict with themselves: fields the annotation mentions, and
//! nobody has changed since, are theirs to take. The annotation is kept up to date for those who go back.

use serde_json::{Map, Value};

use super::compare;
use super::mentioned;
use super::set::Set;
use super::types::Type;
use super::verify;

pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations of an object together. As for Kubernetes.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// What the annotation says, if it says anything.
pub(super) fn config(live: &Value, api_version: &str) -> Option<Value> {
    let text = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let config: Value = serde_json::from_str(text).ok()?;
    (config["apiVersion"] == api_version && config["kind"].is_string()).then_some(config)
}

/// The fields of what was applied that nobody has changed since.
pub(super) fn unchanged<'a>(config: &'a Value, live: &'a Value, kind: Type<'a>) -> Option<Set<'a>> {
    if verify::fault(config, kind).is_some() {
        return None;
    }
    let changes = compare::changes(config, live, kind);
    let set = mentioned::fields(config, kind).difference(&changes.modified);
    Some(set.difference(&changes.added).difference(&changes.removed))
}

/// Keeps the annotation up to date, where there is one and room for it.
pub(super) fn update(object: &mut Value, config: &Value) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(applied) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        applied.remove(ANNOTATION);
    }
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    if bytes(annotations) > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn bytes(annotations: &Map<String, Value>) -> usize {
    annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum()
}
