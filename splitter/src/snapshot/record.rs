//! The record of an object: its name, its owner, and how it is found.

use api::fleet::{Distribution, DistributionSpec, Metadata, ObjectReference};
use api::meta::hash::word;
use api::meta::is_being_deleted;
use api::names::SPLITTER;
use controller::informer::Key;
use serde_json::{Value, json};

use crate::snapshot::{Caches, KindClass, ObjectRef, WatchedKind};

const NAME_BYTES_MAX: usize = 253;

/// The name of the record of an object.
pub(crate) fn name(watched: &WatchedKind, name: &str) -> String {
    let kind = watched.kind.name.to_lowercase();
    let whole = match watched.class {
        KindClass::Custom => format!("{kind}.{}-{name}", watched.kind.group),
        _ => format!("{kind}-{name}"),
    };
    if whole.len() <= NAME_BYTES_MAX {
        return whole;
    }
    let hash = word(&[&whole], 12);
    format!("{}-{hash}", whole.get(..NAME_BYTES_MAX - 13).unwrap_or(&kind).trim_end_matches(['-', '.']))
}

pub(crate) fn key(watched: &WatchedKind, subject: &ObjectRef) -> Key {
    Key { name: name(watched, &subject.key.name), ..subject.key.clone() }
}

/// The record of an object in the cache.
pub(crate) fn find(caches: &Caches, watched: &WatchedKind, subject: &ObjectRef) -> Option<Distribution> {
    let view = &caches.config.distributions;
    caches.get_own(view, &key(watched, subject))
}

/// Whether the garbage collector removed the owner reference of a record, because its object was deleted with
/// propagation policy Orphan.
pub(crate) fn is_orphaned(record: &Distribution) -> bool {
    let owners = record.metadata.rest.get("ownerReferences").and_then(Value::as_array);
    owners.is_none_or(Vec::is_empty)
}

fn reference(object: &Value) -> ObjectReference {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ObjectReference {
        api_version: text(&object["apiVersion"]),
        kind: text(&object["kind"]),
        name: text(&object["metadata"]["name"]),
        uid: text(&object["metadata"]["uid"]),
    }
}

/// The record of an object with this decision.
pub(crate) fn written(
    watched: &WatchedKind,
    object: &Value,
    before: Option<&Distribution>,
    spec: DistributionSpec,
    annotations: &[(&str, Option<String>)],
) -> Distribution {
    let of = reference(object);
    let mut metadata = before.map(|before| before.metadata.clone()).unwrap_or_else(|| Metadata {
        name: name(watched, &of.name),
        namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
        finalizers: vec![SPLITTER.to_owned()],
        ..Metadata::default()
    });
    for (name, value) in annotations {
        match value {
            Some(value) => metadata.annotations.insert((*name).to_owned(), value.clone()),
            None => metadata.annotations.remove(*name),
        };
    }
    // The garbage collector removes the owner reference if the object is deleted with propagation policy Orphan. Adding
    // it again would make the garbage collector delete the record with the object.
    if before.is_none() || !is_being_deleted(object) {
        let owner =
            json!([{ "apiVersion": of.api_version, "kind": of.kind, "name": of.name, "uid": of.uid }]);
        metadata.rest.insert("ownerReferences".to_owned(), owner);
    }
    let status = before.and_then(|before| before.status.clone());
    Distribution { metadata, spec: DistributionSpec { object: of, ..spec }, status }
}
