//! Claims get volumes as soon as they ask, and volumes go with their claims.

use serde_json::{Value, json};

use crate::kind::Kind;
use crate::object::{is_being_deleted, list, name, namespace, text, uid};
use crate::plan::Plan;
use crate::world::World;

/// On volumes that were made here.
const PROVISIONER: &str = "standin.holon.dev";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Held by a claim while a pod uses it.
const IN_USE: &str = "kubernetes.io/pvc-protection";

pub(crate) fn step(world: &World, space: &str, plan: &mut Plan) {
    for claim in world.all(Kind::Claims, space) {
        match is_being_deleted(claim) {
            true => release(world, claim, plan),
            false => bind(world, claim, plan),
        }
    }
}

/// Deletes volumes whose claims are gone.
pub(crate) fn reclaim(world: &World, plan: &mut Plan) {
    let ours = |volume: &&Value| {
        volume["metadata"]["annotations"][PROVISIONED_BY] == PROVISIONER && !is_being_deleted(volume)
    };
    for volume in world.every(Kind::Volumes).filter(ours) {
        let (space, claim) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
        let claim = world.get(Kind::Claims, space, claim);
        if claim.is_none_or(|claim| uid(claim) != text(volume, "/spec/claimRef/uid")) {
            plan.delete(Kind::Volumes, volume);
        }
    }
}

fn bind(world: &World, claim: &Value, plan: &mut Plan) {
    let wanted = text(claim, "/spec/volumeName");
    let volume_name = if wanted.is_empty() { format!("pvc-{}", uid(claim)) } else { wanted.to_owned() };
    let Some(volume) = world.get(Kind::Volumes, "", &volume_name) else {
        if wanted.is_empty() {
            plan.create_silently(Kind::Volumes, volume_for(claim, &volume_name));
        }
        return;
    };
    if text(volume, "/status/phase") != "Bound" {
        plan.status(Kind::Volumes, volume, json!({ "phase": "Bound" }));
    }
    if wanted.is_empty() {
        let mut bound = claim.clone();
        bound["spec"]["volumeName"] = volume_name.into();
        bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
        bound["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] = "yes".into();
        // The status follows with the next step: it is another write of the same object.
        return plan.update(Kind::Claims, claim, bound);
    }
    let status = json!({
        "phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": volume["spec"]["capacity"],
    });
    plan.status(Kind::Claims, claim, status);
}

fn volume_for(claim: &Value, volume_name: &str) -> Value {
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

/// Lets a claim go once no pod uses it.
fn release(world: &World, claim: &Value, plan: &mut Plan) {
    let uses = |pod: &Value| {
        let mut volumes = list(pod, "/spec/volumes").iter();
        volumes.any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name(claim))
    };
    if world.all(Kind::Pods, namespace(claim)).any(uses) {
        return;
    }
    let mut released = claim.clone();
    let kept = list(claim, "/metadata/finalizers").iter().filter(|finalizer| **finalizer != IN_USE);
    released["metadata"]["finalizers"] = kept.cloned().collect::<Vec<_>>().into();
    plan.update(Kind::Claims, claim, released);
}
