//! Migration from client-side to server-side apply.
//!
//! `kubectl apply` used to keep what it applied in an annotation, and owned its fields as one who updates. A client that moves
//! back as `kubectl` and applies on the server does not conflict with themselves: fields the annotation mentions, and
//! are unchanged since, become its own. The annotation is kept up to date for those who go back.

use serde_json::{Map, Value};

use super::applied_fields;
use super::compare;
use super::field_set::FieldSet;
use super::schema_type::SchemaType;
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

/// The fields that were applied and are unchanged since.
pub(super) fn unchanged<'a>(
    config: &'a Value,
    live: &'a Value,
    kind: SchemaType<'a>,
) -> Option<FieldSet<'a>> {
    if verify::fault(config, kind).is_some() {
        return None;
    }
    let changes = compare::changes(config, live, kind);
    let set = applied_fields::fields(config, kind).difference(&changes.modified);
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
