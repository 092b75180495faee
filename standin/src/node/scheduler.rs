//! The scheduler: binds a pod to the least used node that it fits, or reports why no node fits.

use std::collections::BTreeMap;

use api::meta::quantity::Amounts;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::delays::{Delays, PodFailure};
use super::predicates;
use crate::cache::Cache;
use crate::clock::later;
use crate::objects::fields::{
    creation_time, is_being_deleted, list, name, namespace, number, text, time, uid,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::is_finished;
use crate::plan::{Event, Plan, Write};

const SCHEDULER: &str = "default-scheduler";

/// Schedules the pods of all namespaces, because they share the nodes.
pub(crate) fn reconcile(cache: &Cache, delays: Delays, now: Timestamp, plan: &mut Plan) {
    let is_waiting = |pod: &&Value| {
        text(pod, "/spec/nodeName").is_empty()
            && !is_being_deleted(pod)
            && !is_finished(pod)
            && list(pod, "/spec/schedulingGates").is_empty()
    };
    let mut waiting: Vec<&Value> = cache.list_all(ObjectKind::Pods).filter(is_waiting).collect();
    if waiting.is_empty() {
        return;
    }
    waiting.sort_by_key(|pod| (-number(pod, "/spec/priority").unwrap_or_default(), creation_time(pod)));
    let mut nodes = FreeResources::new(cache);
    for pod in waiting {
        let due = later(cache.pod_stage(pod, now).1, delays.for_pod(pod).schedule);
        if due > now {
            plan.requeue_at(due);
            continue;
        }
        match nodes.assign(cache, pod) {
            Ok(node) => bind(pod, &node, plan),
            Err(message) => report_unschedulable(pod, message, now, plan),
        }
    }
}

fn bind(pod: &Value, node: &str, plan: &mut Plan) {
    plan.writes.push(Write::Bind {
        namespace: namespace(pod).to_owned(),
        name: name(pod).to_owned(),
        uid: uid(pod).to_owned(),
        node: node.to_owned(),
    });
    let message = format!("Successfully assigned {}/{} to {node}", namespace(pod), name(pod));
    plan.record(Event::new(ObjectKind::Pods, pod, "Scheduled", message).reported_by(SCHEDULER));
}

fn report_unschedulable(pod: &Value, message: String, now: Timestamp, plan: &mut Plan) {
    let old = crate::objects::fields::condition(pod, "PodScheduled");
    if old.is_some_and(|old| old["status"] == "False" && text(old, "/message") == message) {
        return;
    }
    let since = old.filter(|old| old["status"] == "False").map(|old| old["lastTransitionTime"].clone());
    let mut conditions = list(pod, "/status/conditions").to_vec();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| time(now)),
        "observedGeneration": crate::objects::fields::generation(pod),
    }));
    let mut status = pod["status"].clone();
    status["phase"] = "Pending".into();
    status["conditions"] = conditions.into();
    plan.status(ObjectKind::Pods, pod, status);
    plan.record(
        Event::new(ObjectKind::Pods, pod, "FailedScheduling", message).warning().reported_by(SCHEDULER),
    );
}

/// A node, its allocatable resources, and those that no pod requests.
struct NodeResources<'a> {
    node: &'a Value,
    allocatable: Amounts,
    free: Amounts,
}

/// The free resources by the name of the node.
struct FreeResources<'a>(BTreeMap<&'a str, NodeResources<'a>>);

impl<'a> FreeResources<'a> {
    fn new(cache: &'a Cache) -> FreeResources<'a> {
        let resources = |node: &'a Value| {
            let allocatable = predicates::allocatable(node);
            (name(node), NodeResources { node, free: allocatable.clone(), allocatable })
        };
        let mut nodes = FreeResources(cache.list_all(ObjectKind::Nodes).map(resources).collect());
        for pod in cache.list_all(ObjectKind::Pods).filter(|pod| !is_finished(pod)) {
            nodes.reserve(text(pod, "/spec/nodeName"), &predicates::requests(pod));
        }
        nodes
    }

    fn reserve(&mut self, node: &str, amounts: &Amounts) {
        let Some(resources) = self.0.get_mut(node) else { return };
        for (resource, amount) in amounts {
            *resources.free.entry(resource.clone()).or_default() -= amount;
        }
    }

    /// Chooses a node for a pod and reserves its requests there, or returns why no node fits.
    fn assign(&mut self, cache: &Cache, pod: &Value) -> Result<String, String> {
        let requested = predicates::requests(pod);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting = Vec::new();
        let mut would_fit_empty = false;
        let unbound_claim = unbound_claim(cache, pod);
        for candidate in self.0.values() {
            let is_injected = PodFailure::of(pod) == Some(PodFailure::Unschedulable);
            let reason = is_injected
                .then(|| "node(s) refused the pod because of an injected failure".to_owned())
                .or_else(|| unbound_claim.clone())
                .or_else(|| predicates::mismatch(candidate.node, pod));
            would_fit_empty |=
                reason.is_none() && predicates::insufficient(&candidate.allocatable, &requested).is_none();
            match reason.or_else(|| predicates::insufficient(&candidate.free, &requested)) {
                None => fitting.push(candidate),
                Some(reason) => *reasons.entry(reason).or_default() += 1,
            }
        }
        let best = fitting.into_iter().min_by_key(|candidate| candidate.used());
        let Some(best) = best.map(|candidate| name(candidate.node).to_owned()) else {
            return Err(unschedulable_message(self.0.len(), &reasons, would_fit_empty));
        };
        self.reserve(&best, &requested);
        Ok(best)
    }
}

impl NodeResources<'_> {
    /// Returns the used share of its scarcest resource in thousandths, and the number of its pods.
    fn used(&self) -> (i128, i128) {
        let used_of = |resource: &str| {
            let (all, free) = (self.allocatable.get(resource)?, self.free.get(resource)?);
            Some((*all - *free, *all))
        };
        let share = |resource| {
            let (used, all) = used_of(resource).filter(|(_, all)| *all > 0)?;
            Some(used * 1000 / all)
        };
        let share = share("cpu").max(share("memory")).unwrap_or_default();
        (share, used_of("pods").map_or(0, |(used, _)| used))
    }
}

/// Returns why a claim of the pod is not bound, if one is not.
fn unbound_claim(cache: &Cache, pod: &Value) -> Option<String> {
    let claims = list(pod, "/spec/volumes").iter();
    let names =
        claims.map(|volume| text(volume, "/persistentVolumeClaim/claimName")).filter(|name| !name.is_empty());
    for claim in names {
        match cache.get(ObjectKind::PersistentVolumeClaims, namespace(pod), claim) {
            None => return Some(format!("persistentvolumeclaim {claim:?} not found")),
            Some(claim) if text(claim, "/status/phase") != "Bound" => {
                return Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            Some(_) => {}
        }
    }
    None
}

/// Returns the message that kube-scheduler would report.
fn unschedulable_message(nodes: usize, reasons: &BTreeMap<String, usize>, would_fit_empty: bool) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let listed: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let preemption = match would_fit_empty {
        true => "No preemption victims found for incoming pod.",
        false => "Preemption is not helpful for scheduling.",
    };
    format!(
        "0/{nodes} nodes are available: {}. no new claims to deallocate, preemption: 0/{nodes} nodes are available: {nodes} {preemption}",
        listed.join(", ")
    )
}
