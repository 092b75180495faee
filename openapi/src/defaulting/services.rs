//! What a Service gets that a table cannot say.

use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, is_filled, items_mut, number, text};

/// Seconds; three hours.
const AFFINITY_TIMEOUT: u32 = 10_800;

/// Without session affinity there is nothing to configure.
pub(super) fn affinity_config(spec: &mut Fields) {
    let path = ["sessionAffinityConfig", "clientIP"];
    let timeout =
        inner(spec, &path).and_then(|by_ip| by_ip.get("timeoutSeconds")).filter(|value| !value.is_null());
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" if timeout.is_none() => {
            let config = json!({ "clientIP": { "timeoutSeconds": AFFINITY_TIMEOUT } });
            spec.insert("sessionAffinityConfig".to_owned(), config);
        }
        _ => {}
    }
}

/// A Service inside the cluster can be reached from outside by external IPs that are routed to it.
pub(super) fn external_policy(spec: &mut Fields) {
    let reachable = text(spec, "type") == "ClusterIP" && is_filled(spec, "externalIPs");
    if reachable && text(spec, "externalTrafficPolicy").is_empty() {
        spec.insert("externalTrafficPolicy".to_owned(), "Cluster".into());
    }
}

pub(super) fn target_port(port: &mut Fields) {
    let target = port.get("targetPort");
    if target.is_none_or(|target| target.is_null() || *target == 0 || *target == "") {
        port.insert("targetPort".to_owned(), number(port, "port").into());
    }
}

/// The address of a load balancer is the one its packets carry, unless it says otherwise.
pub(super) fn balancer_modes(service: &mut Fields) {
    if inner(service, &["spec"]).is_none_or(|spec| text(spec, "type") != "LoadBalancer") {
        return;
    }
    let Some(balancer) = inner_mut(service, &["status", "loadBalancer"]) else { return };
    for ingress in items_mut(balancer, "ingress").filter(|ingress| !text(ingress, "ip").is_empty()) {
        if ingress.get("ipMode").is_none_or(Value::is_null) {
            ingress.insert("ipMode".to_owned(), "VIP".into());
        }
    }
}
