//! CustomResourceDefinitions in mailboxes.
//!
//! ```text
//!   user's logical cluster                     mailbox
//!   definition widgets, with its schema ────►  definition widgets, which accepts any object
//!   Widget one ─────────────────────────────►  Widget one (placed)
//! ```
//!
//! A mailbox can only hold objects of kinds it defines. The user's logical cluster has validated an object, and the
//! physical cluster validates it again with its own definition, so the mailbox accepts anything. One definition is
//! enough for all logical clusters that define the kind: it has the versions of all of them. It is not placed, so it
//! stays in the mailbox: the admin of a physical cluster decides which kinds it serves.

use api::cluster::Id;
use controller::informer::Key;
use controller::remote::{CallError, ObjectPath};
use serde_json::{Value, json};

use crate::context::Splitter;
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};

/// Creates the definition of an object's custom kind in a mailbox, or adds versions to it.
pub(crate) async fn ensure_definition(
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
        view.get(&key).map(|definition| definition.read_without_managed_fields(&view.kind))
    };
    // The definition is being deleted, and its objects with it.
    let Some(own) = read(subject.cluster()) else { return Ok(()) };
    let client = splitter.caches.server.within(mailbox);
    match read(mailbox) {
        None => match client.create(&view.kind, "", &permissive(&own)).await {
            // Another reconcile created it; the next one reads it.
            Err(error) if error.is_conflict() => Ok(()),
            done => done.map(drop),
        },
        Some(present) => match widened(&present, &own) {
            Some(wider) => {
                client.replace(ObjectPath::new(&view.kind, "", &name), &wider).await?;
                // Existing objects are now served in a further version, which no event reports.
                splitter.list_again(&name);
                Ok(())
            }
            None => Ok(()),
        },
    }
}

/// Whether the logical cluster of an object defines its custom kind, but does not serve the followed version. Then nothing
/// is known about its objects.
pub(crate) fn is_served_otherwise(splitter: &Splitter, watched: &WatchedKind, subject: &ObjectRef) -> bool {
    let view = &splitter.caches.config.definitions;
    let key = Key { cluster: subject.key.cluster, namespace: String::new(), name: watched.name.to_string() };
    let definition = view.get(&key).filter(|_| watched.class == KindClass::Custom);
    definition.is_some_and(|definition| {
        let definition = definition.read_without_managed_fields(&view.kind);
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        let is_followed =
            |version: &Value| version["name"] == *watched.kind.version && version["served"] == true;
        !versions.into_iter().flatten().any(is_followed)
    })
}

/// Whether the kind of an object is still defined in its logical cluster. Its objects are deleted with the definition.
pub(crate) async fn is_defined(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
) -> Result<bool, CallError> {
    let kind = &splitter.caches.config.definitions.kind;
    let here = splitter.caches.server.within(subject.cluster());
    Ok(here.get(ObjectPath::new(kind, "", &watched.name)).await?.is_some())
}

/// The same kind and versions, with a schema that accepts any object.
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

/// The definition with the versions of another one added. None if it has them.
fn widened(present: &Value, own: &Value) -> Option<Value> {
    let named = |definition: &Value, name: &Value| {
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        versions.into_iter().flatten().any(|version| version["name"] == *name)
    };
    let desired = permissive(own);
    let missing: Vec<Value> = desired["spec"]["versions"]
        .as_array()?
        .iter()
        .filter(|version| !named(present, &version["name"]))
        // The definition has a storage version already.
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
    fn mailbox_definitions_accept_any_object_of_every_version() {
        let first = permissive(&definition(&[("v1", true)]));
        assert_eq!(first["spec"]["conversion"], Value::Null, "a mailbox calls no webhook");
        assert_eq!(first["metadata"], json!({ "name": "widgets.example.com" }));
        let schema = &first["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(*schema, json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
        assert_eq!(widened(&first, &definition(&[("v1", true)])), None);
        let both = widened(&first, &definition(&[("v2", true), ("v1", false)])).unwrap();
        assert_eq!(versions(&both), [("v1", true), ("v2", false)], "one version is stored");
    }
}
