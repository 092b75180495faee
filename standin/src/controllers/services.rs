//! Services and Ingresses: maintains their EndpointSlices and load balancer addresses.

use serde_json::{Value, json};

use crate::cache::Cache;
use crate::node::pod_status::address;
use crate::objects::fields::{
    fields, flag, is_being_deleted, is_true, label, list, name, namespace, owner_reference, text, uid,
};
use crate::objects::kind::ObjectKind;
use crate::objects::pods::is_finished;
use crate::plan::Plan;

const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// 198.18.0.0/15 is reserved for benchmarks, so no real host has such an address.
const LOAD_BALANCER_NETWORK: (u8, u8) = (198, 18);

pub(crate) fn reconcile(cache: &Cache, ns: &str, plan: &mut Plan) {
    for service in cache.list(ObjectKind::Services, ns).filter(|service| !is_being_deleted(service)) {
        if fields(service, "/spec/selector").next().is_some() {
            sync_endpoint_slice(cache, service, plan);
        }
        if text(service, "/spec/type") == "LoadBalancer" {
            assign_address(ObjectKind::Services, service, plan);
        }
    }
    for ingress in cache.list(ObjectKind::Ingresses, ns).filter(|ingress| !is_being_deleted(ingress)) {
        assign_address(ObjectKind::Ingresses, ingress, plan);
    }
}

/// Assigns a load balancer address.
fn assign_address(kind: ObjectKind, object: &Value, plan: &mut Plan) {
    if list(object, "/status/loadBalancer/ingress").is_empty() {
        let mut status = object["status"].clone();
        let mut ingress =
            json!({ "ip": address(LOAD_BALANCER_NETWORK.0, LOAD_BALANCER_NETWORK.1, uid(object)) });
        if kind == ObjectKind::Services {
            ingress["ipMode"] = "VIP".into();
        }
        status["loadBalancer"] = json!({ "ingress": [ingress] });
        plan.status(kind, object, status);
    }
}

/// Maintains one EndpointSlice with the pods that a Service selects.
fn sync_endpoint_slice(cache: &Cache, service: &Value, plan: &mut Plan) {
    let ns = namespace(service);
    let is_endpoint = |pod: &&Value| {
        let by_label =
            fields(service, "/spec/selector").all(|(key, value)| label(pod, key) == value.as_str());
        by_label && !is_finished(pod) && !text(pod, "/status/podIP").is_empty()
    };
    let pods: Vec<&Value> = cache.list(ObjectKind::Pods, ns).filter(is_endpoint).collect();
    let publishes_not_ready = flag(service, "/spec/publishNotReadyAddresses");
    let endpoint = |pod: &&Value| {
        let (serving, terminating) = (is_true(pod, "Ready"), is_being_deleted(pod));
        json!({
            "addresses": [pod["status"]["podIP"]],
            "conditions": {
                "ready": (serving || publishes_not_ready) && !terminating, "serving": serving || publishes_not_ready, "terminating": terminating,
            },
            "nodeName": pod["spec"]["nodeName"],
            "targetRef": { "kind": "Pod", "name": name(pod), "namespace": ns, "uid": uid(pod) },
        })
    };
    let endpoints: Vec<Value> = pods.iter().map(endpoint).collect();
    let ports = ports(service, pods.first().copied());
    let slices = cache.controlled_by(ObjectKind::EndpointSlices, service);
    let slice = slices.iter().find(|slice| label(slice, MANAGED_BY) == Some(MANAGER));
    let Some(slice) = slice else {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": format!("{}-", name(service)), "namespace": ns,
                "labels": { SERVICE: name(service), MANAGED_BY: MANAGER },
                "ownerReferences": [owner_reference(ObjectKind::Services, service)],
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        });
        return plan.create_without_event(ObjectKind::EndpointSlices, slice);
    };
    let mut changed = (*slice).clone();
    changed["endpoints"] = endpoints.into();
    changed["ports"] = ports;
    plan.update(ObjectKind::EndpointSlices, slice, changed);
}

/// Returns the ports of a Service, with the target port resolved to a number.
fn ports(service: &Value, pod: Option<&Value>) -> Value {
    let number = |port: &Value| match &port["targetPort"] {
        Value::String(target) => {
            let containers = pod.map_or(&[][..], |pod| list(pod, "/spec/containers"));
            let mut all = containers.iter().flat_map(|container| list(container, "/ports"));
            all.find(|port| port["name"] == target.as_str()).map(|port| port["containerPort"].clone())
        }
        Value::Null => Some(port["port"].clone()),
        number => Some(number.clone()),
    };
    let endpoint_port = |port: &Value| {
        let mut endpoint_port =
            json!({ "name": text(port, "/name"), "port": number(port)?, "protocol": port["protocol"] });
        if !port["appProtocol"].is_null() {
            endpoint_port["appProtocol"] = port["appProtocol"].clone();
        }
        Some(endpoint_port)
    };
    list(service, "/spec/ports").iter().filter_map(endpoint_port).collect()
}
