//! What placed objects brought about below, as the mailbox shows it.
//!
//! A projection is the object below with the uids of the mailbox: its owners are the mailbox's objects, so that whoever
//! looks at the mailbox finds the pods of a ReplicaSet the usual way. It says which object it shows, and what was written
//! last, so that it is written again only when the object below has changed.

use api::names::{BELOW_UID, PHYSICAL_CLUSTER, PROJECTED, SYNCER, TRUE, is_own_key};
use serde_json::{Map, Value, json};

use super::object::{Object, fingerprint};
use super::wanted::SENT;

/// What the mailbox should have for an object below.
#[derive(Clone, PartialEq, Debug)]
pub struct Projection {
    /// Without a status, which is written apart.
    pub object: Value,
}

/// Whether this object in the mailbox is a projection.
pub fn is_projection(mailbox: &Value) -> bool {
    Object(mailbox).label(PROJECTED) == Some(TRUE)
}

/// The projection of an object on a physical cluster that these objects of the mailbox own. `held` puts our finalizer on it, so that deleting it
/// is something we read and can act on.
pub fn projection(below: &Value, physical_cluster: &str, owners: Vec<Value>, held: bool) -> Projection {
    let object = Object(below);
    let mut shown = below.clone();
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("status");
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), object.name().into());
    if !object.namespace().is_empty() {
        metadata.insert("namespace".to_owned(), object.namespace().into());
    }
    let labels = json!({ PROJECTED: TRUE, PHYSICAL_CLUSTER: physical_cluster });
    metadata.insert("labels".to_owned(), replace_own_keys(&below["metadata"]["labels"], labels));
    let annotations = json!({ BELOW_UID: object.uid() });
    metadata
        .insert("annotations".to_owned(), replace_own_keys(&below["metadata"]["annotations"], annotations));
    if !owners.is_empty() {
        metadata.insert("ownerReferences".to_owned(), Value::Array(owners));
    }
    if held {
        metadata.insert("finalizers".to_owned(), json!([SYNCER]));
    }
    shown["metadata"] = Value::Object(metadata);
    // The selector of a job is made from its uid, by each server from its own.
    if shown["kind"] == "Job" {
        shown["spec"]["manualSelector"] = true.into();
    }
    let fingerprint = fingerprint(&shown);
    shown["metadata"]["annotations"][SENT] = format!("{fingerprint:016x}").into();
    Projection { object: shown }
}

impl Projection {
    /// Whether the mailbox has it.
    pub fn is_shown(&self, mailbox: &Value) -> bool {
        let sent = |object| Object(object).annotation(SENT);
        is_projection(mailbox) && sent(mailbox) == sent(&self.object)
    }

    /// Whether what the mailbox has is about another object of this name, which is gone.
    pub fn replaces(&self, mailbox: &Value) -> bool {
        Object(mailbox).annotation(BELOW_UID) != Object(&self.object).annotation(BELOW_UID)
    }
}

/// Labels or annotations of an object downstream, with the keys of Holon that the projection sets and no others.
/// Controllers copy labels and annotations to what they make: the EndpointSlices of a Service carry the Service's labels,
/// `holon.dev/placed` included. A user may also write such keys into a template. In a mailbox they would mean something.
fn replace_own_keys(found: &Value, ours: Value) -> Value {
    let mut all = found.as_object().cloned().unwrap_or_default();
    all.retain(|key, _| !is_own_key(key));
    all.extend(ours.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// The owners of an object below, as the mailbox knows them; `uid_here` finds each in the mailbox. Owners that are not there
/// are left out. None of them holds up another's deletion here: that is decided below.
pub fn owner_references(below: &Value, uid_here: impl Fn(&Value) -> Option<String>) -> Vec<Value> {
    let rewritten = |owner: &Value| {
        let mut here = owner.clone();
        here["uid"] = uid_here(owner)?.into();
        here.as_object_mut()?.remove("blockOwnerDeletion");
        Some(here)
    };
    Object(below).owners().filter_map(rewritten).collect()
}

/// Whether a claim of this name is one a StatefulSet makes for its pods. It carries no reference to its owner, only a
/// name: template, set and ordinal.
pub fn claims(stateful_set: &Value, claim: &str) -> bool {
    let set = Object(stateful_set).name();
    let templates = stateful_set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    templates.map(|template| Object(template).name()).any(|template| {
        let rest = claim.strip_prefix(template).and_then(|rest| rest.strip_prefix('-'));
        let ordinal = rest.and_then(|rest| rest.strip_prefix(set)).and_then(|rest| rest.strip_prefix('-'));
        ordinal
            .is_some_and(|ordinal| !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use api::names::{MAILBOX, ORIGIN, PLACED};

    use super::*;

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": "below", "resourceVersion": "9", "generateName": "web-",
                "annotations": { MAILBOX: "~b", ORIGIN: "o", SENT: "s", "holon.dev/locator": "{}", "note": "n" },
                "labels": { "app": "web", PLACED: TRUE, "holon.dev/template": "forged" },
                "managedFields": [{}], "finalizers": ["theirs"],
                "ownerReferences": [
                    { "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true, "blockOwnerDeletion": true },
                    { "kind": "Other", "name": "x", "uid": "unknown" },
                ],
            },
            "spec": { "nodeName": "n" }, "status": { "phase": "Running" },
        })
    }

    #[test]
    fn a_pod_is_shown_as_it_is_with_the_owners_of_the_mailbox() {
        let pod = pod();
        let owners = owner_references(&pod, |owner| (owner["uid"] == "set").then(|| "here".to_owned()));
        let shown = projection(&pod, "east", owners, true);
        let mut object = shown.object.clone();
        assert!(object["metadata"]["annotations"].as_object_mut().unwrap().remove(SENT).is_some());
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "shop", "labels": { "app": "web", PROJECTED: TRUE, PHYSICAL_CLUSTER: "east" },
                "annotations": { BELOW_UID: "below", "note": "n" }, "finalizers": [SYNCER],
                "ownerReferences": [{ "kind": "ReplicaSet", "name": "web", "uid": "here", "controller": true }],
            },
            "spec": { "nodeName": "n" },
        });
        assert_eq!(object, expected);
        assert!(shown.is_shown(&shown.object));
        assert!(!shown.replaces(&shown.object));
    }

    #[test]
    fn a_projection_is_written_again_only_when_something_but_the_status_changed() {
        let shown = projection(&pod(), "east", Vec::new(), false);
        let mut later = pod();
        later["metadata"]["resourceVersion"] = json!("10");
        later["status"] = json!({ "phase": "Failed" });
        assert!(projection(&later, "east", Vec::new(), false).is_shown(&shown.object));
        later["metadata"]["labels"]["app"] = json!("other");
        assert!(!projection(&later, "east", Vec::new(), false).is_shown(&shown.object));
        later["metadata"]["uid"] = json!("another");
        assert!(projection(&later, "east", Vec::new(), false).replaces(&shown.object));
        assert!(!shown.is_shown(&json!({ "metadata": { "name": "web-1" } })));
    }

    #[test]
    fn the_claims_of_a_stateful_set_are_known_by_name() {
        let set = json!({
            "metadata": { "name": "db" },
            "spec": { "volumeClaimTemplates": [{ "metadata": { "name": "data" } }, { "metadata": { "name": "log-x" } }] },
        });
        for (claim, expected) in [
            ("data-db-0", true),
            ("data-db-12", true),
            ("log-x-db-3", true),
            ("data-db-", false),
            ("data-db", false),
            ("data-db-a", false),
            ("data-dbx-0", false),
            ("other-db-0", false),
            ("data-db-0-1", false),
        ] {
            assert_eq!(claims(&set, claim), expected, "{claim}");
        }
    }
}
