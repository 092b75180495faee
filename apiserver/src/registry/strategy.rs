//! Strategies of the few kinds that need code: namespaces and logical clusters hold other objects, and a signing
//! request names its requester.
//!
//! Everything else about kinds is data. These functions are pure; the
//! [controllers](crate::controllers) act.

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

/// Namespaces that cannot be deleted, as in Kubernetes.
const LASTING: &[&str] = &["default", "kube-public", "kube-system"];

/// A kind whose objects hold other objects, and go only when those are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KindStrategy {
    Namespace,
    LogicalCluster,
    /// A custom resource definition holds the objects of its kind.
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

    /// Whether it waits for a finalizer, which clients may remove.
    pub(crate) fn has_finalizer(self) -> bool {
        self == KindStrategy::Definition
    }
}

/// Errors in a name, beyond the rules for every kind: names of logical clusters become parts of paths, and
/// those of definitions say what they define.
pub(crate) fn validate_name(resource: &ResourceInfo, name: &str) -> Vec<FieldError> {
    match KindStrategy::of(resource) {
        Some(KindStrategy::LogicalCluster) if !name.is_empty() => {
            let wrong = NameRule::Label.check(name).into_iter();
            wrong.map(|why| FieldError::invalid("metadata.name", name, why)).collect()
        }
        Some(KindStrategy::Definition) if kinds::group(name) == GROUP => {
            vec![FieldError::forbidden(
                "spec.group",
                format!("kinds of the group {GROUP} come with the server"),
            )]
        }
        _ => Vec::new(),
    }
}

/// Errors in an object of such a kind, beyond those its schema finds.
pub(crate) fn validate(resource: &ResourceInfo, object: &Value) -> Vec<FieldError> {
    match KindStrategy::of(resource) {
        Some(KindStrategy::LogicalCluster) => quota::check(&object["spec"]["limits"]),
        _ => Vec::new(),
    }
}

/// Sets the fields that a new object of such a kind gets beside its metadata.
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

/// Kinds whose spec names the requester. The server sets it, whatever the client sends.
const SIGNED: &[(&str, &str)] = &[("certificates.k8s.io", "certificatesigningrequests")];

/// Writes the requester into a new object of such a kind.
pub(crate) fn set_requester(call: &Call, object: &mut Value) {
    if !SIGNED.contains(&(&*call.resource.group, &*call.resource.plural)) {
        return;
    }
    let Some(spec) = object["spec"].as_object_mut() else { return };
    for said in ["username", "uid", "groups", "extra"] {
        spec.remove(said);
    }
    spec.extend(call.identity.info());
}

/// Keeps the fields that no update of such a kind changes. A logical cluster's id above all: it selects the objects that are read.
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

/// Holds a definition until the last object of its kind is gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The condition that says how far that is.
pub(crate) const TERMINATING: &str = "Terminating";

/// Marks an object of such a kind as terminating.
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
