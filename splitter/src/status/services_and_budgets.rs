//! Load balancers of Services and Ingresses, and disruption budgets.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Report, UserObject, conditions};

/// The addresses of all targets, each once, sorted.
pub(super) fn load_balancer(_: &UserObject, reports: &[&Report], status: &mut Value) {
    let ingress = |report: &&Report| report.status?.pointer("/loadBalancer/ingress")?.as_array().cloned();
    let mut seen = BTreeSet::new();
    let mut all: Vec<Value> = reports.iter().filter_map(ingress).flatten().collect();
    all.retain(|address| seen.insert(address.to_string()));
    all.sort_by_key(Value::to_string);
    status["loadBalancer"] = if all.is_empty() { json!({}) } else { json!({ "ingress": all }) };
}

/// Allowed disruptions depend on all targets: one may have spare pods that another one lacks.
pub(super) fn budget(user_object: &UserObject, reports: &[&Report], status: &mut Value) {
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let spare = (number("currentHealthy") - number("desiredHealthy")).max(0);
    let granted: i64 = reports.iter().map(|report| report.number("disruptionsAllowed")).sum();
    // Disruptions that targets have granted already are not granted again.
    let allowed = spare.min(granted);
    status["disruptionsAllowed"] = allowed.into();
    let (condition_status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut list = vec![conditions::kept_or_new(
        user_object,
        "DisruptionAllowed",
        condition_status,
        reason,
        String::new(),
    )];
    list.extend(conditions::merged(user_object, reports, &["DisruptionAllowed"]));
    status["conditions"] = Value::Array(list);
}
