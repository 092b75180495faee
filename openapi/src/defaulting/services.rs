//! Defaults of Services that `defaults.txt` cannot express.

use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, is_non_empty, items_mut, number, text};

/// Seconds; three hours.
const AFFINITY_TIMEOUT: u32 = 10_800;

/// Sets the timeout of session affinity; without session affinity, removes its configuration.
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

/// Sets the external traffic policy of a ClusterIP Service with external IPs, which is reachable from outside.
pub(super) fn external_policy(spec: &mut Fields) {
    let reachable = text(spec, "type") == "ClusterIP" && is_non_empty(spec, "externalIPs");
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

/// Sets the IP mode of load balancer addresses. The default is VIP: packets keep the load balancer's address up to the
/// node.
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
