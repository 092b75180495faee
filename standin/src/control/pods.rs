//! What controllers of pods share: making them of a template, taking in those that nobody has, counting them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::later;
use crate::kind::Kind;
use crate::object::{condition, count, is_being_deleted, is_true, list, moment, namespace, reference, text};
use crate::plan::Plan;
use crate::world::World;

/// A pod as a template says, controlled by `owner`. It has no name yet.
pub(crate) fn of_template(kind: Kind, owner: &Value, template: &Value) -> Value {
    let mut metadata = json!({ "namespace": namespace(owner), "ownerReferences": [reference(kind, owner)] });
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] })
}

/// Takes in pods that the owner's selector takes and nobody controls, and lets go of those it no longer takes.
pub(crate) fn adopt(world: &World, kind: Kind, owner: &Value, plan: &mut Plan) {
    take(world, kind, owner, Kind::Pods, plan);
}

/// The same for objects of any kind.
pub(crate) fn take(world: &World, kind: Kind, owner: &Value, taken: Kind, plan: &mut Plan) {
    let selector = &selector(kind, owner);
    for orphan in world.orphans(taken, namespace(owner), selector) {
        let mut adopted = orphan.clone();
        let mut owners = list(orphan, "/metadata/ownerReferences").to_vec();
        owners.push(reference(kind, owner));
        adopted["metadata"]["ownerReferences"] = owners.into();
        plan.update(taken, orphan, adopted);
    }
    let strayed = |object: &&Value| !is_being_deleted(object) && !crate::object::selects(selector, object);
    for stray in world.owned(taken, owner).into_iter().filter(strayed) {
        let mut released = stray.clone();
        let owners = list(stray, "/metadata/ownerReferences").iter();
        let others = owners.filter(|other| other["uid"] != owner["metadata"]["uid"]).cloned();
        released["metadata"]["ownerReferences"] = others.collect::<Vec<_>>().into();
        plan.update(taken, stray, released);
    }
}

/// What an owner selects by. A ReplicationController writes bare labels where everybody else writes a selector.
fn selector(kind: Kind, owner: &Value) -> Value {
    let selector = &owner["spec"]["selector"];
    match kind {
        Kind::ReplicationControllers => json!({ "matchLabels": selector }),
        _ => selector.clone(),
    }
}

/// The pods that count, and how many are on their way out.
pub(crate) fn counted<'a>(pods: &[&'a Value]) -> (Vec<&'a Value>, usize) {
    let unfinished = pods.iter().copied().filter(|pod| !is_finished(pod));
    let (leaving, active): (Vec<_>, Vec<_>) = unfinished.partition(|pod| is_being_deleted(pod));
    (active, leaving.len())
}

pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// From when on a pod counts as available: ready for so long. None while it is not ready.
pub(crate) fn available_at(pod: &Value, patience_s: i64) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|_| is_true(pod, "Ready"))?;
    match u64::try_from(patience_s) {
        Ok(0) | Err(_) => Some(Timestamp::MIN),
        Ok(patience_s) => {
            let since = moment(ready, "/lastTransitionTime")?;
            Some(later(since, std::time::Duration::from_secs(patience_s)))
        }
    }
}

/// How often the containers of a pod have been started again.
pub(crate) fn restarts(pod: &Value) -> i64 {
    let statuses = list(pod, "/status/containerStatuses").iter();
    statuses.map(|status| count(status, "/restartCount")).max().unwrap_or_default()
}
