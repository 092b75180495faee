//! StatefulSets: pods with numbers, made in order, each with its own claims, and let go in the opposite order.
//!
//! ```text
//!   ordinals.start … start+replicas-1     made upwards: the next when the one before is available
//!   above that                            deleted downwards, one at a time
//!   of an old revision, from partition    deleted downwards, one at a time; they come back new
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::{adopt, available_at, is_finished, of_template};
use super::revisions::Revisions;
use crate::kind::Kind;
use crate::object::{
    count, generation, is_being_deleted, is_true, label, list, name, namespace, number, reference, text,
};
use crate::plan::{Event, Plan};
use crate::world::World;

/// What a revision and a pod of it are marked with.
const REVISION_MARK: &str = "controller.kubernetes.io/hash";
const POD_MARK: &str = "controller-revision-hash";

pub(crate) fn step(world: &World, space: &str, now: Timestamp, plan: &mut Plan) {
    for set in world.all(Kind::StatefulSets, space) {
        if is_being_deleted(set) {
            continue;
        }
        adopt(world, Kind::StatefulSets, set, plan);
        let revisions = Revisions::of(world, Kind::StatefulSets, set, REVISION_MARK, plan);
        let look = Look::of(world, set, &revisions, now);
        look.act(world, plan);
        look.tell(plan);
        let used = |revision: &Value| {
            let mark = Some(name(revision));
            look.pods.values().any(|pod| label(pod, POD_MARK) == mark)
                || look.current.as_str() == name(revision)
        };
        revisions.forget_old(set, used, plan);
    }
}

/// A StatefulSet and its pods, as they are.
struct Look<'a> {
    set: &'a Value,
    revisions: &'a Revisions<'a>,
    /// By ordinal.
    pods: BTreeMap<i64, &'a Value>,
    start: i64,
    replicas: i64,
    /// The revision everything was of before the last change.
    current: String,
    now: Timestamp,
}

impl<'a> Look<'a> {
    fn of(world: &'a World, set: &'a Value, revisions: &'a Revisions<'a>, now: Timestamp) -> Look<'a> {
        let prefix = format!("{}-", name(set));
        let ordinal = |pod: &Value| name(pod).strip_prefix(&prefix)?.parse().ok();
        let pods = world.owned(Kind::Pods, set).into_iter();
        let current = text(set, "/status/currentRevision");
        Look {
            set,
            revisions,
            pods: pods.filter_map(|pod| Some((ordinal(pod)?, pod))).collect(),
            start: count(set, "/spec/ordinals/start"),
            replicas: number(set, "/spec/replicas").unwrap_or(1),
            current: if current.is_empty() { revisions.name.clone() } else { current.to_owned() },
            now,
        }
    }

    fn ordinals(&self) -> std::ops::Range<i64> {
        self.start..self.start + self.replicas
    }

    fn is_parallel(&self) -> bool {
        text(self.set, "/spec/podManagementPolicy") == "Parallel"
    }

    fn is_available(&self, pod: &Value) -> bool {
        let at = available_at(pod, count(self.set, "/spec/minReadySeconds"));
        !is_being_deleted(pod) && at.is_some_and(|at| at <= self.now)
    }

    /// From which ordinal on pods are to be of the template of now.
    fn partition(&self) -> i64 {
        match text(self.set, "/spec/updateStrategy/type") {
            "OnDelete" => i64::MAX,
            _ => count(self.set, "/spec/updateStrategy/rollingUpdate/partition"),
        }
    }

    /// The next step: make, else let go, else renew.
    fn act(&self, world: &World, plan: &mut Plan) {
        for ordinal in self.ordinals() {
            match self.pods.get(&ordinal) {
                None => self.make(world, ordinal, plan),
                Some(pod) if is_finished(pod) && !is_being_deleted(pod) => self.remove(pod, plan),
                Some(pod) if self.is_available(pod) => continue,
                Some(pod) => self.wake_for(pod, plan),
            }
            if !self.is_parallel() {
                return self.replace_broken(ordinal, plan);
            }
        }
        let condemned: Vec<_> =
            self.pods.iter().rev().filter(|(ordinal, _)| !self.ordinals().contains(ordinal)).collect();
        for (_, pod) in &condemned {
            if !is_being_deleted(pod) {
                self.remove(pod, plan);
            }
            if !self.is_parallel() {
                return;
            }
        }
        if condemned.is_empty() {
            self.renew(plan);
        }
    }

    /// A pod of an old revision that never became ready holds everything up, so it is let go even though it is its turn
    /// to wait.
    fn replace_broken(&self, ordinal: i64, plan: &mut Plan) {
        let Some(pod) = self.pods.get(&ordinal) else { return };
        let is_old = label(pod, POD_MARK) != Some(self.revisions.name.as_str());
        if is_old && ordinal >= self.partition() && !is_being_deleted(pod) && !is_true(pod, "Ready") {
            self.remove(pod, plan);
        }
    }

    /// Lets the highest pod of an old revision go, if all above it are as they should be.
    fn renew(&self, plan: &mut Plan) {
        for (ordinal, pod) in self.pods.iter().rev() {
            if *ordinal < self.partition() {
                return;
            }
            if is_being_deleted(pod) {
                return;
            }
            if label(pod, POD_MARK) != Some(self.revisions.name.as_str()) {
                return self.remove(pod, plan);
            }
            if !self.is_available(pod) {
                return self.wake_for(pod, plan);
            }
        }
    }

    fn wake_for(&self, pod: &Value, plan: &mut Plan) {
        if let Some(at) =
            available_at(pod, count(self.set, "/spec/minReadySeconds")).filter(|at| *at > self.now)
        {
            plan.wake(at);
        }
    }

    fn remove(&self, pod: &Value, plan: &mut Plan) {
        plan.delete(Kind::Pods, pod);
        let told = format!("Delete Pod {} in StatefulSet {} successful", name(pod), name(self.set));
        plan.tell(Event::new(Kind::StatefulSets, self.set, "SuccessfulDelete", told));
    }

    fn make(&self, world: &World, ordinal: i64, plan: &mut Plan) {
        // Below the partition pods stay of the revision before.
        let revision = if ordinal < self.partition() { &self.current } else { &self.revisions.name };
        let template = self.revisions.template(self.set, revision);
        let pod_name = format!("{}-{ordinal}", name(self.set));
        let mut pod = of_template(Kind::StatefulSets, self.set, &template);
        pod["metadata"]["name"] = pod_name.as_str().into();
        pod["metadata"]["generateName"] = format!("{}-", name(self.set)).into();
        let labels = &mut pod["metadata"]["labels"];
        labels["statefulset.kubernetes.io/pod-name"] = pod_name.as_str().into();
        labels["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
        labels[POD_MARK] = revision.as_str().into();
        pod["spec"]["hostname"] = pod_name.as_str().into();
        pod["spec"]["subdomain"] = self.set["spec"]["serviceName"].clone();
        self.claim(world, &pod_name, &mut pod, plan);
        let told = format!("Create Pod {pod_name} in StatefulSet {} successful", name(self.set));
        plan.create(Kind::Pods, pod, Event::new(Kind::StatefulSets, self.set, "SuccessfulCreate", told));
    }

    /// A pod's own claims, which outlive it, and the volumes that name them.
    fn claim(&self, world: &World, pod_name: &str, pod: &mut Value, plan: &mut Plan) {
        let templates = list(self.set, "/spec/volumeClaimTemplates");
        let named = |template: &Value| format!("{}-{pod_name}", name(template));
        for template in templates {
            if world.get(Kind::Claims, namespace(self.set), &named(template)).is_some() {
                continue;
            }
            let mut labels = self.set["spec"]["selector"]["matchLabels"].clone();
            for (key, value) in crate::object::fields(template, "/metadata/labels") {
                labels[key] = value.clone();
            }
            let goes_along =
                text(self.set, "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted") == "Delete";
            let owners: Vec<_> =
                goes_along.then(|| reference(Kind::StatefulSets, self.set)).into_iter().collect();
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": named(template), "namespace": namespace(self.set), "labels": labels,
                    "annotations": template["metadata"]["annotations"], "ownerReferences": owners,
                },
                "spec": template["spec"],
            });
            plan.create_silently(Kind::Claims, claim);
        }
        let is_claimed =
            |volume: &Value| templates.iter().any(|template| template["metadata"]["name"] == volume["name"]);
        let mut volumes: Vec<Value> =
            list(pod, "/spec/volumes").iter().filter(|volume| !is_claimed(volume)).cloned().collect();
        volumes.extend(templates.iter().map(|template| {
            json!({ "name": name(template), "persistentVolumeClaim": { "claimName": named(template) } })
        }));
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = volumes.into();
        }
    }

    fn tell(&self, plan: &mut Plan) {
        let present: Vec<&Value> = self
            .pods
            .values()
            .filter(|pod| !is_finished(pod) && !text(pod, "/status/phase").is_empty())
            .copied()
            .collect();
        let of = |revision: &str| {
            let is_of = |pod: &&&Value| !is_being_deleted(pod) && label(pod, POD_MARK) == Some(revision);
            present.iter().filter(is_of).count() as i64
        };
        let ready = present.iter().filter(|pod| is_true(pod, "Ready")).count();
        let available = present.iter().filter(|pod| self.is_available(pod)).count();
        let (updated, update) = (of(&self.revisions.name), self.revisions.name.as_str());
        // Once everything is of the new revision, that is the one of now.
        let is_done = updated == self.replicas
            && present.len() as i64 == self.replicas
            && ready as i64 == self.replicas;
        let is_rolling =
            text(self.set, "/spec/updateStrategy/type") != "OnDelete" && self.partition() <= self.start;
        let current = if is_done && is_rolling { update } else { self.current.as_str() };
        let status = json!({
            "observedGeneration": generation(self.set),
            "replicas": present.len(),
            "readyReplicas": ready,
            "availableReplicas": available,
            "currentReplicas": of(current),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
        });
        plan.status(Kind::StatefulSets, self.set, status);
    }
}
