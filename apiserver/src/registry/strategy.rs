//! The few kinds that are more than their row: namespaces and logical clusters hold other objects, and a signing
//! request says who asked for it.
//!
//! Everything else about kinds is data. What stands here is pure; acting on it is for the
//! [controllers](crate::controllers).

use api::names::GROUP;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::field::FieldError;
use openapi::meta::names::NameRule;
use openapi::meta::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::clusters::logical_cluster;
use crate::kinds;
use crate::kinds::DEFINITIONS;
use crate::objects::conditions;
use crate::objects::conditions::Condition;
use crate::quota;
use crate::registry::call::Call;

/// Namespaces nobody may delete. As for Kubernetes.
const LASTING: &[&str] = &["default", "kube-public", "kube-system"];

/// A kind whose objects hold other objects, and go only when those are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    Namespace,
    LogicalCluster,
    /// A custom resource definition holds the objects of its kind.
    Definition,
}

impl Holder {
    pub(crate) fn of(row: &ResourceInfo) -> Option<Holder> {
        match (&*row.group, &*row.plural) {
            ("", "namespaces") => Some(Holder::Namespace),
            (GROUP, "logicalclusters") => Some(Holder::LogicalCluster),
            _ if DEFINITIONS.group == &*row.group && DEFINITIONS.plural == &*row.plural => {
                Some(Holder::Definition)
            }
            _ => None,
        }
    }

    /// Whether what it waits for is a finalizer, which anybody may take away.
    pub(crate) fn has_finalizer(self) -> bool {
        self == Holder::Definition
    }
}

/// What is wrong with a name, beyond what holds for every kind: those of logical clusters become parts of paths, and
/// those of definitions say what they define.
pub(crate) fn misnamed(row: &ResourceInfo, name: &str) -> Vec<FieldError> {
    match Holder::of(row) {
        Some(Holder::LogicalCluster) if !name.is_empty() => {
            let wrong = NameRule::Label.check(name).into_iter();
            wrong.map(|why| FieldError::invalid("metadata.name", name, why)).collect()
        }
        Some(Holder::Definition) if kinds::group(name) == GROUP => {
            vec![FieldError::forbidden(
                "spec.group",
                format!("kinds of the group {GROUP} come with the server"),
            )]
        }
        _ => Vec::new(),
    }
}

/// What is wrong with an object of such a kind, beyond what its schema says.
pub(crate) fn check(row: &ResourceInfo, object: &Value) -> Vec<FieldError> {
    match Holder::of(row) {
        Some(Holder::LogicalCluster) => quota::check(&object["spec"]["limits"]),
        _ => Vec::new(),
    }
}

/// What a new object of such a kind gets beside its metadata.
pub(crate) fn born(row: &ResourceInfo, name: &str, object: &mut Value) {
    match Holder::of(row) {
        Some(Holder::Namespace) => {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
        }
        Some(Holder::LogicalCluster) => drop(logical_cluster::born(object)),
        Some(Holder::Definition) | None => {}
    }
}

/// Kinds that say who asked for them, whatever whoever asks says.
const SIGNED: &[(&str, &str)] = &[("certificates.k8s.io", "certificatesigningrequests")];

/// Writes into a new object of such a kind who asks for it.
pub(crate) fn requested(call: &Call, object: &mut Value) {
    if !SIGNED.contains(&(&*call.row.group, &*call.row.plural)) {
        return;
    }
    let Some(spec) = object["spec"].as_object_mut() else { return };
    for said in ["username", "uid", "groups", "extra"] {
        spec.remove(said);
    }
    spec.extend(call.identity.info());
}

/// What no update of such a kind changes. A logical cluster's id above all: it says whose objects are reached.
pub(crate) fn carried(row: &ResourceInfo, old: &Value, new: &mut Value) {
    match Holder::of(row) {
        Some(Holder::Namespace) => new["spec"] = old["spec"].clone(),
        Some(Holder::LogicalCluster) => {
            if !new["status"].is_object() {
                new["status"] = json!({});
            }
            new["status"]["id"] = old["status"]["id"].clone();
        }
        Some(Holder::Definition) | None => {}
    }
}

/// Holds a definition until the last object of its kind is gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The condition that says how far that is.
pub(crate) const TERMINATING: &str = "Terminating";

/// Says that an object of such a kind is on its way out.
pub(crate) fn leaving(row: &ResourceInfo, object: &mut Value) {
    match Holder::of(row) {
        Some(Holder::Namespace | Holder::LogicalCluster) => object["status"]["phase"] = "Terminating".into(),
        Some(Holder::Definition) => {
            let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            if !finalizers.iter().any(|name| name == CLEANUP) {
                finalizers.push(CLEANUP.into());
            }
            object["metadata"]["finalizers"] = finalizers.into();
            let message =
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
            conditions::set(object, &Condition::new(TERMINATING, true, "InstanceDeletionPending", message));
        }
        None => {}
    }
}

/// Refuses what must not be deleted.
pub(crate) fn may_delete(row: &ResourceInfo, name: &str) -> Result<(), Status> {
    match Holder::of(row) {
        Some(Holder::Namespace) if LASTING.contains(&name) => {
            let resource = GroupResource::new(&row.group, &row.plural);
            Err(Status::forbidden(resource, name, "this namespace may not be deleted"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openapi::catalog;

    #[test]
    fn a_new_namespace_is_active_and_carries_its_name_as_a_label() {
        let row = catalog::find("", "v1", "namespaces").unwrap();
        let mut object = json!({ "metadata": { "name": "shop", "labels": { "a": "b" } } });
        born(row, "shop", &mut object);
        let expected = json!({
            "metadata": { "name": "shop", "labels": { "a": "b", "kubernetes.io/metadata.name": "shop" } },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        });
        assert_eq!(object, expected);
    }

    /// Whoever could write an id could read another logical cluster under a path of their own.
    #[test]
    fn nobody_gives_a_logical_cluster_another_id() {
        let row = logical_cluster::row();
        let old = json!({ "status": { "id": "~bbbbbbbbbbbbbbbc", "phase": "Ready" } });
        for mut new in [json!({}), json!({ "status": { "id": "~bbbbbbbbbbbbbbbb" } }), json!({ "status": 1 })]
        {
            carried(row, &old, &mut new);
            assert_eq!(new["status"]["id"], old["status"]["id"]);
        }
    }
}
