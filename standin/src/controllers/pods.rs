//! Code that controllers of pods share: creating pods from a template, adopting and releasing them, counting them.

use api::meta::selector::LabelSelector;
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::objects::fields::{is_being_deleted, list, namespace, owner_reference, selects};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::is_finished;
use crate::plan::Plan;

/// Returns a pod from a template, controlled by `owner`. It has no name yet.
pub(crate) fn from_template(kind: ObjectKind, owner: &Value, template: &Value) -> Value {
    let mut metadata =
        json!({ "namespace": namespace(owner), "ownerReferences": [owner_reference(kind, owner)] });
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] })
}

/// Adopts pods that the owner's selector matches and that have no controller, and releases pods it no longer matches.
pub(crate) fn adopt(cache: &Cache, kind: ObjectKind, owner: &Value, plan: &mut Plan) {
    adopt_kind(cache, kind, owner, ObjectKind::Pods, plan);
}

/// The same for objects of any kind.
pub(crate) fn adopt_kind(
    cache: &Cache,
    kind: ObjectKind,
    owner: &Value,
    adopted_kind: ObjectKind,
    plan: &mut Plan,
) {
    let selector = &selector(kind, owner).unwrap_or_default();
    for orphan in cache.orphans(adopted_kind, namespace(owner), selector) {
        let mut adopted = orphan.clone();
        let mut owners = list(orphan, "/metadata/ownerReferences").to_vec();
        owners.push(owner_reference(kind, owner));
        adopted["metadata"]["ownerReferences"] = owners.into();
        plan.update(adopted_kind, orphan, adopted);
    }
    let no_longer_matches = |object: &&Value| !is_being_deleted(object) && !selects(selector, object);
    for object in cache.controlled_by(adopted_kind, owner).into_iter().filter(no_longer_matches) {
        let mut released = object.clone();
        let owners = list(object, "/metadata/ownerReferences").iter();
        let others = owners.filter(|other| other["uid"] != owner["metadata"]["uid"]).cloned();
        released["metadata"]["ownerReferences"] = others.collect::<Vec<_>>().into();
        plan.update(adopted_kind, object, released);
    }
}

/// Returns the selector of an owner. A ReplicationController has bare labels instead of a LabelSelector.
fn selector(kind: ObjectKind, owner: &Value) -> Option<LabelSelector> {
    let selector = &owner["spec"]["selector"];
    match kind {
        ObjectKind::ReplicationControllers => LabelSelector::from_value(&json!({ "matchLabels": selector })),
        _ => LabelSelector::from_value(selector),
    }
}

/// Returns the active pods, and how many are terminating. Finished pods are neither.
pub(crate) fn active_and_terminating<'a>(pods: &[&'a Value]) -> (Vec<&'a Value>, usize) {
    let unfinished = pods.iter().copied().filter(|pod| !is_finished(pod));
    let (terminating, active): (Vec<_>, Vec<_>) = unfinished.partition(|pod| is_being_deleted(pod));
    (active, terminating.len())
}
