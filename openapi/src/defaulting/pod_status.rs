//! Fields of new pods: phase, QoS class, and selectors that use the pod's own labels.

use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, is_non_empty, items, items_mut, made, text};
use super::resources::{self, Amounts};
use api::meta::quantity::Quantity;

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn pod(pod: &mut Fields, now: &str) {
    let Some(spec) = inner(pod, &["spec"]) else { return };
    // A client may set the QoS class, as in Kubernetes.
    let recorded = inner(pod, &["status"]).map_or("", |status| text(status, "qosClass"));
    let pod_qos_class = if recorded.is_empty() { pod_qos_class(spec) } else { recorded };
    let mut status = json!({ "phase": "Pending", "qosClass": pod_qos_class });
    if is_non_empty(spec, "schedulingGates") {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastTransitionTime": now, "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod.insert("status".to_owned(), status);
    default_affinity_labels(pod);
    app_armor(pod);
}

// --- Quality of service ---

/// Returns the QoS class. Guaranteed: every container has limits of CPU and memory, and the sums of requests and limits
/// are equal. BestEffort: there are neither requests nor limits. Resources of the whole pod take precedence over those
/// of its containers.
pub(super) fn pod_qos_class(spec: &Fields) -> &'static str {
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut all_limited = true;
    let mut count = |of: &Fields| {
        resources::add(&mut requests, &counted(of, "requests"));
        let limited = counted(of, "limits");
        all_limited &= limited.len() == 2;
        resources::add(&mut limits, &limited);
    };
    if spec.get("resources").is_some_and(Value::is_object) {
        count(spec);
    } else {
        items(spec, "containers").for_each(&mut count);
        items(spec, "initContainers").for_each(&mut count);
    }
    match (requests.is_empty() && limits.is_empty(), all_limited && requests == limits) {
        (true, _) => "BestEffort",
        (_, true) => "Guaranteed",
        _ => "Burstable",
    }
}

fn counted(of: &Fields, list: &str) -> Amounts {
    let mut amounts = resources::amounts(of, list);
    amounts.retain(|name, amount| matches!(name.as_str(), "cpu" | "memory") && *amount > Quantity::ZERO);
    amounts
}

// --- Selectors with the pod's own label values ---

/// Adds the pod's own values for the `matchLabelKeys` of spread constraints and affinity terms to their selectors.
fn default_affinity_labels(pod: &mut Fields) {
    let labels = inner(pod, &["metadata", "labels"]).cloned().unwrap_or_default();
    let Some(spec) = inner_mut(pod, &["spec"]) else { return };
    for constraint in items_mut(spec, "topologySpreadConstraints") {
        name_values(constraint, &labels);
    }
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = inner_mut(spec, &["affinity", affinity]) else { continue };
        for term in items_mut(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = inner_mut(term, &["podAffinityTerm"]) {
                name_values(term, &labels);
            }
        }
        for term in items_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            name_values(term, &labels);
        }
    }
}

fn name_values(term: &mut Fields, labels: &Fields) {
    let mut requirements = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term.get(keys).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let present = keys.filter_map(|key| Some((key, labels.get(key)?)));
        requirements.extend(
            present.map(|(key, value)| json!({ "key": key, "operator": operator, "values": [value] })),
        );
    }
    let Some(selector) = inner_mut(term, &["labelSelector"]).filter(|_| !requirements.is_empty()) else {
        return;
    };
    let expressions = selector.entry("matchExpressions").or_insert(Value::Null);
    match expressions {
        Value::Array(expressions) => expressions.extend(requirements),
        expressions => *expressions = requirements.into(),
    }
}

// --- AppArmor ---

/// Copies AppArmor profiles from their old annotations to the field that replaced them, where it is not set.
fn app_armor(pod: &mut Fields) {
    let annotations = inner(pod, &["metadata", "annotations"]).cloned().unwrap_or_default();
    let Some(spec) = inner_mut(pod, &["spec"]) else { return };
    if inner(spec, &["os"]).is_some_and(|os| text(os, "name") == "windows") {
        return;
    }
    let of_pod =
        inner(spec, &["securityContext"]).and_then(|context| context.get("appArmorProfile")).cloned();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items_mut(spec, list) {
            let annotation = text(&annotations, &format!("{APP_ARMOR}{}", text(container, "name")));
            let Some(profile) = profile(annotation).filter(|profile| Some(profile) != of_pod.as_ref()) else {
                continue;
            };
            if let Some(context) = made(container, "securityContext") {
                context.entry("appArmorProfile").or_insert(profile);
            }
        }
    }
}

fn profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({ "type": "Unconfined" })),
        "runtime/default" => Some(json!({ "type": "RuntimeDefault" })),
        local => {
            let name =
                local.strip_prefix("localhost/").filter(|name| !name.is_empty() && name.trim() == *name)?;
            Some(json!({ "type": "Localhost", "localhostProfile": name }))
        }
    }
}
