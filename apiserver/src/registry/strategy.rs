//! Strategies of the few kinds that need code: namespaces, logical clusters and definitions contain other objects, and
//! a certificate signing request records its requester.
//!
//! Everything else about a kind is data. These functions are pure; the [controllers](crate::controllers) act.

use api::meta::field::FieldError;
use api::meta::names::NameRule;
use api::names::GROUP;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::clusters::logical_cluster;
use crate::kinds;
use crate::kinds::DEFINITIONS;
use crate::objects::conditions;
use crate::objects::conditions::Condition;
use crate::quota;
use crate::registry::call::Call;

/// Namespaces that cannot be deleted, as in Kubernetes.
const LASTING: &[&str] = &["default", "kube-public", "kube-system"];

/// A kind whose objects contain other objects and are removed only after those.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KindStrategy {
    Namespace,
    LogicalCluster,
    /// A custom resource definition contains the objects of its kind.
    Definition,
}

impl KindStrategy {
    pub(crate) fn of(resource: &ResourceInfo) -> Option<KindStrategy> {
        match (&*resource.group, &*resource.plural) {
            ("", "namespaces") => Some(KindStrategy::Namespace),
            (GROUP, "logicalclusters") => Some(KindStrategy::LogicalCluster),
            _ if DEFINITIONS.group == &*resource.group && DEFINITIONS.plural == &*resource.plural => {
                Some(KindStrategy::Definition)
            }
            _ => None,
        }
    }

    /// Reports whether a finalizer delays the deletion. Clients may remove a finalizer.
    pub(crate) fn has_finalizer(self) -> bool {
        self == KindStrategy::Definition
    }
}

/// Validates a name beyond the rules for every kind: the name of a logical cluster becomes part of paths, and that of a
/// definition contains its group.
pub(crate) fn validate_name(resource: &ResourceInfo, name: &str) -> Vec<FieldError> {
    match KindStrategy::of(resource) {
        Some(KindStrategy::LogicalCluster) if !name.is_empty() => {
            let wrong = NameRule::Label.check(name).into_iter();
            wrong.map(|why| FieldError::invalid("metadata.name", name, why)).collect()
        }
        Some(KindStrategy::Definition) if kinds::group(name) == GROUP => {
            vec![FieldError::forbidden("spec.group", format!("kinds of the group {GROUP} are built in"))]
        }
        _ => Vec::new(),
    }
}

/// Validates an object beyond its schema.
pub(crate) fn validate(resource: &ResourceInfo, object: &Value) -> Vec<FieldError> {
    match KindStrategy::of(resource) {
        Some(KindStrategy::LogicalCluster) => quota::check(&object["spec"]["limits"]),
        _ => Vec::new(),
    }
}

/// Sets the fields other than metadata that a new object gets from the server.
pub(crate) fn prepare_for_create(resource: &ResourceInfo, name: &str, object: &mut Value) {
    match KindStrategy::of(resource) {
        Some(KindStrategy::Namespace) => {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
        }
        Some(KindStrategy::LogicalCluster) => drop(logical_cluster::assign_id(object)),
        Some(KindStrategy::Definition) | None => {}
    }
}

/// Kinds whose spec records the requester. The server sets these fields, whatever the client sends.
const SIGNED: &[(&str, &str)] = &[("certificates.k8s.io", "certificatesigningrequests")];

/// Sets the requester in the spec of a new object.
pub(crate) fn set_requester(call: &Call, object: &mut Value) {
    if !SIGNED.contains(&(&*call.resource.group, &*call.resource.plural)) {
        return;
    }
    let Some(spec) = object["spec"].as_object_mut() else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.extend(call.identity.info());
}

/// Keeps the fields that no update changes. The id of a logical cluster matters most: it selects the objects that are
/// read.
pub(crate) fn prepare_for_update(resource: &ResourceInfo, old: &Value, new: &mut Value) {
    match KindStrategy::of(resource) {
        Some(KindStrategy::Namespace) => new["spec"] = old["spec"].clone(),
        Some(KindStrategy::LogicalCluster) => {
            if !new["status"].is_object() {
                new["status"] = json!({});
            }
            new["status"]["id"] = old["status"]["id"].clone();
        }
        Some(KindStrategy::Definition) | None => {}
    }
}

/// Finalizer that keeps a definition until the last object of its kind is deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The condition that reports the progress of that deletion.
pub(crate) const TERMINATING: &str = "Terminating";

/// Marks a namespace, logical cluster or definition as terminating.
pub(crate) fn mark_terminating(resource: &ResourceInfo, object: &mut Value) {
    match KindStrategy::of(resource) {
        Some(KindStrategy::Namespace | KindStrategy::LogicalCluster) => {
            object["status"]["phase"] = "Terminating".into()
        }
        Some(KindStrategy::Definition) => {
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

/// Refuses deletions of the namespaces that every cluster needs.
pub(crate) fn validate_delete(resource: &ResourceInfo, name: &str) -> Result<(), Status> {
    match KindStrategy::of(resource) {
        Some(KindStrategy::Namespace) if LASTING.contains(&name) => {
            let resource = GroupResource::new(&resource.group, &resource.plural);
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
        let resource = catalog::find("", "v1", "namespaces").unwrap();
        let mut object = json!({ "metadata": { "name": "shop", "labels": { "a": "b" } } });
        prepare_for_create(resource, "shop", &mut object);
        let expected = json!({
            "metadata": { "name": "shop", "labels": { "a": "b", "kubernetes.io/metadata.name": "shop" } },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        });
        assert_eq!(object, expected);
    }

    /// A tenant that could write an id could read another logical cluster under a path of its own.
    #[test]
    fn an_update_never_changes_the_id_of_a_logical_cluster() {
        let resource = logical_cluster::resource();
        let old = json!({ "status": { "id": "~bbbbbbbbbbbbbbbc", "phase": "Ready" } });
        for mut new in [json!({}), json!({ "status": { "id": "~bbbbbbbbbbbbbbbb" } }), json!({ "status": 1 })]
        {
            prepare_for_update(resource, &old, &mut new);
            assert_eq!(new["status"]["id"], old["status"]["id"]);
        }
    }
}
