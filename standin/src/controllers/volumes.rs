//! PersistentVolumes: provisions one for every claim at once, and deletes it with the claim.

use serde_json::{Value, json};

use crate::cache::Cache;
use crate::objects::fields::{is_being_deleted, list, name, namespace, text, uid};
use crate::objects::kind::ObjectKind;
use crate::plan::Plan;

/// The provisioner of all volumes of a stand-in.
const PROVISIONER: &str = "standin.holon.dev";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The finalizer of a claim while a pod uses it.
const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

pub(crate) fn reconcile(cache: &Cache, ns: &str, plan: &mut Plan) {
    for claim in cache.list(ObjectKind::PersistentVolumeClaims, ns) {
        match is_being_deleted(claim) {
            true => remove_protection(cache, claim, plan),
            false => bind(cache, claim, plan),
        }
    }
}

/// Deletes provisioned volumes whose claims were deleted.
pub(crate) fn reclaim(cache: &Cache, plan: &mut Plan) {
    let is_provisioned = |volume: &&Value| {
        volume["metadata"]["annotations"][PROVISIONED_BY] == PROVISIONER && !is_being_deleted(volume)
    };
    for volume in cache.list_all(ObjectKind::PersistentVolumes).filter(is_provisioned) {
        let (ns, claim) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
        let claim = cache.get(ObjectKind::PersistentVolumeClaims, ns, claim);
        if claim.is_none_or(|claim| uid(claim) != text(volume, "/spec/claimRef/uid")) {
            plan.delete(ObjectKind::PersistentVolumes, volume);
        }
    }
}

fn bind(cache: &Cache, claim: &Value, plan: &mut Plan) {
    let bound_name = text(claim, "/spec/volumeName");
    let volume_name =
        if bound_name.is_empty() { format!("pvc-{}", uid(claim)) } else { bound_name.to_owned() };
    let Some(volume) = cache.get(ObjectKind::PersistentVolumes, "", &volume_name) else {
        if bound_name.is_empty() {
            plan.create_without_event(ObjectKind::PersistentVolumes, new_volume(claim, &volume_name));
        }
        return;
    };
    if text(volume, "/status/phase") != "Bound" {
        plan.status(ObjectKind::PersistentVolumes, volume, json!({ "phase": "Bound" }));
    }
    if bound_name.is_empty() {
        let mut bound = claim.clone();
        bound["spec"]["volumeName"] = volume_name.into();
        bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
        bound["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] = "yes".into();
        // The status is a separate write of the same object, so the next reconcile writes it.
        return plan.update(ObjectKind::PersistentVolumeClaims, claim, bound);
    }
    let status = json!({
        "phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": volume["spec"]["capacity"],
    });
    plan.status(ObjectKind::PersistentVolumeClaims, claim, status);
}

fn new_volume(claim: &Value, volume_name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": volume_name, "annotations": { PROVISIONED_BY: PROVISIONER } },
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": { "storage": claim["spec"]["resources"]["requests"]["storage"] },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": namespace(claim), "name": name(claim), "uid": uid(claim),
            },
            "hostPath": { "path": format!("/standin/{volume_name}") },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim["spec"]["storageClassName"],
            "volumeMode": claim["spec"]["volumeMode"],
        },
    })
}

/// Removes the protection finalizer of a deleted claim once no pod uses it.
fn remove_protection(cache: &Cache, claim: &Value, plan: &mut Plan) {
    let is_used_by = |pod: &Value| {
        let mut volumes = list(pod, "/spec/volumes").iter();
        volumes.any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name(claim))
    };
    if cache.list(ObjectKind::Pods, namespace(claim)).any(is_used_by) {
        return;
    }
    let mut released = claim.clone();
    let remaining =
        list(claim, "/metadata/finalizers").iter().filter(|finalizer| **finalizer != PVC_PROTECTION);
    released["metadata"]["finalizers"] = remaining.cloned().collect::<Vec<_>>().into();
    plan.update(ObjectKind::PersistentVolumeClaims, claim, released);
}
