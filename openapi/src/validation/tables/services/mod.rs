//! Validation of Services.

mod addresses;

use serde_json::Value;

use crate::validation::common;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Labels, OneOf, Text};
use crate::validation::rule::Rule::{Check, Field, Into};
use crate::validation::rule::{PROTOCOLS, REQUIRED, Table};
use crate::validation::value::{at, get, has, int, items, text};
use api::meta::field::ErrorType;
use api::meta::names::{dns1123_label, dns1123_subdomain, qualified_name};
use api::meta::net;

pub(crate) use addresses::validate_update;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) const RULES: Table = &[
    (
        "core.v1.ServiceSpec",
        &[
            Check(of_type),
            Into("ports"),
            Check(port_names),
            Field("selector", &[Labels]),
            Field("sessionAffinity", &[REQUIRED, OneOf(&["ClientIP", "None"])]),
            Check(affinity),
            Check(addresses::validate),
            Check(external_ips),
            Field("type", &[REQUIRED, OneOf(TYPES)]),
            Check(ports),
            Check(load_balancer),
            Check(traffic),
            Field("trafficDistribution", &[OneOf(&["PreferClose", "PreferSameZone", "PreferSameNode"])]),
        ],
    ),
    (
        "core.v1.ServicePort",
        &[
            Field("name", &[Text(dns1123_label)]),
            Check(port_number),
            Field("protocol", &[REQUIRED, PROTOCOLS]),
            Check(target_port),
            Field("appProtocol", &[Text(qualified_name)]),
        ],
    ),
];

fn port_number(port: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    common::between(&int(port, "port").into(), 1, 65535, &at.field("port"), found);
}

fn target_port(port: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    common::port(get(port, "targetPort"), &at.field("targetPort"), found);
}

pub(super) fn is_headless(spec: &Value) -> bool {
    matches!(items(spec, "clusterIPs"), [only] if only == "None")
}

/// Checks the fields that each type of Service requires or forbids.
fn of_type(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let kind = text(spec, "type");
    if items(spec, "ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        found.required(&at.field("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            found.invalid(&at.field("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            let detail = "may not be set for ExternalName services";
            for field in ["clusterIPs", "ipFamilies"] {
                if !items(spec, field).is_empty() {
                    found.forbidden(&at.field(field), detail);
                }
            }
            if has(spec, "ipFamilyPolicy") {
                found.forbidden(&at.field("ipFamilyPolicy"), detail);
            }
            let name = text(spec, "externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => found.required(&at.field("externalName"), ""),
                name => found.faults(&at.field("externalName"), name, dns1123_subdomain(name)),
            }
        }
        _ => {}
    }
}

/// Checks that every port has a name if there are several.
fn port_names(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let ports = items(spec, "ports");
    for (index, port) in ports.iter().enumerate() {
        let list = at.field("ports");
        let item = list.index(index);
        match text(port, "name") {
            "" if ports.len() > 1 => found.required(&item.field("name"), ""),
            "" => {}
            name if ports[..index].iter().any(|other| text(other, "name") == name) => {
                found.duplicate(&item.field("name"), name);
            }
            _ => {}
        }
    }
}

const MAX_AFFINITY_SECONDS: i64 = 86400;

fn affinity(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (config, at) = (get(spec, "sessionAffinityConfig"), at.field("sessionAffinityConfig"));
    match text(spec, "sessionAffinity") {
        "None" if !config.is_null() => {
            found.forbidden(&at, "must not be set when session affinity is None");
        }
        "ClientIP" => {
            let detail = "when session affinity type is ClientIP";
            let client = get(config, "clientIP");
            let seconds = get(client, "timeoutSeconds");
            if config.is_null() {
                found.required(&at, detail);
            } else if client.is_null() {
                found.required(&at.field("clientIP"), detail);
            } else if seconds.is_null() {
                found.required(&at.field("clientIP.timeoutSeconds"), detail);
            } else if !(1..=MAX_AFFINITY_SECONDS).contains(&seconds.as_i64().unwrap_or_default()) {
                let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                found.invalid(&at.field("clientIP.timeoutSeconds"), seconds.clone(), detail);
            }
        }
        _ => {}
    }
}

fn external_ips(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, ip) in items(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let list = at.field("externalIPs");
        let item = list.index(index);
        let faults = net::ip(ip);
        match faults.is_empty() {
            true => common::endpoint_ip(ip, &item, found),
            false => found.faults(&item, ip, faults),
        }
    }
}

/// Checks that ports and node ports are unique.
fn ports(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (ports, list) = (items(spec, "ports"), at.field("ports"));
    let key = |port: &Value, number| (text(port, "protocol").to_owned(), int(port, number));
    for (index, port) in ports.iter().enumerate() {
        if text(spec, "type") == "ClusterIP" && int(port, "nodePort") != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            found.forbidden(&list.index(index).field("nodePort"), detail);
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let taken = |other: &Value| key(other, "nodePort") == key(port, "nodePort");
        if int(port, "nodePort") != 0 && ports[..index].iter().any(taken) {
            found.duplicate(&list.index(index).field("nodePort"), int(port, "nodePort"));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        if ports[..index].iter().any(|other| key(other, "port") == key(port, "port")) {
            found.error_with_text(&list.index(index), ErrorType::Duplicate, &go_named(port), "");
        }
    }
}

/// Formats a port as Go does, with the fields that were not compared left empty.
fn go_named(port: &Value) -> String {
    let (protocol, number) = (get(port, "protocol"), int(port, "port"));
    format!(
        "{{\"Name\":\"\",\"Protocol\":{protocol},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
    )
}

fn load_balancer(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let is_balanced = text(spec, "type") == "LoadBalancer";
    let only = "may only be used when `type` is 'LoadBalancer'";
    let (ranges, ranges_at) = (items(spec, "loadBalancerSourceRanges"), at.field("LoadBalancerSourceRanges"));
    if !ranges.is_empty() && !is_balanced {
        found.forbidden(&ranges_at, only);
    }
    for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
        found.faults(&ranges_at.index(index), range.trim(), net::cidr(range.trim()));
    }
    if has(spec, "allocateLoadBalancerNodePorts") && !is_balanced {
        found.forbidden(&at.field("allocateLoadBalancerNodePorts"), only);
    }
    if let Some(class) = get(spec, "loadBalancerClass").as_str() {
        match is_balanced {
            true => found.faults(&at.field("loadBalancerClass"), class, qualified_name(class)),
            false => found.forbidden(&at.field("loadBalancerClass"), only),
        }
    }
}

fn traffic(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let kind = text(spec, "type");
    let policies = ["Cluster", "Local"];
    let external = text(spec, "externalTrafficPolicy");
    let external_at = at.field("externalTrafficPolicy");
    let reachable = ["LoadBalancer", "NodePort"].contains(&kind)
        || (kind == "ClusterIP" && !items(spec, "externalIPs").is_empty());
    match external {
        "" if reachable => found.required(&external_at, ""),
        "" => {}
        _ if !reachable => {
            found.invalid(&external_at, external, "may only be set for externally-accessible services");
        }
        _ if policies.contains(&external) => {}
        _ => found.not_supported(&external_at, external, &policies),
    }
    let (port, port_at) = (int(spec, "healthCheckNodePort"), at.field("healthCheckNodePort"));
    match kind == "LoadBalancer" && external == "Local" {
        // Zero means that the server allocates a port.
        true if port != 0 => common::between(&port.into(), 1, 65535, &port_at, found),
        false if port != 0 => {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            found.invalid(&port_at, port, detail);
        }
        _ => {}
    }
    let internal = text(spec, "internalTrafficPolicy");
    if !internal.is_empty() && !policies.contains(&internal) {
        found.not_supported(&at.field("internalTrafficPolicy"), internal, &policies);
    }
}

/// Checks that only a Service of type LoadBalancer has load balancer addresses.
pub(crate) fn validate_status(old: &Value, new: &Value, found: &mut FieldErrors) {
    let points = |service| items(at(service, "status.loadBalancer"), "ingress");
    let path = FieldPath::TOP.field("status.loadBalancer.ingress");
    if !points(new).is_empty() && text(get(new, "spec"), "type") != "LoadBalancer" {
        return found.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    super::network::reachable(points(old), points(new), found);
    for (index, point) in points(new).iter().enumerate() {
        let (item, mode) = (path.index(index), get(point, "ipMode").as_str());
        let at = item.field("ipMode");
        match (text(point, "ip"), mode) {
            ("", None) => {}
            ("", Some(_)) => found.forbidden(&at, "may not be specified when `ip` is not set"),
            (_, None) => found.required(&at, "must be specified when `ip` is set"),
            (_, Some(mode)) if !MODES.contains(&mode) => found.not_supported(&at, mode, MODES),
            _ => {}
        }
    }
}

/// Valid IP modes of load balancer addresses.
const MODES: &[&str] = &["Proxy", "VIP"];
