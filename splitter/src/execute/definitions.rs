//! Kinds that somebody defined, in mailboxes.
//!
//! ```text
//!   user's logical cluster                     mailbox
//!   definition widgets, with its schema ────►  definition widgets, which takes anything
//!   Widget one ─────────────────────────────►  Widget one (placed)
//! ```
//!
//! A mailbox can hold an object only of a kind it knows. What an object may look like was checked where the user wrote it,
//! and is checked again by the physical cluster, by its own definition; a mailbox in between has no opinion. So one
//! definition there does for all logical clusters that define the kind, each in its own way: it has the versions of all of
//! them. It is not placed, so it stays in the mailbox: whoever runs a physical cluster decides what is served there.

use api::cluster::Id;
use controller::informer::Key;
use controller::remote::{CallError, Place};
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};

/// Lets a mailbox know the kind of an object, if it is one that somebody defined.
pub(crate) async fn bring(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    mailbox: Id,
) -> Result<(), CallError> {
    if watched.class != KindClass::Custom {
        return Ok(());
    }
    let view = &splitter.caches.config.definitions;
    let name = watched.name.to_string();
    let read = |cluster: Id| {
        let key = Key { cluster: Some(cluster), namespace: String::new(), name: name.clone() };
        view.get(&key).map(|definition| definition.read(&view.kind))
    };
    // Its definition is going, and it with it.
    let Some(own) = read(subject.cluster()) else { return Ok(()) };
    let there = splitter.caches.server.within(mailbox);
    match read(mailbox) {
        None => match there.create(&view.kind, "", &permissive(&own)).await {
            // Somebody else was faster; the next look sees what they wrote.
            Err(error) if error.is_conflict() => Ok(()),
            done => done.map(drop),
        },
        Some(present) => match widened(&present, &own) {
            Some(wider) => {
                there.replace(Place::new(&view.kind, "", &name), &wider).await?;
                // What was there before can be seen in another version now, which no event says.
                splitter.restart_watch(&name);
                Ok(())
            }
            None => Ok(()),
        },
    }
}

/// Whether the kind of an object is defined where it is. With a definition go all objects of its kind.
pub(crate) async fn is_defined(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
) -> Result<bool, CallError> {
    let kind = &splitter.caches.config.definitions.kind;
    let here = splitter.caches.server.within(subject.cluster());
    Ok(here.get(Place::new(kind, "", &watched.name)).await?.is_some())
}

/// The same kind, with the same versions, of which an object may be anything.
fn permissive(own: &Value) -> Value {
    let spec = &own["spec"];
    let versions: Vec<Value> = spec["versions"].as_array().into_iter().flatten().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": own["metadata"]["name"] },
        "spec": { "group": spec["group"], "scope": spec["scope"], "names": spec["names"], "versions": versions },
    })
}

fn version(own: &Value) -> Value {
    let mut version = json!({
        "name": own["name"], "served": own["served"], "storage": own["storage"],
        "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
    });
    if own.pointer("/subresources/status").is_some() {
        version["subresources"] = json!({ "status": {} });
    }
    version
}

/// What is there, with the versions of another definition besides; none if it has them.
fn widened(present: &Value, own: &Value) -> Option<Value> {
    let named = |definition: &Value, name: &Value| {
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        versions.into_iter().flatten().any(|version| version["name"] == *name)
    };
    let wanted = permissive(own);
    let missing: Vec<Value> = wanted["spec"]["versions"]
        .as_array()?
        .iter()
        .filter(|version| !named(present, &version["name"]))
        // It has one that is stored already.
        .map(|version| {
            let mut version = version.clone();
            version["storage"] = false.into();
            version
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    let mut wider = present.clone();
    wider["spec"]["versions"].as_array_mut()?.extend(missing);
    if let Some(annotations) = wider.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(api::names::LOGICAL_CLUSTER);
    }
    Some(wider)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(versions: &[(&str, bool)]) -> Value {
        let version = |(name, storage): &(&str, bool)| {
            json!({
                "name": name, "served": true, "storage": storage, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "required": ["spec"] } },
            })
        };
        json!({
            "metadata": { "name": "widgets.example.com", "uid": "1", "resourceVersion": "7" },
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
                "versions": versions.iter().map(version).collect::<Vec<_>>(),
                "conversion": { "strategy": "Webhook" },
            },
        })
    }

    fn versions(definition: &Value) -> Vec<(&str, bool)> {
        let versions = definition["spec"]["versions"].as_array().unwrap().iter();
        versions.map(|one| (one["name"].as_str().unwrap(), one["storage"] == true)).collect()
    }

    #[test]
    fn a_mailbox_takes_anything_of_every_version_anybody_has() {
        let first = permissive(&definition(&[("v1", true)]));
        assert_eq!(first["spec"]["conversion"], Value::Null, "a mailbox calls nobody");
        assert_eq!(first["metadata"], json!({ "name": "widgets.example.com" }));
        let schema = &first["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(*schema, json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
        assert_eq!(widened(&first, &definition(&[("v1", true)])), None);
        let both = widened(&first, &definition(&[("v2", true), ("v1", false)])).unwrap();
        assert_eq!(versions(&both), [("v1", true), ("v2", false)], "one version is stored");
    }
}
