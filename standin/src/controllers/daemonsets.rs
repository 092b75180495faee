//! DaemonSets: one pod on every node that its template may run on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::{adopt, from_template};
use super::revisions::{Revisions, template_generation};
use crate::cache::Cache;
use crate::node::predicates;
use crate::objects::fields::{
    count, generation, is_being_deleted, is_true, label, list, name, resolve_int_or_percent, text,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::{available_at, is_finished};
use crate::plan::{Event, Plan};

const HASH_LABEL: &str = "controller-revision-hash";
const GENERATION_LABEL: &str = "pod-template-generation";
/// Tolerations that pods of a DaemonSet have in addition to those of their template, because they also run on unhealthy
/// nodes.
const TOLERATIONS: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(crate) fn reconcile(cache: &Cache, ns: &str, now: Timestamp, plan: &mut Plan) {
    for set in cache.list(ObjectKind::DaemonSets, ns) {
        if !is_being_deleted(set) {
            reconcile_set(cache, set, now, plan);
        }
    }
}

fn reconcile_set(cache: &Cache, set: &Value, now: Timestamp, plan: &mut Plan) {
    adopt(cache, ObjectKind::DaemonSets, set, plan);
    let revisions = Revisions::sync(cache, ObjectKind::DaemonSets, set, HASH_LABEL, plan);
    let mut by_node: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for pod in cache.controlled_by(ObjectKind::Pods, set) {
        by_node.entry(node_of(pod)).or_default().push(pod);
    }
    let nodes: Vec<&Value> = cache.list_all(ObjectKind::Nodes).collect();
    let eligible: Vec<&Value> = nodes.iter().filter(|node| is_eligible(node, set)).copied().collect();
    for node in &eligible {
        let pods = by_node.get(name(node)).map_or(&[][..], Vec::as_slice);
        for pod in pods.iter().filter(|pod| is_finished(pod) && !is_being_deleted(pod)) {
            plan.delete(ObjectKind::Pods, pod);
        }
        if pods.is_empty() {
            create_pod(set, node, &revisions, plan);
        }
    }
    for (node, pods) in &by_node {
        if !eligible.iter().any(|eligible| name(eligible) == *node) {
            pods.iter()
                .filter(|pod| !is_being_deleted(pod))
                .for_each(|pod| plan.delete(ObjectKind::Pods, pod));
        }
    }
    let counts = NodeCounts::new(set, &eligible, &by_node, &revisions.hash, now, plan);
    replace_outdated(set, &eligible, &by_node, &revisions.hash, &counts, plan);
    let misscheduled =
        by_node.keys().filter(|node| !eligible.iter().any(|eligible| name(eligible) == **node)).count();
    plan.status(ObjectKind::DaemonSets, set, counts.status(set, eligible.len(), misscheduled));
    let is_used = |revision: &Value| {
        by_node.values().flatten().any(|pod| label(pod, HASH_LABEL) == label(revision, HASH_LABEL))
    };
    revisions.delete_old(set, is_used, plan);
}

/// Returns whether the pods of a DaemonSet may run on a node.
fn is_eligible(node: &Value, set: &Value) -> bool {
    let pod = with_tolerations(json!({ "spec": set["spec"]["template"]["spec"] }));
    predicates::mismatch(node, &pod).is_none()
}

/// Returns the node that a pod is bound to, or that its affinity names.
fn node_of(pod: &Value) -> &str {
    const AFFINITY: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                         /nodeSelectorTerms/0/matchFields/0/values/0";
    match text(pod, "/spec/nodeName") {
        "" => text(pod, AFFINITY),
        node => node,
    }
}

fn with_tolerations(mut pod: Value) -> Value {
    let mut tolerations = list(&pod, "/spec/tolerations").to_vec();
    for (key, effect) in TOLERATIONS {
        tolerations.push(json!({ "key": key, "operator": "Exists", "effect": effect }));
    }
    pod["spec"]["tolerations"] = tolerations.into();
    pod
}

fn create_pod(set: &Value, node: &Value, revisions: &Revisions<'_>, plan: &mut Plan) {
    let mut pod = with_tolerations(from_template(ObjectKind::DaemonSets, set, &set["spec"]["template"]));
    pod["metadata"]["generateName"] = format!("{}-", name(set)).into();
    pod["metadata"]["labels"][HASH_LABEL] = revisions.hash.as_str().into();
    if let Some(generation) = template_generation(set) {
        pod["metadata"]["labels"][GENERATION_LABEL] = generation.into();
    }
    let this_node = json!([{ "key": "metadata.name", "operator": "In", "values": [name(node)] }]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = list(&pod, &format!("/spec/affinity/nodeAffinity/{required}/nodeSelectorTerms"));
    let terms: Vec<Value> = match terms.is_empty() {
        true => vec![json!({ "matchFields": this_node })],
        false => terms
            .iter()
            .map(|term| json!({ "matchExpressions": term["matchExpressions"], "matchFields": this_node }))
            .collect(),
    };
    pod["spec"]["affinity"]["nodeAffinity"][required] = json!({ "nodeSelectorTerms": terms });
    plan.create(
        ObjectKind::Pods,
        pod,
        Event::new(ObjectKind::DaemonSets, set, "SuccessfulCreate", "Created pod: {}"),
    );
}

/// Deletes pods of an old revision, at most `maxUnavailable` at a time.
fn replace_outdated(
    set: &Value,
    eligible: &[&Value],
    by_node: &BTreeMap<&str, Vec<&Value>>,
    hash: &str,
    counts: &NodeCounts,
    plan: &mut Plan,
) {
    if text(set, "/spec/updateStrategy/type") == "OnDelete" {
        return;
    }
    let max_unavailable = resolve_int_or_percent(
        &set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        eligible.len() as i64,
        true,
    );
    let mut budget = max_unavailable.max(1) - (eligible.len() as i64 - counts.available);
    let pods = eligible.iter().filter_map(|node| by_node.get(name(node))).flatten();
    for pod in pods.filter(|pod| !is_being_deleted(pod) && label(pod, HASH_LABEL) != Some(hash)) {
        let is_unready = !is_true(pod, "Ready");
        if is_unready || budget > 0 {
            plan.delete(ObjectKind::Pods, pod);
            let message = format!("Deleted pod: {}", name(pod));
            plan.record(Event::new(ObjectKind::DaemonSets, set, "SuccessfulDelete", message));
            budget -= i64::from(!is_unready);
        }
    }
}

/// The counts in the status: nodes with a scheduled, ready, available or updated pod.
struct NodeCounts {
    scheduled: i64,
    ready: i64,
    available: i64,
    updated: i64,
}

impl NodeCounts {
    fn new(
        set: &Value,
        eligible: &[&Value],
        by_node: &BTreeMap<&str, Vec<&Value>>,
        hash: &str,
        now: Timestamp,
        plan: &mut Plan,
    ) -> NodeCounts {
        let mut counts = NodeCounts { scheduled: 0, ready: 0, available: 0, updated: 0 };
        for pods in eligible.iter().filter_map(|node| by_node.get(name(node))) {
            counts.scheduled += 1;
            let Some(pod) = pods.iter().find(|pod| !is_being_deleted(pod)) else { continue };
            counts.ready += i64::from(is_true(pod, "Ready"));
            counts.updated += i64::from(label(pod, HASH_LABEL) == Some(hash));
            match available_at(pod, count(set, "/spec/minReadySeconds")) {
                Some(at) if at <= now => counts.available += 1,
                Some(at) => plan.requeue_at(at),
                None => {}
            }
        }
        counts
    }

    fn status(&self, set: &Value, desired: usize, misscheduled: usize) -> Value {
        json!({
            "observedGeneration": generation(set),
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": self.scheduled,
            "numberMisscheduled": misscheduled,
            "numberReady": self.ready,
            "updatedNumberScheduled": self.updated,
            "numberAvailable": self.available,
            "numberUnavailable": desired as i64 - self.available,
        })
    }
}
