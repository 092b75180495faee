//! The write that makes a mailbox object the desired one.

use api::meta::cover::{SharedLists, covers};
use api::meta::hash::word;
use api::names::PROPAGATED_HASH;
use controller::kind::ResourceKind;
use serde_json::Value;

use crate::placement::permissions::SendPermissions;
use crate::placement::targets::Rejection;
use crate::snapshot::mailbox_objects::{MailboxObject, locator};
use crate::transform::group_kind;

/// A write to one mailbox.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum MailboxWrite {
    Unchanged,
    Create(Value),
    Replace(Value),
    /// The mailbox object belongs to a deleted object of the same name. It is created again after its deletion.
    DeletePrevious,
    /// The object may not be sent to the physical cluster.
    Denied(Rejection),
}

/// Plans the write. `kind` is that of the object.
pub(crate) fn plan_mailbox_write(
    kind: &ResourceKind,
    mailbox_object: &MailboxObject,
    mut desired: Value,
    permissions: &SendPermissions,
) -> MailboxWrite {
    let hash = word(&[&desired.to_string()], 12);
    desired["metadata"]["annotations"][PROPAGATED_HASH] = hash.into();
    let next = match &mailbox_object.object {
        Some(present) if is_another(present, &desired) && mailbox_object.is_being_deleted() => {
            return MailboxWrite::Unchanged;
        }
        Some(present) if is_another(present, &desired) => return MailboxWrite::DeletePrevious,
        Some(present) => {
            let next = replaced(present, desired);
            if is_current(present, &next) {
                return MailboxWrite::Unchanged;
            }
            next
        }
        None => desired,
    };
    let denied = permissions.check(kind, &mailbox_object.member, mailbox_object.mailbox, &next);
    match (denied, &mailbox_object.object) {
        (Some(rejection), _) => MailboxWrite::Denied(rejection),
        (None, None) => MailboxWrite::Create(next),
        (None, Some(_)) => MailboxWrite::Replace(next),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
