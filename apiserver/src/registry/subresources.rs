//! Subresources: which fields each of them may change.
//!
//! ```text
//!   PUT …/pods/web/resize     old object + the subresource's fields of the sent object = new object
//! ```
//!
//! Everything here is pure. Subresources that act instead of changing fields are in
//! [`pod_actions`](crate::endpoints::pod_actions). The one that is an object of another kind is
//! [`scale`](crate::registry::scale).

use openapi::catalog::resource_info::ResourceInfo;
use openapi::patch::apply::ResetFields;
use serde_json::{Value, json};

/// The fields of each subresource.
const PLACES: &[(&str, &[&str])] = &[
    ("approval", &["/status/conditions"]),
    ("ephemeralcontainers", &["/spec/ephemeralContainers"]),
    ("finalize", &["/spec/finalizers"]),
    ("status", &["/status"]),
];

/// Subresources that also write metadata, except the fields that [`ResetFields`] lists for them.
const DESCRIBED: &[&str] = &["approval", "finalize", "status"];

/// Returns the old object with the fields of `subresource` from the sent one. The caller validates the result.
pub(crate) fn restrict_to(resource: &ResourceInfo, subresource: &str, old: &Value, sent: &Value) -> Value {
    let mut new = old.clone();
    if DESCRIBED.contains(&subresource) {
        new["metadata"] =
            described(ResetFields::of(resource, Some(subresource)), &old["metadata"], &sent["metadata"]);
    }
    for pointer in PLACES.iter().filter(|(name, _)| *name == subresource).flat_map(|(_, pointers)| *pointers)
    {
        set(&mut new, pointer, sent.pointer(pointer).cloned());
    }
    if subresource == "resize" {
        resize(&mut new, sent);
    }
    new
}

/// Merges the metadata: fields in `reset` from the old object, all others from the sent one.
fn described(reset: ResetFields, old: &Value, sent: &Value) -> Value {
    let is_kept = |(name, _): &(&String, &Value)| reset.covers(&["metadata", name]);
    let fields = |metadata| Value::as_object(metadata).into_iter().flatten();
    let both = fields(sent).filter(|field| !is_kept(field)).chain(fields(old).filter(is_kept));
    both.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Sets the field at a pointer of one or two steps, or removes it if the value is None.
fn set(object: &mut Value, pointer: &str, value: Option<Value>) {
    let (within, field) = pointer.rsplit_once('/').unwrap_or_default();
    // Removing a field must not create its parent.
    if let (Some(outer), Some(_)) = (within.strip_prefix('/'), &value)
        && object[outer].is_null()
    {
        object[outer] = json!({});
    }
    let Some(fields) = object.pointer_mut(within).and_then(Value::as_object_mut) else { return };
    match value {
        Some(value) => drop(fields.insert(field.to_owned(), value)),
        None => drop(fields.remove(field)),
    }
}

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
const RESIZED: [&str; 2] = ["/resizePolicy", "/resources"];

/// Copies the sent resources of the pod and of each container. If the sent containers are not those of the pod, they
/// are taken over whole: validation then refuses them and reports their errors.
fn resize(new: &mut Value, sent: &Value) {
    let list = |pod: &Value, name: &str| pod["spec"][name].as_array().cloned().unwrap_or_default();
    if CONTAINERS.iter().any(|name| list(new, name).len() != list(sent, name).len()) {
        return set(new, "/spec", sent.get("spec").cloned());
    }
    set(new, "/spec/resources", sent.pointer("/spec/resources").cloned());
    for name in CONTAINERS {
        let (mut containers, others) = (list(new, name), list(sent, name));
        let are_same = containers.iter().zip(&others).all(|(one, other)| one["name"] == other["name"]);
        for (container, other) in containers.iter_mut().zip(&others) {
            RESIZED.iter().for_each(|field| set(container, field, other.pointer(field).cloned()));
        }
        let containers = if are_same { containers } else { others };
        set(new, &format!("/spec/{name}"), Some(containers.into()).filter(|_| !new["spec"][name].is_null()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a kind whose status subresource writes the status only.
    fn resource() -> &'static ResourceInfo {
        openapi::catalog::find("storage.k8s.io", "v1", "volumeattachments").expect("a built-in kind")
    }

    #[test]
    fn a_status_write_of_some_kinds_also_changes_labels_and_owners() {
        let resource = |group, plural| openapi::catalog::find(group, "v1", plural).expect("a built-in kind");
        let object = |text: &str| json!({ "metadata": { "labels": { "a": text }, "ownerReferences": [text] }, "status": text });
        let (old, sent) = (object("old"), object("new"));
        let check = |resource: &ResourceInfo, labels: &str, owners: &str| {
            let new = restrict_to(resource, "status", &old, &sent);
            let expected = json!({ "labels": { "a": labels }, "ownerReferences": [owners] });
            assert_eq!((&new["metadata"], &new["status"]), (&expected, &json!("new")));
        };
        check(resource("", "nodes"), "new", "new");
        check(resource("", "pods"), "new", "old");
        check(resource("apps", "deployments"), "old", "new");
        check(resource("storage.k8s.io", "volumeattachments"), "old", "old");
        let request = resource("certificates.k8s.io", "certificatesigningrequests");
        let judged = restrict_to(request, "approval", &old, &sent);
        assert_eq!((&judged["metadata"], &judged["status"]), (&sent["metadata"], &old["status"]));
    }

    #[test]
    fn a_subresource_write_changes_only_its_own_fields() {
        let old = json!({
            "metadata": { "name": "a" },
            "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "x": 1 } }], "finalizers": ["k"] },
            "status": { "phase": "Active", "conditions": [] },
        });
        let sent = json!({
            "metadata": { "name": "a" },
            "spec": {
                "containers": [{ "name": "c", "image": "j", "resources": { "x": 2 } }],
                "ephemeralContainers": [{ "name": "e" }],
            },
            "status": { "phase": "Other", "conditions": [{ "type": "Ready", "lastUpdateTime": "t", "lastTransitionTime": "t" }] },
        });
        let check = |subresource: &str, pointer: &str, expected: Value| {
            let mut updated = old.clone();
            set(&mut updated, pointer, Some(expected).filter(|value| !value.is_null()));
            assert_eq!(restrict_to(resource(), subresource, &old, &sent), updated, "{subresource}");
        };
        check("status", "/status", sent["status"].clone());
        check("approval", "/status/conditions", sent["status"]["conditions"].clone());
        check("ephemeralcontainers", "/spec/ephemeralContainers", json!([{ "name": "e" }]));
        check("finalize", "/spec/finalizers", Value::Null);
        check("resize", "/spec/containers", json!([{ "name": "c", "image": "i", "resources": { "x": 2 } }]));
    }
}
