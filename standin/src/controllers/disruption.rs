//! PodDisruptionBudgets: writes into their status how many pods may be evicted, which the eviction subresource reads.

use api::meta::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cache::Cache;
use crate::clock::later;
use crate::objects::fields::{
    condition, controller_reference, fields, generation, is_being_deleted, is_true, label, name, namespace,
    number, resolve_int_or_percent, text, time, timestamp,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::is_finished;
use crate::plan::Plan;

/// A pod that still exists this long after its eviction was granted no longer counts as disrupted.
const EVICTION_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

pub(crate) fn reconcile(cache: &Cache, ns: &str, now: Timestamp, plan: &mut Plan) {
    for budget in cache.list(ObjectKind::PodDisruptionBudgets, ns).filter(|budget| !is_being_deleted(budget))
    {
        let status = status(cache, budget, now, plan);
        plan.status(ObjectKind::PodDisruptionBudgets, budget, status);
    }
}

fn status(cache: &Cache, budget: &Value, now: Timestamp, plan: &mut Plan) -> Value {
    // Unlike the selector of a workload, an empty one matches all pods.
    let selector = LabelSelector::from_value(&budget["spec"]["selector"]);
    let is_selected = |pod: &&Value| {
        let matches = |selector: &LabelSelector| selector.matches(|key| label(pod, key));
        !is_finished(pod) && selector.as_ref().is_some_and(matches)
    };
    let pods: Vec<&Value> = cache.list(ObjectKind::Pods, namespace(budget)).filter(is_selected).collect();
    let disrupted = disrupted_pods(budget, &pods, now, plan);
    let is_healthy =
        |pod: &&&Value| is_true(pod, "Ready") && !is_being_deleted(pod) && !disrupted.contains_key(name(pod));
    let healthy = pods.iter().filter(is_healthy).count() as i64;
    let expected = expected_pods(cache, &pods);
    let (desired, expected) = match (&budget["spec"]["maxUnavailable"], &budget["spec"]["minAvailable"]) {
        (Value::Null, Value::Number(min)) => (min.as_i64().unwrap_or_default(), pods.len() as i64),
        (Value::Null, min) => (resolve_int_or_percent(min, expected, true), expected),
        (max, _) => ((expected - resolve_int_or_percent(max, expected, true)).max(0), expected),
    };
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let (condition_status, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    let old = condition(budget, "DisruptionAllowed").filter(|old| old["status"] == condition_status);
    json!({
        "observedGeneration": generation(budget), "currentHealthy": healthy, "desiredHealthy": desired,
        "expectedPods": expected, "disruptionsAllowed": allowed, "disruptedPods": disrupted,
        "conditions": [{
            "type": "DisruptionAllowed", "status": condition_status, "reason": reason, "message": "",
            "observedGeneration": generation(budget),
            "lastTransitionTime": old.map_or_else(|| time(now), |old| old["lastTransitionTime"].clone()),
        }],
    })
}

/// Returns the pods whose eviction was granted and whose deletion is not observed yet.
fn disrupted_pods(budget: &Value, pods: &[&Value], now: Timestamp, plan: &mut Plan) -> Map<String, Value> {
    let mut disrupted = Map::new();
    for (pod, granted) in fields(budget, "/status/disruptedPods") {
        let is_running = pods.iter().any(|found| name(found) == pod && !is_being_deleted(found));
        let until = timestamp(granted, "").map(|granted| later(granted, EVICTION_TIMEOUT));
        if let Some(until) = until.filter(|until| is_running && *until > now) {
            plan.requeue_at(until);
            disrupted.insert(pod.clone(), granted.clone());
        }
    }
    disrupted
}

/// Returns the desired number of pods: the sum over their controllers.
fn expected_pods(cache: &Cache, pods: &[&Value]) -> i64 {
    let mut owners: Vec<(ObjectKind, &str)> = Vec::new();
    for owner in pods.iter().filter_map(|pod| controller_reference(pod)) {
        let kind = match text(owner, "/kind") {
            "ReplicaSet" => ObjectKind::ReplicaSets,
            "ReplicationController" => ObjectKind::ReplicationControllers,
            "StatefulSet" => ObjectKind::StatefulSets,
            _ => continue,
        };
        if !owners.contains(&(kind, text(owner, "/name"))) {
            owners.push((kind, text(owner, "/name")));
        }
    }
    let Some(ns) = pods.first().map(|pod| namespace(pod)) else { return 0 };
    let size = |(kind, owner): &(ObjectKind, &str)| {
        let owner = cache.get(*kind, ns, owner)?;
        // During a rollout only the Deployment has the desired number.
        let deployment = controller_reference(owner)
            .and_then(|owner| cache.get(ObjectKind::Deployments, ns, text(owner, "/name")));
        Some((
            deployment.map_or(name(owner), name),
            number(deployment.unwrap_or(owner), "/spec/replicas").unwrap_or(1),
        ))
    };
    let mut sizes: Vec<(&str, i64)> = owners.iter().filter_map(size).collect();
    sizes.sort();
    sizes.dedup();
    sizes.into_iter().map(|(_, size)| size).sum()
}
