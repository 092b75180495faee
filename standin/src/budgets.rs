//! PodDisruptionBudgets: how many pods may be evicted now. Whoever evicts asks the API server, which asks this status.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::control::deployments::resolved;
use crate::control::pods::is_finished;
use crate::kind::Kind;
use crate::object::{
    condition, controller, fields, generation, is_being_deleted, is_true, list, moment, name, namespace,
    number, selects, text, time,
};
use crate::plan::Plan;
use crate::world::World;

/// A pod that was to be evicted and is still there after so long is not leaving.
const EVICTION: std::time::Duration = std::time::Duration::from_secs(120);

pub(crate) fn step(world: &World, space: &str, now: Timestamp, plan: &mut Plan) {
    for budget in world.all(Kind::Budgets, space).filter(|budget| !is_being_deleted(budget)) {
        let status = status(world, budget, now, plan);
        plan.status(Kind::Budgets, budget, status);
    }
}

fn status(world: &World, budget: &Value, now: Timestamp, plan: &mut Plan) -> Value {
    let selector = &budget["spec"]["selector"];
    // Here, unlike elsewhere, a selector that says nothing takes all.
    let takes_all = selector.is_object()
        && fields(selector, "/matchLabels").next().is_none()
        && list(selector, "/matchExpressions").is_empty();
    let is_meant = |pod: &&Value| !is_finished(pod) && (takes_all || selects(selector, pod));
    let pods: Vec<&Value> = world.all(Kind::Pods, namespace(budget)).filter(is_meant).collect();
    let leaving = leaving(budget, &pods, now, plan);
    let is_healthy =
        |pod: &&&Value| is_true(pod, "Ready") && !is_being_deleted(pod) && !leaving.contains_key(name(pod));
    let healthy = pods.iter().filter(is_healthy).count() as i64;
    let expected = expected(world, &pods);
    let (least, expected) = match (&budget["spec"]["maxUnavailable"], &budget["spec"]["minAvailable"]) {
        (Value::Null, Value::Number(least)) => (least.as_i64().unwrap_or_default(), pods.len() as i64),
        (Value::Null, least) => (resolved(least, expected, true), expected),
        (most, _) => ((expected - resolved(most, expected, true)).max(0), expected),
    };
    let allowed = if expected > 0 { (healthy - least).max(0) } else { 0 };
    let (word, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    let old = condition(budget, "DisruptionAllowed").filter(|old| old["status"] == word);
    json!({
        "observedGeneration": generation(budget), "currentHealthy": healthy, "desiredHealthy": least,
        "expectedPods": expected, "disruptionsAllowed": allowed, "disruptedPods": leaving,
        "conditions": [{
            "type": "DisruptionAllowed", "status": word, "reason": reason, "message": "",
            "observedGeneration": generation(budget),
            "lastTransitionTime": old.map_or_else(|| time(now), |old| old["lastTransitionTime"].clone()),
        }],
    })
}

/// Pods whose eviction was granted and not seen yet.
fn leaving(budget: &Value, pods: &[&Value], now: Timestamp, plan: &mut Plan) -> Map<String, Value> {
    let mut kept = Map::new();
    for (pod, granted) in fields(budget, "/status/disruptedPods") {
        let is_there = pods.iter().any(|there| name(there) == pod && !is_being_deleted(there));
        let until = moment(granted, "").map(|granted| crate::clock::later(granted, EVICTION));
        if let Some(until) = until.filter(|until| is_there && *until > now) {
            plan.wake(until);
            kept.insert(pod.clone(), granted.clone());
        }
    }
    kept
}

/// How many pods there should be: the sum over what controls them.
fn expected(world: &World, pods: &[&Value]) -> i64 {
    let mut owners: Vec<(Kind, &str)> = Vec::new();
    for owner in pods.iter().filter_map(|pod| controller(pod)) {
        let kind = match text(owner, "/kind") {
            "ReplicaSet" => Kind::ReplicaSets,
            "ReplicationController" => Kind::ReplicationControllers,
            "StatefulSet" => Kind::StatefulSets,
            _ => continue,
        };
        if !owners.contains(&(kind, text(owner, "/name"))) {
            owners.push((kind, text(owner, "/name")));
        }
    }
    let Some(space) = pods.first().map(|pod| namespace(pod)) else { return 0 };
    let size = |(kind, owner): &(Kind, &str)| {
        let owner = world.get(*kind, space, owner)?;
        // While a Deployment changes over it is the Deployment that says how many.
        let above =
            controller(owner).and_then(|above| world.get(Kind::Deployments, space, text(above, "/name")));
        Some((above.map_or(name(owner), name), number(above.unwrap_or(owner), "/spec/replicas").unwrap_or(1)))
    };
    let mut sizes: Vec<(&str, i64)> = owners.iter().filter_map(size).collect();
    sizes.sort();
    sizes.dedup();
    sizes.into_iter().map(|(_, size)| size).sum()
}
