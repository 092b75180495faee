//! The record of a decision: one Distribution per object with a placement of its own, in the same namespace.
//!
//! ```text
//!   Deployment web ◄──owns── Distribution deployment-web   finalizer: its mailbox objects are deleted first
//! ```
//!
//! The object owns its record, so the garbage collector deletes the record with it. The finalizer keeps the record
//! until the mailbox objects are deleted, so a restarted splitter still reads that they have to be. The user's deletion
//! waits for none of that.

use api::fleet::{Distribution, DistributionSpec, DistributionStatus, Metadata, ObjectReference};
use api::meta::hash::word;
use api::meta::is_being_deleted;
use api::names::SPLITTER;
use controller::informer::Key;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};

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
pub(crate) fn find(splitter: &Splitter, watched: &WatchedKind, subject: &ObjectRef) -> Option<Distribution> {
    let view = &splitter.caches.config.distributions;
    splitter.caches.get_own(view, &key(watched, subject))
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

/// Creates or replaces a record. Returns the server's version.
pub(crate) async fn commit(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<Distribution, CallError> {
    let here = splitter.caches.server.within(subject.cluster());
    let view = &splitter.caches.config.distributions;
    let mut body = serde_json::to_value(record).map_err(|error| CallError::Garbled(error.to_string()))?;
    body["apiVersion"] = view.kind.api_version().into();
    body["kind"] = view.kind.name.clone().into();
    let namespace = &subject.key.namespace;
    let written = match record.metadata.resource_version.is_empty() {
        true => here.create(&view.kind, namespace, &body).await?,
        false => here.replace(ObjectPath::new(&view.kind, namespace, &record.metadata.name), &body).await?,
    };
    splitter.own_writes.add(subject, &written);
    serde_json::from_value(written).map_err(|error| CallError::Garbled(error.to_string()))
}

/// Writes the status of a record if it changed.
pub(crate) async fn report(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
    status: &DistributionStatus,
) -> Result<(), CallError> {
    if record.status.as_ref() == Some(status) {
        return Ok(());
    }
    let kind = &splitter.caches.config.distributions.kind;
    let place = ObjectPath::new(kind, &subject.key.namespace, &record.metadata.name).part("status");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": record.metadata.uid },
        { "op": "add", "path": "/status", "value": status },
    ]);
    splitter.caches.server.within(subject.cluster()).patch(place, Patch::Json, &change).await.map(drop)
}

/// Deletes a record whose object has no placement of its own any more.
pub(crate) async fn delete(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<(), CallError> {
    let kind = &splitter.caches.config.distributions.kind;
    let place = ObjectPath::new(kind, &subject.key.namespace, &record.metadata.name);
    splitter.caches.server.within(subject.cluster()).delete(place, &record.metadata.uid).await.map(drop)
}

/// Removes the splitter's finalizer from a record: its mailbox objects are deleted, or kept on purpose.
pub(crate) async fn release(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<(), CallError> {
    let mut finalizers = record.metadata.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != SPLITTER);
    if finalizers.len() == record.metadata.finalizers.len() {
        return Ok(());
    }
    let kind = &splitter.caches.config.distributions.kind;
    let place = ObjectPath::new(kind, &subject.key.namespace, &record.metadata.name);
    let change = json!({ "metadata": {
        "uid": record.metadata.uid, "resourceVersion": record.metadata.resource_version, "finalizers": finalizers,
    } });
    match splitter.caches.server.within(subject.cluster()).patch(place, Patch::Merge, &change).await {
        Err(error) if error.is_not_found() => Ok(()),
        done => done.map(drop),
    }
}
