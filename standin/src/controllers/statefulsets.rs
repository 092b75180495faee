//! StatefulSets: pods with ordinals, created in order, each with its own claims, and deleted in reverse order.
//!
//! ```text
//!   ordinals.start … start+replicas-1     created upwards: the next when the one before is available
//!   other ordinals                        deleted downwards, one at a time
//!   of an old revision, from partition    deleted downwards, one at a time, and created again
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::{adopt, from_template};
use super::revisions::Revisions;
use crate::cache::Cache;
use crate::objects::fields::{
    count, fields, generation, is_being_deleted, is_true, label, list, name, namespace, number,
    owner_reference, text,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::{available_at, is_finished};
use crate::plan::{Event, Plan};

/// The labels that name the revision, on ControllerRevisions and on pods.
const REVISION_HASH_LABEL: &str = "controller.kubernetes.io/hash";
const POD_HASH_LABEL: &str = "controller-revision-hash";

pub(crate) fn reconcile(cache: &Cache, ns: &str, now: Timestamp, plan: &mut Plan) {
    for set in cache.list(ObjectKind::StatefulSets, ns) {
        if is_being_deleted(set) {
            continue;
        }
        adopt(cache, ObjectKind::StatefulSets, set, plan);
        let revisions = Revisions::sync(cache, ObjectKind::StatefulSets, set, REVISION_HASH_LABEL, plan);
        let set_reconcile = SetReconcile::new(cache, set, &revisions, now);
        set_reconcile.reconcile(cache, plan);
        set_reconcile.write_status(plan);
        let is_used = |revision: &Value| {
            let hash = Some(name(revision));
            set_reconcile.pods.values().any(|pod| label(pod, POD_HASH_LABEL) == hash)
                || set_reconcile.current.as_str() == name(revision)
        };
        revisions.delete_old(set, is_used, plan);
    }
}

/// A StatefulSet and its pods.
struct SetReconcile<'a> {
    set: &'a Value,
    revisions: &'a Revisions<'a>,
    /// By ordinal.
    pods: BTreeMap<i64, &'a Value>,
    start: i64,
    replicas: i64,
    /// `status.currentRevision`: the revision of all pods before the last change.
    current: String,
    now: Timestamp,
}

impl<'a> SetReconcile<'a> {
    fn new(
        cache: &'a Cache,
        set: &'a Value,
        revisions: &'a Revisions<'a>,
        now: Timestamp,
    ) -> SetReconcile<'a> {
        let prefix = format!("{}-", name(set));
        let ordinal = |pod: &Value| name(pod).strip_prefix(&prefix)?.parse().ok();
        let pods = cache.controlled_by(ObjectKind::Pods, set).into_iter();
        let current = text(set, "/status/currentRevision");
        SetReconcile {
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

    /// Returns the ordinal from which on pods get the current template.
    fn partition(&self) -> i64 {
        match text(self.set, "/spec/updateStrategy/type") {
            "OnDelete" => i64::MAX,
            _ => count(self.set, "/spec/updateStrategy/rollingUpdate/partition"),
        }
    }

    /// Creates missing pods, else deletes surplus ones, else replaces outdated ones.
    fn reconcile(&self, cache: &Cache, plan: &mut Plan) {
        for ordinal in self.ordinals() {
            match self.pods.get(&ordinal) {
                None => self.create_pod(cache, ordinal, plan),
                Some(pod) if is_finished(pod) && !is_being_deleted(pod) => self.delete_pod(pod, plan),
                Some(pod) if self.is_available(pod) => continue,
                Some(pod) => self.requeue_for(pod, plan),
            }
            if !self.is_parallel() {
                return self.replace_broken(ordinal, plan);
            }
        }
        let condemned: Vec<_> =
            self.pods.iter().rev().filter(|(ordinal, _)| !self.ordinals().contains(ordinal)).collect();
        for (_, pod) in &condemned {
            if !is_being_deleted(pod) {
                self.delete_pod(pod, plan);
            }
            if !self.is_parallel() {
                return;
            }
        }
        if condemned.is_empty() {
            self.replace_outdated(plan);
        }
    }

    /// Deletes a pod of an old revision that never became ready, because otherwise the rollout would wait for it
    /// forever.
    fn replace_broken(&self, ordinal: i64, plan: &mut Plan) {
        let Some(pod) = self.pods.get(&ordinal) else { return };
        let is_old = label(pod, POD_HASH_LABEL) != Some(self.revisions.name.as_str());
        if is_old && ordinal >= self.partition() && !is_being_deleted(pod) && !is_true(pod, "Ready") {
            self.delete_pod(pod, plan);
        }
    }

    /// Deletes the pod of an old revision with the highest ordinal, if all pods above it are available.
    fn replace_outdated(&self, plan: &mut Plan) {
        for (ordinal, pod) in self.pods.iter().rev() {
            if *ordinal < self.partition() {
                return;
            }
            if is_being_deleted(pod) {
                return;
            }
            if label(pod, POD_HASH_LABEL) != Some(self.revisions.name.as_str()) {
                return self.delete_pod(pod, plan);
            }
            if !self.is_available(pod) {
                return self.requeue_for(pod, plan);
            }
        }
    }

    fn requeue_for(&self, pod: &Value, plan: &mut Plan) {
        if let Some(at) =
            available_at(pod, count(self.set, "/spec/minReadySeconds")).filter(|at| *at > self.now)
        {
            plan.requeue_at(at);
        }
    }

    fn delete_pod(&self, pod: &Value, plan: &mut Plan) {
        plan.delete(ObjectKind::Pods, pod);
        let message = format!("Delete Pod {} in StatefulSet {} successful", name(pod), name(self.set));
        plan.record(Event::new(ObjectKind::StatefulSets, self.set, "SuccessfulDelete", message));
    }

    fn create_pod(&self, cache: &Cache, ordinal: i64, plan: &mut Plan) {
        // Pods below the partition keep the current revision.
        let revision = if ordinal < self.partition() { &self.current } else { &self.revisions.name };
        let template = self.revisions.template(self.set, revision);
        let pod_name = format!("{}-{ordinal}", name(self.set));
        let mut pod = from_template(ObjectKind::StatefulSets, self.set, &template);
        pod["metadata"]["name"] = pod_name.as_str().into();
        pod["metadata"]["generateName"] = format!("{}-", name(self.set)).into();
        let labels = &mut pod["metadata"]["labels"];
        labels["statefulset.kubernetes.io/pod-name"] = pod_name.as_str().into();
        labels["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
        labels[POD_HASH_LABEL] = revision.as_str().into();
        pod["spec"]["hostname"] = pod_name.as_str().into();
        pod["spec"]["subdomain"] = self.set["spec"]["serviceName"].clone();
        self.add_claims(cache, &pod_name, &mut pod, plan);
        let message = format!("Create Pod {pod_name} in StatefulSet {} successful", name(self.set));
        plan.create(
            ObjectKind::Pods,
            pod,
            Event::new(ObjectKind::StatefulSets, self.set, "SuccessfulCreate", message),
        );
    }

    /// Creates the claims of a pod, which outlive it, and adds the volumes that refer to them.
    fn add_claims(&self, cache: &Cache, pod_name: &str, pod: &mut Value, plan: &mut Plan) {
        let templates = list(self.set, "/spec/volumeClaimTemplates");
        let claim_name = |template: &Value| format!("{}-{pod_name}", name(template));
        for template in templates {
            if cache
                .get(ObjectKind::PersistentVolumeClaims, namespace(self.set), &claim_name(template))
                .is_some()
            {
                continue;
            }
            let mut labels = self.set["spec"]["selector"]["matchLabels"].clone();
            for (key, value) in fields(template, "/metadata/labels") {
                labels[key] = value.clone();
            }
            let is_deleted_with_set =
                text(self.set, "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted") == "Delete";
            let owners: Vec<_> = is_deleted_with_set
                .then(|| owner_reference(ObjectKind::StatefulSets, self.set))
                .into_iter()
                .collect();
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": claim_name(template), "namespace": namespace(self.set), "labels": labels,
                    "annotations": template["metadata"]["annotations"], "ownerReferences": owners,
                },
                "spec": template["spec"],
            });
            plan.create_without_event(ObjectKind::PersistentVolumeClaims, claim);
        }
        let is_claimed =
            |volume: &Value| templates.iter().any(|template| template["metadata"]["name"] == volume["name"]);
        let mut volumes: Vec<Value> =
            list(pod, "/spec/volumes").iter().filter(|volume| !is_claimed(volume)).cloned().collect();
        volumes.extend(templates.iter().map(|template| {
            json!({ "name": name(template), "persistentVolumeClaim": { "claimName": claim_name(template) } })
        }));
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = volumes.into();
        }
    }

    fn write_status(&self, plan: &mut Plan) {
        let present: Vec<&Value> = self
            .pods
            .values()
            .filter(|pod| !is_finished(pod) && !text(pod, "/status/phase").is_empty())
            .copied()
            .collect();
        let count_of = |revision: &str| {
            let is_of =
                |pod: &&&Value| !is_being_deleted(pod) && label(pod, POD_HASH_LABEL) == Some(revision);
            present.iter().filter(is_of).count() as i64
        };
        let ready = present.iter().filter(|pod| is_true(pod, "Ready")).count();
        let available = present.iter().filter(|pod| self.is_available(pod)).count();
        let (updated, update) = (count_of(&self.revisions.name), self.revisions.name.as_str());
        // Once all pods have the update revision and are ready, it becomes the current one.
        let is_complete = updated == self.replicas
            && present.len() as i64 == self.replicas
            && ready as i64 == self.replicas;
        let is_rolling =
            text(self.set, "/spec/updateStrategy/type") != "OnDelete" && self.partition() <= self.start;
        let current = if is_complete && is_rolling { update } else { self.current.as_str() };
        let status = json!({
            "observedGeneration": generation(self.set),
            "replicas": present.len(),
            "readyReplicas": ready,
            "availableReplicas": available,
            "currentReplicas": count_of(current),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
        });
        plan.status(ObjectKind::StatefulSets, self.set, status);
    }
}
