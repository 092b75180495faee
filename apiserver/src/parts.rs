//! Parts of objects with an address of their own: what each of them may change, and nothing else.
//!
//! ```text
//!   PUT …/pods/web/resize     old object + what the part changes, out of what was sent = new object
//! ```
//!
//! Everything here is pure. Parts that do something, rather than change something, are in
//! [`verbs::act`](crate::verbs::act); the one that is an object of another kind is [`scale`](crate::scale).

use openapi::field::FieldError;
use openapi::patch::apply::Reset;
use openapi::resource::Resource;
use serde_json::{Value, json};

use crate::metadata;

/// The parts that are served.
pub(crate) const SERVED: &[&str] = &[
    "approval",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "finalize",
    "resize",
    "scale",
    "status",
    "token",
];

/// Where in the object a part is.
const PLACES: &[(&str, &[&str])] = &[
    ("approval", &["/status/conditions"]),
    ("ephemeralcontainers", &["/spec/ephemeralContainers"]),
    ("finalize", &["/spec/finalizers"]),
    ("status", &["/status"]),
];

/// What `part` makes of the old object, given what was sent.
pub(crate) fn confined(row: &Resource, part: &str, old: &Value, sent: &Value) -> Value {
    let mut new = old.clone();
    if part == "status" {
        new["metadata"] = described(Reset::of(row, Some(part)), &old["metadata"], &sent["metadata"]);
    }
    for pointer in PLACES.iter().filter(|(name, _)| *name == part).flat_map(|(_, pointers)| *pointers) {
        set(&mut new, pointer, sent.pointer(pointer).cloned());
    }
    match part {
        "resize" => resize(&mut new, sent),
        "approval" => new.pointer_mut("/status/conditions").map_or((), dated),
        _ => {}
    }
    new
}

/// Whoever writes a status of most kinds may also change labels and the like.
fn described(reset: Reset, old: &Value, sent: &Value) -> Value {
    let kept = |(name, _): &(&String, &Value)| reset.covers(&["metadata", name]);
    let fields = |metadata| Value::as_object(metadata).into_iter().flatten();
    let both = fields(sent).filter(|field| !kept(field)).chain(fields(old).filter(kept));
    both.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Puts a value where a pointer of one or two steps leads; none removes what is there.
fn set(object: &mut Value, pointer: &str, value: Option<Value>) {
    let (within, field) = pointer.rsplit_once('/').unwrap_or_default();
    // Asking for what is not there must not make it.
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

/// Gives each container the resources that were sent for the one of its name.
fn resize(new: &mut Value, sent: &Value) {
    for list in ["containers", "initContainers"] {
        let containers = new.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mut found = sent["spec"][list].as_array().into_iter().flatten();
            if let Some(found) = found.find(|found| found["name"] == container["name"]) {
                set(container, "/resources", found.get("resources").cloned());
            }
        }
    }
}

/// Who judges a request for a certificate need not say when.
fn dated(conditions: &mut Value) {
    for condition in conditions.as_array_mut().into_iter().flatten().filter(|found| found.is_object()) {
        for time in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[time].is_null() {
                condition[time] = metadata::now().into();
            }
        }
    }
}

/// What a part may not do to what is there already.
pub(crate) fn check(part: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    match part {
        "approval" => judged(&old["status"]["conditions"], &new["status"]["conditions"]),
        "ephemeralcontainers" => {
            added(&old["spec"]["ephemeralContainers"], &new["spec"]["ephemeralContainers"])
        }
        _ => Vec::new(),
    }
}

/// A judgement stands.
fn judged(old: &Value, new: &Value) -> Vec<FieldError> {
    let has = |kind: &str| items(new).any(|condition| condition["type"] == kind);
    let lasting = items(old).filter_map(|condition| condition["type"].as_str());
    let lost = lasting.filter(|kind| ["Approved", "Denied", "Failed"].contains(kind) && !has(kind));
    lost.map(|kind| {
        let why = format!("updates may not remove a condition of type {kind:?}");
        FieldError::forbidden("status.conditions", why)
    })
    .collect()
}

/// Containers for a look inside can be added, not taken away or exchanged.
fn added(old: &Value, new: &Value) -> Vec<FieldError> {
    let found = |name: &Value| items(new).find(|container| container["name"] == *name);
    let wrong = items(old).filter_map(|container| {
        let what = match found(&container["name"]) {
            None => "removed",
            Some(now) if now != container => "changed",
            Some(_) => return None,
        };
        let name = container["name"].as_str().unwrap_or_default();
        let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
        Some(FieldError::forbidden("spec.ephemeralContainers", why))
    });
    wrong.collect()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kind whose status is all that is written through it.
    fn row() -> &'static Resource {
        openapi::catalog::find("storage.k8s.io", "v1", "volumeattachments").expect("a built-in kind")
    }

    #[test]
    fn a_status_of_most_kinds_comes_with_labels() {
        let row = |group, plural| openapi::catalog::find(group, "v1", plural).expect("a built-in kind");
        let object = |word: &str| json!({ "metadata": { "labels": { "a": word }, "ownerReferences": [word] }, "status": word });
        let (old, sent) = (object("old"), object("new"));
        let check = |row: &Resource, labels: &str, owners: &str| {
            let new = confined(row, "status", &old, &sent);
            let expected = json!({ "labels": { "a": labels }, "ownerReferences": [owners] });
            assert_eq!((&new["metadata"], &new["status"]), (&expected, &json!("new")));
        };
        check(row("", "nodes"), "new", "new");
        check(row("", "pods"), "new", "old");
        check(row("apps", "deployments"), "old", "new");
        check(row("storage.k8s.io", "volumeattachments"), "old", "old");
    }

    #[test]
    fn a_part_changes_what_it_is_and_nothing_else() {
        let old = json!({
            "metadata": { "name": "a" },
            "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "x": 1 } }], "finalizers": ["k"] },
            "status": { "phase": "Active", "conditions": [] },
        });
        let sent = json!({
            "metadata": { "name": "b" },
            "spec": {
                "containers": [{ "name": "d" }, { "name": "c", "image": "j", "resources": { "x": 2 } }],
                "ephemeralContainers": [{ "name": "e" }],
            },
            "status": { "phase": "Other", "conditions": [{ "type": "Ready", "lastUpdateTime": "t", "lastTransitionTime": "t" }] },
        });
        let check = |part: &str, pointer: &str, expected: Value| {
            let mut wanted = old.clone();
            set(&mut wanted, pointer, Some(expected).filter(|value| !value.is_null()));
            assert_eq!(confined(row(), part, &old, &sent), wanted, "{part}");
        };
        check("status", "/status", sent["status"].clone());
        check("approval", "/status/conditions", sent["status"]["conditions"].clone());
        check("ephemeralcontainers", "/spec/ephemeralContainers", json!([{ "name": "e" }]));
        check("finalize", "/spec/finalizers", Value::Null);
        check("resize", "/spec/containers", json!([{ "name": "c", "image": "i", "resources": { "x": 2 } }]));
    }

    #[test]
    fn what_is_there_is_not_taken_back() {
        let with = |list: Value| json!({ "spec": { "ephemeralContainers": list.clone() }, "status": { "conditions": list } });
        let old = with(json!([{ "name": "d", "type": "Approved" }]));
        let told = |part: &str, new: Value| -> Vec<String> {
            check(part, &old, &with(new)).iter().map(FieldError::body).collect()
        };
        let more = json!([{ "name": "e", "type": "Other" }, { "name": "d", "type": "Approved" }]);
        assert!(told("approval", more.clone()).is_empty() && told("ephemeralcontainers", more).is_empty());
        let none = json!([]);
        assert_eq!(
            told("approval", none.clone()),
            ["Forbidden: updates may not remove a condition of type \"Approved\""]
        );
        let gone = "Forbidden: existing ephemeral containers \"d\" may not be removed\n";
        assert_eq!(told("ephemeralcontainers", none), [gone]);
        let changed = "Forbidden: existing ephemeral containers \"d\" may not be changed\n";
        assert_eq!(told("ephemeralcontainers", json!([{ "name": "d", "image": "x" }])), [changed]);
    }
}
