//! Defaults of other kinds that `defaults.txt` cannot express.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, is_non_empty, items, items_mut, made, text};

/// The label by which namespaces can be selected by name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) fn name_label(namespace: &mut Fields) {
    let Some(metadata) = inner_mut(namespace, &["metadata"]) else { return };
    let name = text(metadata, "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = made(metadata, "labels")
    {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
}

/// Copies the labels of the pod template to a Job or a ReplicationController without labels.
pub(super) fn template_labels(object: &mut Fields) {
    let Some(labels) = pod_labels(object) else { return };
    if let Some(metadata) = made(object, "metadata")
        && !is_non_empty(metadata, "labels")
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

pub(super) fn template_selector(controller: &mut Fields) {
    let Some(labels) = pod_labels(controller) else { return };
    if let Some(spec) = inner_mut(controller, &["spec"])
        && !is_non_empty(spec, "selector")
    {
        spec.insert("selector".to_owned(), labels);
    }
}

fn pod_labels(object: &Fields) -> Option<Value> {
    let metadata = inner(object, &["spec", "template", "metadata"])?;
    metadata.get("labels").filter(|labels| !labels.is_null()).cloned()
}

/// Sets apiVersion and kind of a StatefulSet's claim templates. Other templates have neither.
pub(super) fn claim_types(spec: &mut Fields) {
    for claim in items_mut(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), "v1".into());
        claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    }
}

/// Completes a LimitRange item: the default limit is the maximum, the default request is the default limit, else the
/// minimum.
pub(super) fn limit_defaults(item: &mut Fields) {
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let source = inner(item, &[from]).cloned().unwrap_or_default();
        let Some(defaults) = made(item, to) else { continue };
        for (name, amount) in source {
            defaults.entry(name).or_insert(amount);
        }
    }
}

/// Encodes the entries of `stringData`, which is write-only, into `data`.
pub(super) fn string_data(secret: &mut Fields) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    let Some(data) = made(secret, "data") else { return };
    for (name, text) in texts {
        let text = text.as_str().unwrap_or_default();
        data.insert(name, STANDARD.encode(text).into());
    }
}

/// Sets `podCIDR` to the first of `podCIDRs`, or the list to `podCIDR`, which wins if they differ.
pub(super) fn pod_cidrs(spec: &mut Fields) {
    let alone = text(spec, "podCIDR").to_owned();
    let first = spec.get("podCIDRs").and_then(|ranges| ranges.get(0)).and_then(Value::as_str);
    match first.map(str::to_owned) {
        Some(first) if alone.is_empty() => spec.insert("podCIDR".to_owned(), first.into()),
        Some(first) if first == alone => None,
        _ if alone.is_empty() => None,
        _ => spec.insert("podCIDRs".to_owned(), json!([alone])),
    };
}

pub(super) fn allocatable(status: &mut Fields) {
    if !status.contains_key("allocatable")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
}

pub(super) fn definition_names(spec: &mut Fields) {
    let Some(names) = made(spec, "names") else { return };
    let kind = text(names, "kind").to_owned();
    if text(names, "singular").is_empty() {
        names.insert("singular".to_owned(), kind.to_lowercase().into());
    }
    if text(names, "listKind").is_empty() && !kind.is_empty() {
        names.insert("listKind".to_owned(), format!("{kind}List").into());
    }
}

/// Adds the storage version to the stored versions if there are none.
pub(super) fn stored_versions(definition: &mut Fields) {
    let Some(spec) = inner(definition, &["spec"]) else { return };
    let stored = items(spec, "versions").find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let Some(name) = stored.map(|version| text(version, "name").to_owned()) else { return };
    if let Some(status) = made(definition, "status")
        && !is_non_empty(status, "storedVersions")
    {
        status.insert("storedVersions".to_owned(), json!([name]));
    }
}
