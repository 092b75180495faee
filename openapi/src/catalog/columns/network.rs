//! Columns of Services, endpoints, Ingresses and network policies.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::CellSource::*;
use super::{Columns, few};
use crate::catalog::printer::{items, text};

pub(super) const COLUMNS: &[Columns] = &[
    (
        "services",
        &[
            ("Type", Text("/spec/type", "")),
            ("Cluster-IP", Text("/spec/clusterIPs/0", "<none>")),
            ("External-IP", Made(external_ip)),
            ("Port(s)", Made(service_ports)),
            ("Selector", Labels("/spec/selector")),
        ],
    ),
    ("endpoints", &[("Endpoints", Made(endpoints))]),
    (
        "endpointslices.discovery.k8s.io",
        &[
            ("AddressType", Text("/addressType", "")),
            ("Ports", Made(slice_ports)),
            ("Endpoints", Made(slice_endpoints)),
        ],
    ),
    (
        "ingresses.networking.k8s.io",
        &[
            ("Class", Text("/spec/ingressClassName", "<none>")),
            ("Hosts", Made(ingress_hosts)),
            ("Address", Made(|ingress, _| balanced(ingress).into())),
            ("Ports", Made(ingress_ports)),
        ],
    ),
    (
        "ingressclasses.networking.k8s.io",
        &[
            ("Name", Made(class_name)),
            ("Controller", Text("/spec/controller", "")),
            ("Parameters", Made(class_parameters)),
        ],
    ),
    ("networkpolicies.networking.k8s.io", &[("Pod-Selector", Selector("/spec/podSelector"))]),
    ("servicecidrs.networking.k8s.io", &[("CIDRs", Join("/spec/cidrs", ""))]),
    ("ipaddresses.networking.k8s.io", &[("ParentRef", Made(address_parent))]),
];

fn external_ip(service: &Value, _: Timestamp) -> Value {
    let mut addresses: Vec<String> =
        items(service, "/spec/externalIPs").filter_map(Value::as_str).map(str::to_owned).collect();
    match service["spec"]["type"].as_str() {
        Some("ExternalName") => text(service, "/spec/externalName").into(),
        Some("LoadBalancer") => {
            let balanced = balanced(service);
            if !balanced.is_empty() {
                addresses.insert(0, balanced);
            }
            joined(&addresses, "<pending>")
        }
        Some("ClusterIP" | "NodePort") => joined(&addresses, "<none>"),
        _ => json!("<unknown>"),
    }
}

fn joined(texts: &[String], nothing: &str) -> Value {
    match texts.is_empty() {
        true => nothing.into(),
        false => texts.join(",").into(),
    }
}

/// Returns the addresses of a load balancer's status.
fn balanced(object: &Value) -> String {
    let addresses: BTreeSet<String> = items(object, "/status/loadBalancer/ingress")
        .map(|point| match text(point, "/ip") {
            ip if ip.is_empty() => text(point, "/hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn service_ports(service: &Value, _: Timestamp) -> Value {
    let ports = items(service, "/spec/ports").map(|port| match port["nodePort"].as_i64() {
        Some(node_port) if node_port > 0 => {
            format!("{}:{node_port}/{}", text(port, "/port"), text(port, "/protocol"))
        }
        _ => format!("{}/{}", text(port, "/port"), text(port, "/protocol")),
    });
    joined(&ports.collect::<Vec<_>>(), "<none>")
}

fn endpoints(endpoints: &Value, _: Timestamp) -> Value {
    let mut all = Vec::new();
    for subset in items(endpoints, "/subsets") {
        let addresses: Vec<String> =
            items(subset, "/addresses").map(|address| text(address, "/ip")).collect();
        if items(subset, "/ports").next().is_none() {
            all.extend(addresses.iter().cloned());
        }
        for port in items(subset, "/ports") {
            all.extend(addresses.iter().map(|address| host_and_port(address, &text(port, "/port"))));
        }
    }
    let nothing = if items(endpoints, "/subsets").next().is_none() { "<none>" } else { "" };
    few(&all, nothing).into()
}

fn host_and_port(host: &str, port: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn slice_ports(slice: &Value, _: Timestamp) -> Value {
    let ports = items(slice, "/ports").map(|port| match (text(port, "/port"), &port["name"]) {
        (number, _) if !number.is_empty() => number,
        (_, Value::String(name)) => name.clone(),
        _ => "*".to_owned(),
    });
    few(&ports.collect::<Vec<_>>(), "<unset>").into()
}

fn slice_endpoints(slice: &Value, _: Timestamp) -> Value {
    let addresses = items(slice, "/endpoints").flat_map(|endpoint| items(endpoint, "/addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    few(&addresses, "<unset>").into()
}

fn ingress_hosts(ingress: &Value, _: Timestamp) -> Value {
    let hosts = items(ingress, "/spec/rules").map(|rule| text(rule, "/host")).filter(|host| !host.is_empty());
    few(&hosts.collect::<Vec<_>>(), "*").into()
}

fn ingress_ports(ingress: &Value, _: Timestamp) -> Value {
    match items(ingress, "/spec/tls").next() {
        Some(_) => json!("80, 443"),
        None => json!("80"),
    }
}

fn class_name(class: &Value, _: Timestamp) -> Value {
    let is_default =
        class["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"] == "true";
    format!("{}{}", text(class, "/metadata/name"), if is_default { " (default)" } else { "" }).into()
}

fn class_parameters(class: &Value, _: Timestamp) -> Value {
    let parameters = &class["spec"]["parameters"];
    if parameters.is_null() {
        return json!("<none>");
    }
    let group = match text(parameters, "/apiGroup") {
        group if group.is_empty() => group,
        group => format!(".{group}"),
    };
    format!("{}{group}/{}", text(parameters, "/kind"), text(parameters, "/name")).into()
}

fn address_parent(address: &Value, _: Timestamp) -> Value {
    let parent = &address["spec"]["parentRef"];
    if parent.is_null() {
        return json!("<none>");
    }
    let group = match text(parent, "/group") {
        group if group.is_empty() => group,
        group => format!(".{group}"),
    };
    let namespace = match text(parent, "/namespace") {
        namespace if namespace.is_empty() => namespace,
        namespace => format!("/{namespace}"),
    };
    let resource = format!("{}{group}", text(parent, "/resource")).to_lowercase();
    format!("{resource}{namespace}/{}", text(parent, "/name")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_shows_its_addresses_and_ports() {
        let check = |service: Value, expected: [&str; 2]| {
            let cells = [
                external_ip(&service, Timestamp::UNIX_EPOCH),
                service_ports(&service, Timestamp::UNIX_EPOCH),
            ];
            assert_eq!(cells, expected.map(Value::from), "{service}");
        };
        check(json!({ "spec": { "type": "ClusterIP" } }), ["<none>", "<none>"]);
        check(
            json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080, "protocol": "TCP" },
                { "port": 53, "protocol": "UDP" }] } }),
            ["<none>", "80:30080/TCP,53/UDP"],
        );
        check(json!({ "spec": { "type": "LoadBalancer" } }), ["<pending>", "<none>"]);
        check(
            json!({ "spec": { "type": "LoadBalancer", "externalIPs": ["9.9.9.9"] },
                "status": { "loadBalancer": { "ingress": [{ "ip": "2.2.2.2" }, { "hostname": "lb" }] } } }),
            ["2.2.2.2,lb,9.9.9.9", "<none>"],
        );
        check(
            json!({ "spec": { "type": "ExternalName", "externalName": "else.where" } }),
            ["else.where", "<none>"],
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let addresses: Vec<Value> = (1..6).map(|n| json!({ "ip": format!("10.0.0.{n}") })).collect();
        let object = json!({ "subsets": [{ "addresses": addresses, "ports": [{ "port": 80 }] }] });
        let cells = endpoints(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(cells, "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...");
        assert_eq!(endpoints(&json!({}), Timestamp::UNIX_EPOCH), "<none>");
    }
}
