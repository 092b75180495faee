//! Deployments: a ReplicaSet per template, and going from the old ones to the new one without losing too many pods.
//!
//! ```text
//!   template ─► new ReplicaSet (found by its template, or made) ─► up as far as the surge allows
//!               old ones, oldest first                          ─► down as far as availability allows
//! ```
//!
//! Every step looks at what is there and moves as far as it may; the rest comes when pods have become ready or are gone.
//! A template that was there before finds its old ReplicaSet, which is how a rollback needs nothing special.

mod progress;
mod scale;

pub(crate) use scale::resolved;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::pods::{is_finished, take};
use crate::kind::Kind;
use crate::object::{
    annotation, count, created, fields, flag, generation, hash, is_being_deleted, name, namespace, number,
    reference, same, text, uid,
};
use crate::plan::{Event, Plan, Write};
use crate::world::World;

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Annotations a ReplicaSet does not take over from its Deployment.
const OWN: &[&str] =
    &[REVISION, REVISION_HISTORY, DESIRED, MAX, "kubectl.kubernetes.io/last-applied-configuration"];
/// If nobody says how much of the past to keep.
const HISTORY: i64 = 10;

pub(crate) fn step(world: &World, space: &str, now: Timestamp, plan: &mut Plan) {
    for deployment in world.all(Kind::Deployments, space) {
        if !is_being_deleted(deployment) {
            take(world, Kind::Deployments, deployment, Kind::ReplicaSets, plan);
        }
        Rollout::of(world, deployment, now).step(world, plan);
    }
}

/// A Deployment and its ReplicaSets, as they are.
struct Rollout<'a> {
    deployment: &'a Value,
    /// The one with the template of now.
    new: Option<&'a Value>,
    /// The others, oldest first.
    old: Vec<&'a Value>,
    wanted: i64,
    /// How many pods more and fewer than wanted there may be on the way.
    surge: i64,
    unavailable: i64,
    now: Timestamp,
}

impl<'a> Rollout<'a> {
    fn of(world: &'a World, deployment: &'a Value, now: Timestamp) -> Rollout<'a> {
        let mut sets = world.owned(Kind::ReplicaSets, deployment);
        sets.sort_by_key(|set| (created(set), name(set)));
        let template = &deployment["spec"]["template"];
        let new = sets.iter().position(|set| same(&without_hash(&set["spec"]["template"]), template));
        let new = new.map(|place| sets.remove(place));
        let wanted = number(deployment, "/spec/replicas").unwrap_or(1);
        let (surge, unavailable) = scale::bounds(deployment, wanted);
        Rollout { deployment, new, old: sets, wanted, surge, unavailable, now }
    }

    fn sets(&self) -> impl Iterator<Item = &'a Value> {
        self.old.iter().copied().chain(self.new)
    }

    fn is_recreate(&self) -> bool {
        text(self.deployment, "/spec/strategy/type") == "Recreate"
    }

    fn step(&self, world: &World, plan: &mut Plan) {
        if is_being_deleted(self.deployment) {
            return self.tell(plan);
        }
        let is_paused = flag(self.deployment, "/spec/paused");
        let mut sizes = Sizes::default();
        match self.new {
            _ if is_paused || self.is_scaled_meanwhile() => scale::in_proportion(self, &mut sizes),
            _ if self.is_recreate() => self.recreate(world, &mut sizes, plan),
            None => self.make(plan),
            Some(_) => self.roll(&mut sizes),
        }
        let changed = self.write_sets(sizes, plan);
        if !changed {
            self.forget_old(plan);
        }
        self.tell(plan);
    }

    /// Writes the status, and the revision with it: as part of a change of its own it would count as a new generation.
    fn tell(&self, plan: &mut Plan) {
        let mut told = self.deployment.clone();
        told["status"] = progress::status(self, plan);
        if let Some(new) = self.new {
            let revision = self.revision().max(revision(new));
            told["metadata"]["annotations"][REVISION] = revision.to_string().into();
        }
        if !same(self.deployment, &told) {
            plan.writes.push(Write::Status { kind: Kind::Deployments, object: told });
        }
    }

    /// Whether somebody has changed the number of replicas since the ReplicaSets were last sized.
    fn is_scaled_meanwhile(&self) -> bool {
        let stale = |set: &Value| {
            size(set) > 0 && annotation(set, DESIRED).is_some_and(|noted| noted != self.wanted.to_string())
        };
        self.sets().any(stale)
    }

    /// The ReplicaSet for the template of now.
    fn make(&self, plan: &mut Plan) {
        let template = &self.deployment["spec"]["template"];
        let hash = hash(template);
        let name = format!("{}-{hash}", name(self.deployment));
        let mut template = template.clone();
        template["metadata"]["labels"][TEMPLATE_HASH] = hash.as_str().into();
        let mut selector = self.deployment["spec"]["selector"].clone();
        selector["matchLabels"][TEMPLATE_HASH] = hash.as_str().into();
        let others: i64 = self.old.iter().map(|set| size(set)).sum();
        let replicas = match self.is_recreate() {
            true => self.wanted,
            false => self.wanted.min(self.wanted + self.surge - others).max(0),
        };
        let mut annotations = self.inherited();
        annotations.insert(REVISION.to_owned(), self.revision().to_string().into());
        self.note_sizes(&mut annotations);
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": namespace(self.deployment), "annotations": annotations,
                "labels": template["metadata"]["labels"],
                "ownerReferences": [reference(Kind::Deployments, self.deployment)],
            },
            "spec": {
                "replicas": replicas, "selector": selector, "template": template,
                "minReadySeconds": count(self.deployment, "/spec/minReadySeconds"),
            },
        });
        let told = format!("Scaled up replica set {name} from 0 to {replicas}");
        plan.create(Kind::ReplicaSets, set, Event::new(Kind::Deployments, self.deployment, SCALED, told));
    }

    /// One step up for the new one, else one step down for the old ones.
    fn roll(&self, sizes: &mut Sizes) {
        let Some(new) = self.new else { return };
        let grown = scale::grown(self, size(new));
        if grown != size(new) {
            return sizes.set(new, grown);
        }
        scale::shrink(self, new, sizes);
    }

    /// All old pods go before the first new one comes.
    fn recreate(&self, world: &World, sizes: &mut Sizes, plan: &mut Plan) {
        self.old.iter().for_each(|set| sizes.set(set, 0));
        let is_running = |set: &&Value| world.owned(Kind::Pods, set).iter().any(|pod| !is_finished(pod));
        if self.old.iter().any(|set| size(set) > 0 || is_running(set)) {
            return;
        }
        match self.new {
            None => self.make(plan),
            Some(new) => sizes.set(new, self.wanted),
        }
    }

    /// Writes what changes about ReplicaSets, and says whether anything does.
    fn write_sets(&self, mut sizes: Sizes, plan: &mut Plan) -> bool {
        let before = plan.writes.len();
        for set in self.sets() {
            let (old, new) = (size(set), sizes.0.remove(name(set)).unwrap_or(size(set)));
            let mut changed = set.clone();
            changed["spec"]["replicas"] = new.into();
            let is_new = self.new.is_some_and(|new| uid(new) == uid(set));
            let is_sized = new != old || (new > 0 && self.is_scaled_meanwhile());
            let mut annotations: Map<String, Value> = fields(set, "/metadata/annotations")
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if is_new {
                self.renew(&mut annotations);
                changed["spec"]["minReadySeconds"] = count(self.deployment, "/spec/minReadySeconds").into();
            }
            if is_sized || is_new {
                self.note_sizes(&mut annotations);
            }
            changed["metadata"]["annotations"] = annotations.into();
            plan.update(Kind::ReplicaSets, set, changed);
            if new != old {
                let way = if new > old { "up" } else { "down" };
                let told = format!("Scaled {way} replica set {} from {old} to {new}", name(set));
                plan.tell(Event::new(Kind::Deployments, self.deployment, SCALED, told));
            }
        }
        plan.writes.len() > before
    }

    /// What the new ReplicaSet says about itself; one that comes back gets a new revision and remembers the old.
    fn renew(&self, annotations: &mut Map<String, Value>) {
        annotations.extend(self.inherited());
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

    fn note_sizes(&self, annotations: &mut Map<String, Value>) {
        annotations.insert(DESIRED.to_owned(), self.wanted.to_string().into());
        annotations.insert(MAX.to_owned(), (self.wanted + self.surge).to_string().into());
    }

    fn inherited(&self) -> Map<String, Value> {
        let all = fields(self.deployment, "/metadata/annotations");
        all.filter(|(key, _)| !OWN.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// One more than any of the old ones.
    fn revision(&self) -> i64 {
        self.old.iter().map(|set| revision(set)).max().unwrap_or_default() + 1
    }

    /// Removes the oldest of the empty ReplicaSets once everything is as wanted.
    fn forget_old(&self, plan: &mut Plan) {
        if !progress::is_complete(self.deployment, &self.deployment["status"]) {
            return;
        }
        let kept = number(self.deployment, "/spec/revisionHistoryLimit").unwrap_or(HISTORY);
        let is_empty = |set: &&&Value| {
            size(set) == 0
                && count(set, "/status/replicas") == 0
                && generation(set) <= count(set, "/status/observedGeneration")
                && !is_being_deleted(set)
        };
        let mut empty: Vec<&Value> = self.old.iter().filter(is_empty).copied().collect();
        empty.sort_by_key(|set| revision(set));
        let surplus = usize::try_from(empty.len() as i64 - kept).unwrap_or_default();
        empty.into_iter().take(surplus).for_each(|set| plan.delete(Kind::ReplicaSets, set));
    }
}

/// Why an Event about sizes is told.
const SCALED: &str = "ScalingReplicaSet";

/// Sizes ReplicaSets should have, by name; what is not here stays.
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

/// How many pods a ReplicaSet is to have.
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
