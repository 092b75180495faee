//! DaemonSets: a pod on every node that takes it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::deployments::resolved;
use super::pods::{adopt, available_at, is_finished, of_template};
use super::revisions::{Revisions, template_generation};
use crate::kind::Kind;
use crate::node::fits;
use crate::object::{count, generation, is_being_deleted, is_true, label, list, name, text};
use crate::plan::{Event, Plan};
use crate::world::World;

const MARK: &str = "controller-revision-hash";
const GENERATION: &str = "pod-template-generation";
/// What pods of a DaemonSet put up with, whatever their template says: they are there for nodes in trouble, too.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(crate) fn step(world: &World, space: &str, now: Timestamp, plan: &mut Plan) {
    for set in world.all(Kind::DaemonSets, space) {
        if !is_being_deleted(set) {
            look(world, set, now, plan);
        }
    }
}

fn look(world: &World, set: &Value, now: Timestamp, plan: &mut Plan) {
    adopt(world, Kind::DaemonSets, set, plan);
    let revisions = Revisions::of(world, Kind::DaemonSets, set, MARK, plan);
    let mut by_node: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for pod in world.owned(Kind::Pods, set) {
        by_node.entry(node_of(pod)).or_default().push(pod);
    }
    let nodes: Vec<&Value> = world.every(Kind::Nodes).collect();
    let wanted: Vec<&Value> = nodes.iter().filter(|node| takes(node, set)).copied().collect();
    for node in &wanted {
        let pods = by_node.get(name(node)).map_or(&[][..], Vec::as_slice);
        for pod in pods.iter().filter(|pod| is_finished(pod) && !is_being_deleted(pod)) {
            plan.delete(Kind::Pods, pod);
        }
        if pods.is_empty() {
            make(set, node, &revisions, plan);
        }
    }
    for (node, pods) in &by_node {
        if !wanted.iter().any(|wanted| name(wanted) == *node) {
            pods.iter().filter(|pod| !is_being_deleted(pod)).for_each(|pod| plan.delete(Kind::Pods, pod));
        }
    }
    let counts = Counts::of(set, &wanted, &by_node, &revisions.hash, now, plan);
    renew(set, &wanted, &by_node, &revisions.hash, &counts, plan);
    let misplaced = by_node.keys().filter(|node| !wanted.iter().any(|wanted| name(wanted) == **node)).count();
    plan.status(Kind::DaemonSets, set, counts.status(set, wanted.len(), misplaced));
    let used =
        |revision: &Value| by_node.values().flatten().any(|pod| label(pod, MARK) == label(revision, MARK));
    revisions.forget_old(set, used, plan);
}

/// Whether a node takes the pods of a DaemonSet.
fn takes(node: &Value, set: &Value) -> bool {
    let pod = tolerant(json!({ "spec": set["spec"]["template"]["spec"] }));
    fits::refusal(node, &pod).is_none()
}

/// Where a pod is, or is meant to be.
fn node_of(pod: &Value) -> &str {
    const MEANT: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                         /nodeSelectorTerms/0/matchFields/0/values/0";
    match text(pod, "/spec/nodeName") {
        "" => text(pod, MEANT),
        node => node,
    }
}

fn tolerant(mut pod: Value) -> Value {
    let mut tolerations = list(&pod, "/spec/tolerations").to_vec();
    for (key, effect) in TOLERATED {
        tolerations.push(json!({ "key": key, "operator": "Exists", "effect": effect }));
    }
    pod["spec"]["tolerations"] = tolerations.into();
    pod
}

fn make(set: &Value, node: &Value, revisions: &Revisions<'_>, plan: &mut Plan) {
    let mut pod = tolerant(of_template(Kind::DaemonSets, set, &set["spec"]["template"]));
    pod["metadata"]["generateName"] = format!("{}-", name(set)).into();
    pod["metadata"]["labels"][MARK] = revisions.hash.as_str().into();
    if let Some(generation) = template_generation(set) {
        pod["metadata"]["labels"][GENERATION] = generation.into();
    }
    let here = json!([{ "key": "metadata.name", "operator": "In", "values": [name(node)] }]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = list(&pod, &format!("/spec/affinity/nodeAffinity/{required}/nodeSelectorTerms"));
    let terms: Vec<Value> = match terms.is_empty() {
        true => vec![json!({ "matchFields": here })],
        false => terms
            .iter()
            .map(|term| json!({ "matchExpressions": term["matchExpressions"], "matchFields": here }))
            .collect(),
    };
    pod["spec"]["affinity"]["nodeAffinity"][required] = json!({ "nodeSelectorTerms": terms });
    plan.create(Kind::Pods, pod, Event::new(Kind::DaemonSets, set, "SuccessfulCreate", "Created pod: {}"));
}

/// Lets pods of an old revision go, as many at a time as may be missing.
fn renew(
    set: &Value,
    wanted: &[&Value],
    by_node: &BTreeMap<&str, Vec<&Value>>,
    hash: &str,
    counts: &Counts,
    plan: &mut Plan,
) {
    if text(set, "/spec/updateStrategy/type") == "OnDelete" {
        return;
    }
    let most = resolved(
        &set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        wanted.len() as i64,
        true,
    );
    let mut room = most.max(1) - (wanted.len() as i64 - counts.available);
    let pods = wanted.iter().filter_map(|node| by_node.get(name(node))).flatten();
    for pod in pods.filter(|pod| !is_being_deleted(pod) && label(pod, MARK) != Some(hash)) {
        let is_broken = !is_true(pod, "Ready");
        if is_broken || room > 0 {
            plan.delete(Kind::Pods, pod);
            let told = format!("Deleted pod: {}", name(pod));
            plan.tell(Event::new(Kind::DaemonSets, set, "SuccessfulDelete", told));
            room -= i64::from(!is_broken);
        }
    }
}

/// How many nodes have what they should.
struct Counts {
    scheduled: i64,
    ready: i64,
    available: i64,
    updated: i64,
}

impl Counts {
    fn of(
        set: &Value,
        wanted: &[&Value],
        by_node: &BTreeMap<&str, Vec<&Value>>,
        hash: &str,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Counts {
        let mut counts = Counts { scheduled: 0, ready: 0, available: 0, updated: 0 };
        for pods in wanted.iter().filter_map(|node| by_node.get(name(node))) {
            counts.scheduled += 1;
            let Some(pod) = pods.iter().find(|pod| !is_being_deleted(pod)) else { continue };
            counts.ready += i64::from(is_true(pod, "Ready"));
            counts.updated += i64::from(label(pod, MARK) == Some(hash));
            match available_at(pod, count(set, "/spec/minReadySeconds")) {
                Some(at) if at <= now => counts.available += 1,
                Some(at) => plan.wake(at),
                None => {}
            }
        }
        counts
    }

    fn status(&self, set: &Value, wanted: usize, misplaced: usize) -> Value {
        json!({
            "observedGeneration": generation(set),
            "desiredNumberScheduled": wanted,
            "currentNumberScheduled": self.scheduled,
            "numberMisscheduled": misplaced,
            "numberReady": self.ready,
            "updatedNumberScheduled": self.updated,
            "numberAvailable": self.available,
            "numberUnavailable": wanted as i64 - self.available,
        })
    }
}
