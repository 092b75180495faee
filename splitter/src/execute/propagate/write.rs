//! Writes mailbox objects, if they changed.

use std::collections::BTreeMap;

use api::cluster::Id;
use api::fleet::PodSecurity;
use api::meta::cover::{SharedLists, covers};
use api::meta::hash::word;
use api::meta::metadata;
use api::names::{LOCATOR, PLACED, PROPAGATED_HASH, TRUE, VIA};
use controller::informer::Key;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::execute::definitions;
use crate::placement::context::table;
use crate::placement::pod_security;
use crate::placement::policy::Labels;
use crate::placement::targets::Rejection;
use crate::snapshot::mailbox_objects::{MailboxObject, locator};
use crate::snapshot::{MemberCluster, ObjectRef, WatchedKind};
use crate::transform::group_kind;
use crate::transform::server_fields::is_not_propagated;

use super::permission;

/// The label by which Pod Security admission of a physical cluster checks the pods of a namespace.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const BASELINE: &str = "baseline";

/// The result of sending an object to a mailbox.
#[derive(Debug)]
pub(crate) enum SendResult {
    Unchanged,
    Written,
    /// Not written: the object may not be sent to the physical cluster.
    Denied(Rejection),
}

/// Creates or replaces a mailbox object, if it may be sent to the physical cluster.
pub(crate) async fn write_object(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
    mut desired: Value,
) -> Result<SendResult, CallError> {
    let hash = word(&[&desired.to_string()], 12);
    desired["metadata"]["annotations"][PROPAGATED_HASH] = hash.into();
    let mailbox = splitter.caches.server.within(mailbox_object.mailbox);
    let next = match &mailbox_object.object {
        // The mailbox object belongs to a deleted object of the same name. It is created again after its deletion.
        Some(present) if is_another(present, &desired) => {
            let deleted =
                delete(splitter, watched, subject, mailbox_object, "the object was replaced").await?;
            return Ok(if deleted { SendResult::Written } else { SendResult::Unchanged });
        }
        Some(present) => {
            let next = replaced(present, desired);
            if is_current(present, &next) {
                return Ok(SendResult::Unchanged);
            }
            next
        }
        None => desired,
    };
    if let Some(rejection) = permission::check(splitter, watched, subject, mailbox_object, &next).await? {
        return Ok(SendResult::Denied(rejection));
    }
    let written = match &mailbox_object.object {
        None => {
            definitions::ensure_definition(splitter, watched, subject, mailbox_object.mailbox).await?;
            create_namespace(splitter, subject, mailbox_object).await?;
            mailbox.create(&watched.kind, &mailbox_object.namespace, &next).await?
        }
        Some(_) => {
            let place = ObjectPath::new(&watched.kind, &mailbox_object.namespace, &subject.key.name);
            mailbox.replace(place, &next).await?
        }
    };
    splitter.own_writes.add(subject, &written);
    Ok(SendResult::Written)
}

/// Deletes a mailbox object, and with it the object on the physical cluster. Returns whether a request was made.
pub(crate) async fn delete(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
    reason: &str,
) -> Result<bool, CallError> {
    let Some(object) = mailbox_object.object.as_ref().filter(|_| !mailbox_object.is_being_deleted()) else {
        return Ok(false);
    };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let place = ObjectPath::new(&watched.kind, &mailbox_object.namespace, &subject.key.name);
    let is_deleted = splitter.caches.server.within(mailbox_object.mailbox).delete(place, uid).await?;
    splitter.own_writes.add_deletion(subject);
    if is_deleted {
        tracing::info!(
            revision = metadata::text(object, "resourceVersion"),
            from = mailbox_object.name(),
            reason,
            "deleted from the mailbox"
        );
    }
    Ok(is_deleted)
}

fn is_another(present: &Value, desired: &Value) -> bool {
    let uid = |object: &Value| locator(object).map(|locator| locator.uid);
    uid(present) != uid(desired)
}

/// Whether the mailbox object has all desired fields, and was last written from the same content.
fn is_current(present: &Value, desired: &Value) -> bool {
    present["metadata"]["annotations"][PROPAGATED_HASH] == desired["metadata"]["annotations"][PROPAGATED_HASH]
        && covers(present, desired, SharedLists::None)
}

/// Kinds whose spec is mostly immutable. Fields that the server defaulted, such as the selector of a Job, the volume of
/// a claim or the token volume of a pod, cannot be removed.
const FIXED: &[(&str, &str)] = &[("batch", "Job"), ("", "Pod"), ("", "PersistentVolumeClaim")];

/// The desired object with the identity, finalizers and status of the present one.
fn replaced(present: &Value, desired: Value) -> Value {
    let mut object = desired;
    if FIXED.contains(&group_kind(present)) {
        object["spec"] = overlaid(&present["spec"], &object["spec"]);
    }
    for field in ["uid", "resourceVersion", "finalizers"] {
        if let Some(value) = present["metadata"].get(field) {
            object["metadata"][field] = value.clone();
        }
    }
    if let Some(status) = present.get("status") {
        object["status"] = status.clone();
    }
    object
}

/// The present value with all desired fields set. Fields that the desired value lacks are kept.
fn overlaid(present: &Value, desired: &Value) -> Value {
    match (present, desired) {
        (Value::Object(present), Value::Object(desired)) => {
            let mut both = present.clone();
            for (name, desired) in desired {
                let value = overlaid(present.get(name).unwrap_or(&Value::Null), desired);
                both.insert(name.clone(), value);
            }
            Value::Object(both)
        }
        // Servers append to lists.
        (Value::Array(present), Value::Array(desired)) if present.len() >= desired.len() => {
            let ours = present.iter().zip(desired).map(|(present, desired)| overlaid(present, desired));
            Value::Array(ours.chain(present[desired.len()..].iter().cloned()).collect())
        }
        _ => desired.clone(),
    }
}

/// The present mailbox object as if it had just been transformed, so that it can be compared with the desired one.
pub(super) fn comparable(mut present: Value) -> Value {
    if let Some(whole) = present.as_object_mut() {
        whole.remove("status");
    }
    if let Some(metadata) = present["metadata"].as_object_mut() {
        metadata.retain(|name, _| ["name", "namespace", "labels", "annotations"].contains(&&**name));
    }
    if let Some(annotations) = present["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|name, _| name != PROPAGATED_HASH);
    }
    present
}

/// Creates the namespace of a mailbox object in its mailbox.
async fn create_namespace(
    splitter: &Splitter,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
) -> Result<(), CallError> {
    let caches = &splitter.caches;
    let mailbox_key = Key {
        cluster: Some(mailbox_object.mailbox),
        namespace: String::new(),
        name: mailbox_object.namespace.clone(),
    };
    if caches.config.namespaces.get(&mailbox_key).is_some() {
        return Ok(());
    }
    let user_key = Key { name: subject.key.namespace.clone(), ..mailbox_key.clone() };
    let user_key = Key { cluster: subject.key.cluster, ..user_key };
    let Some(own) = caches.config.namespaces.get(&user_key) else { return Ok(()) };
    let locator =
        json!({ "logicalCluster": subject.cluster().to_string(), "name": user_key.name, "uid": own.uid });
    let own = own.read(&caches.config.namespaces.kind);
    let via = via(&own, mailbox_object.mailbox);
    let mut labels = propagated_labels(&own);
    labels.insert(PLACED.to_owned(), TRUE.to_owned());
    // Custom kinds may have pod specs anywhere, so Pod Security admission of the physical cluster checks their pods.
    if pod_security::level(&mailbox_object.member.object.spec) == PodSecurity::Baseline {
        labels.insert(ENFORCE.to_owned(), BASELINE.to_owned());
    }
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": mailbox_object.namespace, "labels": labels, "annotations": { LOCATOR: locator.to_string(), VIA: via } },
    });
    match caches
        .server
        .within(mailbox_object.mailbox)
        .create(&caches.config.namespaces.kind, "", &namespace)
        .await
    {
        Err(error) if error.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}

/// The mailboxes that a namespace came through, this one included.
fn via(own: &Value, mailbox: Id) -> String {
    match own["metadata"]["annotations"][VIA].as_str() {
        Some(via) => format!("{via},{mailbox}"),
        None => mailbox.to_string(),
    }
}

/// The labels of a namespace that are propagated to mailboxes.
fn propagated_labels(namespace: &Value) -> Labels {
    let mut labels = table(&namespace["metadata"]["labels"]);
    labels.retain(|name, _| name != PLACED && !is_not_propagated(name));
    labels
}

/// Propagates changed labels of a user's namespace to its mailbox namespace: NetworkPolicies and admission on the
/// physical cluster use them. When an admin allows privileged pods on a cluster, existing namespaces allow them too.
/// When an admin allows fewer, existing namespaces are unchanged.
pub(crate) async fn update_namespace_labels(
    splitter: &Splitter,
    member: &MemberCluster,
    mailbox: Id,
    own: &Value,
    mailbox_namespace: &Value,
) -> Result<(), CallError> {
    let (desired, present) = (propagated_labels(own), propagated_labels(mailbox_namespace));
    let mut change: BTreeMap<&str, Option<&String>> =
        present.keys().map(|name| (name.as_str(), None)).collect();
    change.extend(desired.iter().map(|(name, value)| (name.as_str(), Some(value))));
    change.retain(|name, value| *value != present.get(*name));
    let is_enforced = mailbox_namespace["metadata"]["labels"][ENFORCE] == BASELINE;
    if is_enforced && pod_security::level(&member.object.spec) == PodSecurity::Privileged {
        change.insert(ENFORCE, None);
    }
    let lacks_via = mailbox_namespace["metadata"]["annotations"][VIA].is_null();
    if change.is_empty() && !lacks_via {
        return Ok(());
    }
    let kind = &splitter.caches.config.namespaces.kind;
    let name = mailbox_namespace["metadata"]["name"].as_str().unwrap_or_default();
    let mut change = json!({ "metadata": { "uid": mailbox_namespace["metadata"]["uid"], "labels": change } });
    if lacks_via {
        change["metadata"]["annotations"] = json!({ VIA: via(own, mailbox) });
    }
    splitter
        .caches
        .server
        .within(mailbox)
        .patch(ObjectPath::new(kind, "", name), Patch::Merge, &change)
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immutable_fields_set_by_the_server_are_kept() {
        let of = |kind: &str, version: &str, spec: Value| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "one", "uid": "1" }, "spec": spec });
        let job = json!({ "parallelism": 3, "selector": { "matchLabels": { "controller-uid": "2" } },
            "template": { "metadata": { "labels": { "a": "b", "controller-uid": "2" } } } });
        let desired = json!({ "parallelism": 5, "template": { "metadata": { "labels": { "a": "b" } } } });
        let now = replaced(&of("Job", "batch/v1", job.clone()), of("Job", "batch/v1", desired.clone()));
        assert_eq!(now["spec"]["parallelism"], 5);
        assert_eq!(
            (&now["spec"]["selector"], &now["spec"]["template"]),
            (&job["selector"], &job["template"])
        );
        // Other kinds lose fields that are no longer desired.
        let now = replaced(&of("Deployment", "apps/v1", job), of("Deployment", "apps/v1", desired.clone()));
        assert_eq!(now["spec"], desired);
        let pod = json!({ "volumes": [{ "name": "a" }, { "name": "kube-api-access-x" }], "containers": [{ "image": "a:1", "imagePullPolicy": "Always" }] });
        let desired = json!({ "volumes": [{ "name": "a" }], "containers": [{ "image": "a:2" }] });
        let now = replaced(&of("Pod", "v1", pod.clone()), of("Pod", "v1", desired));
        assert_eq!(now["spec"]["volumes"], pod["volumes"]);
        assert_eq!(now["spec"]["containers"], json!([{ "image": "a:2", "imagePullPolicy": "Always" }]));
    }
}
