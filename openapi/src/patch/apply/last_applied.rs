//! Migration from client-side to server-side apply.
//!
//! Client-side `kubectl apply` stores what it applied in an annotation and owns its fields as an updater. When
//! `kubectl` then applies the same object server-side, it must not conflict with itself: it takes over the fields that
//! the annotation contains and that are unchanged since. The annotation is kept up to date, so that a user can go back
//! to client-side apply.

use serde_json::{Map, Value};

use super::applied_fields;
use super::compare;
use super::field_set::FieldSet;
use super::schema_type::SchemaType;
use super::verify;

pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Maximum size of all annotations of an object, as in Kubernetes.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Returns the object in the annotation, if there is a valid one.
pub(super) fn config(live: &Value, api_version: &str) -> Option<Value> {
    let text = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let config: Value = serde_json::from_str(text).ok()?;
    (config["apiVersion"] == api_version && config["kind"].is_string()).then_some(config)
}

/// Returns the fields that were applied and are unchanged since.
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

/// Updates the annotation if the object has it. If the annotations become too large, removes it.
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
