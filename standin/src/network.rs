//! Services and Ingresses: which pods answer for them, and under which address.

use serde_json::{Value, json};

use crate::control::pods::is_finished;
use crate::kind::Kind;
use crate::node::pod_status::address;
use crate::object::{
    fields, flag, is_being_deleted, is_true, label, list, name, namespace, reference, text, uid,
};
use crate::plan::Plan;
use crate::world::World;

const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Addresses for tests of networks; nothing real answers there.
const BALANCERS: (u8, u8) = (198, 18);

pub(crate) fn step(world: &World, space: &str, plan: &mut Plan) {
    for service in world.all(Kind::Services, space).filter(|service| !is_being_deleted(service)) {
        if fields(service, "/spec/selector").next().is_some() {
            endpoints(world, service, plan);
        }
        if text(service, "/spec/type") == "LoadBalancer" {
            balance(Kind::Services, service, plan);
        }
    }
    for ingress in world.all(Kind::Ingresses, space).filter(|ingress| !is_being_deleted(ingress)) {
        balance(Kind::Ingresses, ingress, plan);
    }
}

/// Gives an address to what wants one from outside.
fn balance(kind: Kind, object: &Value, plan: &mut Plan) {
    if list(object, "/status/loadBalancer/ingress").is_empty() {
        let mut status = object["status"].clone();
        let mut ingress = json!({ "ip": address(BALANCERS.0, BALANCERS.1, uid(object)) });
        if kind == Kind::Services {
            ingress["ipMode"] = "VIP".into();
        }
        status["loadBalancer"] = json!({ "ingress": [ingress] });
        plan.status(kind, object, status);
    }
}

/// One EndpointSlice with the pods a Service selects.
fn endpoints(world: &World, service: &Value, plan: &mut Plan) {
    let space = namespace(service);
    let is_chosen = |pod: &&Value| {
        let by_label =
            fields(service, "/spec/selector").all(|(key, value)| label(pod, key) == value.as_str());
        by_label && !is_finished(pod) && !text(pod, "/status/podIP").is_empty()
    };
    let pods: Vec<&Value> = world.all(Kind::Pods, space).filter(is_chosen).collect();
    let unready_too = flag(service, "/spec/publishNotReadyAddresses");
    let endpoint = |pod: &&Value| {
        let (serving, leaving) = (is_true(pod, "Ready"), is_being_deleted(pod));
        json!({
            "addresses": [pod["status"]["podIP"]],
            "conditions": {
                "ready": (serving || unready_too) && !leaving, "serving": serving || unready_too, "terminating": leaving,
            },
            "nodeName": pod["spec"]["nodeName"],
            "targetRef": { "kind": "Pod", "name": name(pod), "namespace": space, "uid": uid(pod) },
        })
    };
    let endpoints: Vec<Value> = pods.iter().map(endpoint).collect();
    let ports = ports(service, pods.first().copied());
    let slices = world.owned(Kind::Slices, service);
    let slice = slices.iter().find(|slice| label(slice, MANAGED_BY) == Some(MANAGER));
    let Some(slice) = slice else {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": format!("{}-", name(service)), "namespace": space,
                "labels": { SERVICE: name(service), MANAGED_BY: MANAGER },
                "ownerReferences": [reference(Kind::Services, service)],
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        });
        return plan.create_silently(Kind::Slices, slice);
    };
    let mut changed = (*slice).clone();
    changed["endpoints"] = endpoints.into();
    changed["ports"] = ports;
    plan.update(Kind::Slices, slice, changed);
}

/// The ports of a Service, by their numbers at a pod.
fn ports(service: &Value, pod: Option<&Value>) -> Value {
    let number = |port: &Value| match &port["targetPort"] {
        Value::String(wanted) => {
            let containers = pod.map_or(&[][..], |pod| list(pod, "/spec/containers"));
            let mut all = containers.iter().flat_map(|container| list(container, "/ports"));
            all.find(|port| port["name"] == wanted.as_str()).map(|port| port["containerPort"].clone())
        }
        Value::Null => Some(port["port"].clone()),
        number => Some(number.clone()),
    };
    let one = |port: &Value| {
        let mut one =
            json!({ "name": text(port, "/name"), "port": number(port)?, "protocol": port["protocol"] });
        if !port["appProtocol"].is_null() {
            one["appProtocol"] = port["appProtocol"].clone();
        }
        Some(one)
    };
    list(service, "/spec/ports").iter().filter_map(one).collect()
}
