//! Deployments: a ReplicaSet per template, and rollouts from old ReplicaSets to the new one.
//!
//! ```text
//!   template ─► new ReplicaSet (found by its template, or created) ─► scaled up as far as maxSurge allows
//!               old ReplicaSets, oldest first                      ─► scaled down as far as maxUnavailable allows
//! ```
//!
//! Every reconcile scales as far as it may, and the next one continues after pods have become ready or were deleted. A
//! rollback needs no code of its own: the earlier template matches its old ReplicaSet.

mod progress;
mod scale;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::pods::adopt_kind;
use crate::cache::Cache;
use crate::objects::fields::{
    annotation, count, creation_time, fields, flag, generation, is_being_deleted, is_equivalent, name,
    name_hash, namespace, number, owner_reference, text, uid,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::is_finished;
use crate::plan::{Event, Plan, Write};

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Annotations that are not copied from a Deployment to its ReplicaSets.
const NOT_COPIED: &[&str] =
    &[REVISION, REVISION_HISTORY, DESIRED, MAX, "kubectl.kubernetes.io/last-applied-configuration"];
/// The default of `revisionHistoryLimit`.
const REVISION_HISTORY_LIMIT: i64 = 10;

pub(crate) fn reconcile(cache: &Cache, ns: &str, now: Timestamp, plan: &mut Plan) {
    for deployment in cache.list(ObjectKind::Deployments, ns) {
        if !is_being_deleted(deployment) {
            adopt_kind(cache, ObjectKind::Deployments, deployment, ObjectKind::ReplicaSets, plan);
        }
        Rollout::new(cache, deployment, now).reconcile(cache, plan);
    }
}

/// A Deployment and its ReplicaSets.
struct Rollout<'a> {
    deployment: &'a Value,
    /// The ReplicaSet with the current template.
    new: Option<&'a Value>,
    /// The other ReplicaSets, oldest first.
    old: Vec<&'a Value>,
    desired: i64,
    /// `maxSurge` and `maxUnavailable`, in pods.
    surge: i64,
    unavailable: i64,
    now: Timestamp,
}

impl<'a> Rollout<'a> {
    fn new(cache: &'a Cache, deployment: &'a Value, now: Timestamp) -> Rollout<'a> {
        let mut sets = cache.controlled_by(ObjectKind::ReplicaSets, deployment);
        sets.sort_by_key(|set| (creation_time(set), name(set)));
        let template = &deployment["spec"]["template"];
        let new =
            sets.iter().position(|set| is_equivalent(&without_hash(&set["spec"]["template"]), template));
        let new = new.map(|index| sets.remove(index));
        let desired = number(deployment, "/spec/replicas").unwrap_or(1);
        let (surge, unavailable) = scale::surge_and_unavailable(deployment, desired);
        Rollout { deployment, new, old: sets, desired, surge, unavailable, now }
    }

    fn sets(&self) -> impl Iterator<Item = &'a Value> {
        self.old.iter().copied().chain(self.new)
    }

    fn is_recreate(&self) -> bool {
        text(self.deployment, "/spec/strategy/type") == "Recreate"
    }

    fn reconcile(&self, cache: &Cache, plan: &mut Plan) {
        if is_being_deleted(self.deployment) {
            return self.write_status(plan);
        }
        let is_paused = flag(self.deployment, "/spec/paused");
        let mut sizes = Sizes::default();
        match self.new {
            _ if is_paused || self.is_scaled() => scale::scale_proportionally(self, &mut sizes),
            _ if self.is_recreate() => self.recreate(cache, &mut sizes, plan),
            None => self.create_new(plan),
            Some(_) => self.roll(&mut sizes),
        }
        let changed = self.write_sets(sizes, plan);
        if !changed {
            self.delete_old(plan);
        }
        self.write_status(plan);
    }

    /// Writes the status and, in the same write, the revision annotation: a separate update would increase the
    /// generation.
    fn write_status(&self, plan: &mut Plan) {
        let mut updated = self.deployment.clone();
        updated["status"] = progress::status(self, plan);
        if let Some(new) = self.new {
            let revision = self.revision().max(revision(new));
            updated["metadata"]["annotations"][REVISION] = revision.to_string().into();
        }
        if !is_equivalent(self.deployment, &updated) {
            plan.writes.push(Write::Status { kind: ObjectKind::Deployments, object: updated });
        }
    }

    /// Returns whether `spec.replicas` has changed since the ReplicaSets were last scaled.
    fn is_scaled(&self) -> bool {
        let stale = |set: &Value| {
            size(set) > 0
                && annotation(set, DESIRED).is_some_and(|recorded| recorded != self.desired.to_string())
        };
        self.sets().any(stale)
    }

    /// Creates the ReplicaSet of the current template.
    fn create_new(&self, plan: &mut Plan) {
        let template = &self.deployment["spec"]["template"];
        let hash = name_hash(template);
        let name = format!("{}-{hash}", name(self.deployment));
        let mut template = template.clone();
        template["metadata"]["labels"][TEMPLATE_HASH] = hash.as_str().into();
        let mut selector = self.deployment["spec"]["selector"].clone();
        selector["matchLabels"][TEMPLATE_HASH] = hash.as_str().into();
        let old_replicas: i64 = self.old.iter().map(|set| size(set)).sum();
        let replicas = match self.is_recreate() {
            true => self.desired,
            false => self.desired.min(self.desired + self.surge - old_replicas).max(0),
        };
        let mut annotations = self.copied_annotations();
        annotations.insert(REVISION.to_owned(), self.revision().to_string().into());
        self.set_size_annotations(&mut annotations);
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": namespace(self.deployment), "annotations": annotations,
                "labels": template["metadata"]["labels"],
                "ownerReferences": [owner_reference(ObjectKind::Deployments, self.deployment)],
            },
            "spec": {
                "replicas": replicas, "selector": selector, "template": template,
                "minReadySeconds": count(self.deployment, "/spec/minReadySeconds"),
            },
        });
        let message = format!("Scaled up replica set {name} from 0 to {replicas}");
        plan.create(
            ObjectKind::ReplicaSets,
            set,
            Event::new(ObjectKind::Deployments, self.deployment, SCALED, message),
        );
    }

    /// Scales the new ReplicaSet up or, if that is not possible, the old ones down.
    fn roll(&self, sizes: &mut Sizes) {
        let Some(new) = self.new else { return };
        let scaled_up = scale::scaled_up(self, size(new));
        if scaled_up != size(new) {
            return sizes.set(new, scaled_up);
        }
        scale::scale_down_old(self, new, sizes);
    }

    /// Deletes all old pods before it creates the first new one.
    fn recreate(&self, cache: &Cache, sizes: &mut Sizes, plan: &mut Plan) {
        self.old.iter().for_each(|set| sizes.set(set, 0));
        let is_running =
            |set: &&Value| cache.controlled_by(ObjectKind::Pods, set).iter().any(|pod| !is_finished(pod));
        if self.old.iter().any(|set| size(set) > 0 || is_running(set)) {
            return;
        }
        match self.new {
            None => self.create_new(plan),
            Some(new) => sizes.set(new, self.desired),
        }
    }

    /// Writes changed ReplicaSets. Returns whether there are any.
    fn write_sets(&self, mut sizes: Sizes, plan: &mut Plan) -> bool {
        let before = plan.writes.len();
        for set in self.sets() {
            let (old, new) = (size(set), sizes.0.remove(name(set)).unwrap_or(size(set)));
            let mut changed = set.clone();
            changed["spec"]["replicas"] = new.into();
            let is_new = self.new.is_some_and(|new| uid(new) == uid(set));
            let is_sized = new != old || (new > 0 && self.is_scaled());
            let mut annotations: Map<String, Value> = fields(set, "/metadata/annotations")
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if is_new {
                self.update_annotations(&mut annotations);
                changed["spec"]["minReadySeconds"] = count(self.deployment, "/spec/minReadySeconds").into();
            }
            if is_sized || is_new {
                self.set_size_annotations(&mut annotations);
            }
            changed["metadata"]["annotations"] = annotations.into();
            plan.update(ObjectKind::ReplicaSets, set, changed);
            if new != old {
                let direction = if new > old { "up" } else { "down" };
                let message = format!("Scaled {direction} replica set {} from {old} to {new}", name(set));
                plan.record(Event::new(ObjectKind::Deployments, self.deployment, SCALED, message));
            }
        }
        plan.writes.len() > before
    }

    /// Sets the annotations of the new ReplicaSet. A ReplicaSet that is reused by a rollback gets a new revision, and
    /// its history keeps the old one.
    fn update_annotations(&self, annotations: &mut Map<String, Value>) {
        annotations.extend(self.copied_annotations());
        let old = annotations.get(REVISION).and_then(Value::as_str).unwrap_or_default().to_owned();
        if old.parse::<i64>().unwrap_or_default() >= self.revision() {
            return;
        }
        annotations.insert(REVISION.to_owned(), self.revision().to_string().into());
        if !old.is_empty() {
            let history = annotations.get(REVISION_HISTORY).and_then(Value::as_str);
            let history = history.map_or(old.clone(), |history| format!("{history},{old}"));
            annotations.insert(REVISION_HISTORY.to_owned(), history.into());
        }
    }

    fn set_size_annotations(&self, annotations: &mut Map<String, Value>) {
        annotations.insert(DESIRED.to_owned(), self.desired.to_string().into());
        annotations.insert(MAX.to_owned(), (self.desired + self.surge).to_string().into());
    }

    fn copied_annotations(&self) -> Map<String, Value> {
        let all = fields(self.deployment, "/metadata/annotations");
        all.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Returns a revision one higher than that of any old ReplicaSet.
    fn revision(&self) -> i64 {
        self.old.iter().map(|set| revision(set)).max().unwrap_or_default() + 1
    }

    /// Deletes the oldest scaled-down ReplicaSets beyond the history limit once the rollout is complete.
    fn delete_old(&self, plan: &mut Plan) {
        if !progress::is_complete(self.deployment, &self.deployment["status"]) {
            return;
        }
        let limit = number(self.deployment, "/spec/revisionHistoryLimit").unwrap_or(REVISION_HISTORY_LIMIT);
        let is_empty = |set: &&&Value| {
            size(set) == 0
                && count(set, "/status/replicas") == 0
                && generation(set) <= count(set, "/status/observedGeneration")
                && !is_being_deleted(set)
        };
        let mut empty: Vec<&Value> = self.old.iter().filter(is_empty).copied().collect();
        empty.sort_by_key(|set| revision(set));
        let surplus = usize::try_from(empty.len() as i64 - limit).unwrap_or_default();
        empty.into_iter().take(surplus).for_each(|set| plan.delete(ObjectKind::ReplicaSets, set));
    }
}

/// The reason of Events about scaling.
const SCALED: &str = "ScalingReplicaSet";

/// The replicas that ReplicaSets should have, by name. ReplicaSets that are not listed keep theirs.
#[derive(Debug, Default)]
struct Sizes(BTreeMap<String, i64>);

impl Sizes {
    fn set(&mut self, set: &Value, replicas: i64) {
        self.0.insert(name(set).to_owned(), replicas.max(0));
    }

    fn of(&self, set: &Value) -> i64 {
        self.0.get(name(set)).copied().unwrap_or_else(|| size(set))
    }
}

/// Returns the desired replicas of a ReplicaSet.
fn size(set: &Value) -> i64 {
    number(set, "/spec/replicas").unwrap_or(1)
}

fn revision(set: &Value) -> i64 {
    annotation(set, REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    template
}

#[cfg(test)]
mod tests;
