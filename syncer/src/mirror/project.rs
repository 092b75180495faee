//! The projection of an object into the mailbox, which a placed object created downstream.
//!
//! A projection is the downstream object with the uids of the mailbox: its owners are objects of the mailbox, so a
//! client finds the pods of a ReplicaSet the usual way. Annotations name the projected object and the fingerprint of
//! the written projection, which is written again only when the downstream object has changed.

use api::names::{DOWNSTREAM_UID, PHYSICAL_CLUSTER, PROJECTED, SYNCER, TRUE, is_own_key};
use serde_json::{Map, Value, json};

use super::desired::SENT;
use super::object::{AnyObject, fingerprint};

/// The mailbox object that represents a downstream object.
#[derive(Clone, PartialEq, Debug)]
pub struct Projection {
    /// The object without its status, which is a separate write.
    pub object: Value,
}

/// Returns whether this object in the mailbox is a projection.
pub fn is_projection(mailbox: &Value) -> bool {
    AnyObject(mailbox).label(PROJECTED) == Some(TRUE)
}

/// Returns the projection of a downstream object, with these owners in the mailbox. `with_finalizer` adds our finalizer, so that
/// the syncer notices when the projection is deleted.
pub fn projection(
    downstream: &Value,
    physical_cluster: &str,
    owners: Vec<Value>,
    with_finalizer: bool,
) -> Projection {
    let object = AnyObject(downstream);
    let mut projected = downstream.clone();
    if let Some(fields) = projected.as_object_mut() {
        fields.remove("status");
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), object.name().into());
    if !object.namespace().is_empty() {
        metadata.insert("namespace".to_owned(), object.namespace().into());
    }
    let labels = json!({ PROJECTED: TRUE, PHYSICAL_CLUSTER: physical_cluster });
    metadata.insert("labels".to_owned(), replace_own_keys(&downstream["metadata"]["labels"], labels));
    let annotations = json!({ DOWNSTREAM_UID: object.uid() });
    metadata.insert(
        "annotations".to_owned(),
        replace_own_keys(&downstream["metadata"]["annotations"], annotations),
    );
    if !owners.is_empty() {
        metadata.insert("ownerReferences".to_owned(), Value::Array(owners));
    }
    if with_finalizer {
        metadata.insert("finalizers".to_owned(), json!([SYNCER]));
    }
    projected["metadata"] = Value::Object(metadata);
    // Each server generates the selector of a Job from its uid.
    if projected["kind"] == "Job" {
        projected["spec"]["manualSelector"] = true.into();
    }
    let fingerprint = fingerprint(&projected);
    projected["metadata"]["annotations"][SENT] = format!("{fingerprint:016x}").into();
    Projection { object: projected }
}

impl Projection {
    /// Returns whether the mailbox object is this projection.
    pub fn is_current(&self, mailbox: &Value) -> bool {
        let sent = |object| AnyObject(object).annotation(SENT);
        is_projection(mailbox) && sent(mailbox) == sent(&self.object)
    }

    /// Returns whether the mailbox object represents an earlier object of the same name.
    pub fn replaces(&self, mailbox: &Value) -> bool {
        AnyObject(mailbox).annotation(DOWNSTREAM_UID) != AnyObject(&self.object).annotation(DOWNSTREAM_UID)
    }
}

/// Returns the labels or annotations of a downstream object, in which `ours` replace all of Holon's keys. Controllers
/// copy labels and annotations to the objects they create: EndpointSlices have the labels of their Service, including
/// `holon.dev/placed`. A user may also write such keys into a template. In a mailbox they would have an effect.
fn replace_own_keys(existing: &Value, ours: Value) -> Value {
    let mut all = existing.as_object().cloned().unwrap_or_default();
    all.retain(|key, _| !is_own_key(key));
    all.extend(ours.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// Returns the owners of a downstream object with their uids in the mailbox, which `mailbox_uid` finds; owners without
/// one are left out. No owner blocks the deletion of another in the mailbox, because the physical cluster decides that.
pub fn owner_references(downstream: &Value, mailbox_uid: impl Fn(&Value) -> Option<String>) -> Vec<Value> {
    let rewritten = |owner: &Value| {
        let mut reference = owner.clone();
        reference["uid"] = mailbox_uid(owner)?.into();
        reference.as_object_mut()?.remove("blockOwnerDeletion");
        Some(reference)
    };
    AnyObject(downstream).owners().filter_map(rewritten).collect()
}

/// Returns whether a StatefulSet creates a claim of this name for its pods. The claim has no owner reference, only a
/// name: template, set and ordinal.
pub fn is_claim_of(stateful_set: &Value, claim: &str) -> bool {
    let set = AnyObject(stateful_set).name();
    let templates = stateful_set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    templates.map(|template| AnyObject(template).name()).any(|template| {
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
                "name": "web-1", "namespace": "shop", "uid": "downstream", "resourceVersion": "9", "generateName": "web-",
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
    fn a_pod_is_projected_with_the_owners_of_the_mailbox() {
        let pod = pod();
        let owners = owner_references(&pod, |owner| (owner["uid"] == "set").then(|| "here".to_owned()));
        let projected = projection(&pod, "east", owners, true);
        let mut object = projected.object.clone();
        assert!(object["metadata"]["annotations"].as_object_mut().unwrap().remove(SENT).is_some());
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "shop", "labels": { "app": "web", PROJECTED: TRUE, PHYSICAL_CLUSTER: "east" },
                "annotations": { DOWNSTREAM_UID: "downstream", "note": "n" }, "finalizers": [SYNCER],
                "ownerReferences": [{ "kind": "ReplicaSet", "name": "web", "uid": "here", "controller": true }],
            },
            "spec": { "nodeName": "n" },
        });
        assert_eq!(object, expected);
        assert!(projected.is_current(&projected.object));
        assert!(!projected.replaces(&projected.object));
    }

    #[test]
    fn a_projection_is_written_again_only_when_something_but_the_status_changed() {
        let projected = projection(&pod(), "east", Vec::new(), false);
        let mut later = pod();
        later["metadata"]["resourceVersion"] = json!("10");
        later["status"] = json!({ "phase": "Failed" });
        assert!(projection(&later, "east", Vec::new(), false).is_current(&projected.object));
        later["metadata"]["labels"]["app"] = json!("other");
        assert!(!projection(&later, "east", Vec::new(), false).is_current(&projected.object));
        later["metadata"]["uid"] = json!("another");
        assert!(projection(&later, "east", Vec::new(), false).replaces(&projected.object));
        assert!(!projected.is_current(&json!({ "metadata": { "name": "web-1" } })));
    }

    #[test]
    fn the_claims_of_a_stateful_set_are_found_by_name() {
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
            assert_eq!(is_claim_of(&set, claim), expected, "{claim}");
        }
    }
}
