//! Validation of Ingresses, IngressClasses and NetworkPolicies.

use serde_json::Value;

use crate::validation::common;
use crate::validation::common::{domain_prefixed_path, host, port_name};
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Code, Each, MaxBytes, OneOf, Selector, Text};
use crate::validation::rule::Rule::{Check, Field, Into};
use crate::validation::rule::{REQUIRED, Table};
use crate::validation::value::{at as path_in, get, has, int, items, text};
use api::meta::names::{dns1123_label, dns1123_subdomain, path_segment};
use api::meta::net;

pub(super) const RULES: Table = &[
    (
        "networking.v1.IngressSpec",
        &[
            Check(somewhere),
            Into("defaultBackend"),
            Into("rules"),
            Into("tls"),
            Field("ingressClassName", &[Text(dns1123_subdomain)]),
        ],
    ),
    ("networking.v1.IngressRule", &[Check(rule_host)]),
    ("networking.v1.HTTPIngressRuleValue", &[Field("paths", &[REQUIRED])]),
    ("networking.v1.HTTPIngressPath", &[Check(http_path)]),
    ("networking.v1.IngressBackend", &[Check(backend)]),
    (
        "networking.v1.IngressTLS",
        &[Field("hosts", &[Each(&[Text(host)])]), Field("secretName", &[Text(dns1123_subdomain)])],
    ),
    ("networking.v1.IngressClassSpec", &[Field("controller", &[MaxBytes(250)]), Check(controller)]),
    (
        "networking.v1.IngressClassParametersReference",
        &[
            Field("apiGroup", &[Text(dns1123_subdomain)]),
            Field("kind", &[REQUIRED, Text(path_segment)]),
            Field("name", &[REQUIRED, Text(path_segment)]),
            Field("scope", &[REQUIRED, OneOf(&["Cluster", "Namespace"])]),
            Check(parameters_namespace),
        ],
    ),
    (
        "networking.v1.NetworkPolicySpec",
        &[Field("podSelector", &[Selector]), Into("ingress"), Into("egress"), Check(policy_types)],
    ),
    (
        "networking.v1.NetworkPolicyPort",
        &[Field("protocol", &[OneOf(&["TCP", "UDP", "SCTP"])]), Check(policy_port)],
    ),
    (
        "networking.v1.NetworkPolicyPeer",
        &[
            Field("podSelector", &[Selector]),
            Field("namespaceSelector", &[Selector]),
            Into("ipBlock"),
            Check(peer),
        ],
    ),
    ("networking.v1.IPBlock", &[Field("cidr", &[REQUIRED]), Check(ip_block)]),
    ("networking.v1.IPAddressSpec", &[Field("parentRef", &[REQUIRED])]),
    (
        "networking.v1.ParentReference",
        &[
            Field("group", &[Text(dns1123_subdomain)]),
            Field("resource", &[REQUIRED, Text(path_segment)]),
            Field("name", &[REQUIRED, Text(path_segment)]),
            Field("namespace", &[Text(path_segment)]),
        ],
    ),
    ("networking.v1.ServiceCIDRSpec", &[Field("cidrs", &[Code(cidrs)])]),
];

fn somewhere(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if items(spec, "rules").is_empty() && !has(spec, "defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        found.invalid(at, get(spec, "rules").clone(), detail);
    }
}

fn rule_host(rule: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (name, at) = (text(rule, "host"), at.field("host"));
    if name.is_empty() {
        return;
    }
    if net::is_ip(name) {
        found.invalid(&at, name, "must be a DNS name, not an IP address");
    }
    found.faults(&at, name, host(name));
}

const NOT_IN_PATHS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const NOT_AT_THE_END: [&str; 2] = ["/..", "/."];

fn http_path(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (path, path_at) = (text(value, "path"), at.field("path"));
    let absolute = "must be an absolute path";
    match get(value, "pathType").as_str() {
        None => found.required(&at.field("pathType"), "pathType must be specified"),
        Some("Exact" | "Prefix") => {
            if !path.starts_with('/') {
                found.invalid(&path_at, path, absolute);
            }
            for forbidden in NOT_IN_PATHS.into_iter().filter(|forbidden| path.contains(forbidden)) {
                found.invalid(&path_at, path, format!("must not contain '{forbidden}'"));
            }
            for end in NOT_AT_THE_END.into_iter().filter(|end| path.ends_with(end)) {
                found.invalid(&path_at, path, format!("cannot end with '{end}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !path.is_empty() && !path.starts_with('/') {
                found.invalid(&path_at, path, absolute);
            }
        }
        Some(other) => {
            let types = ["Exact", "ImplementationSpecific", "Prefix"];
            found.not_supported(&at.field("pathType"), other, &types);
        }
    }
}

fn backend(backend: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (service, resource) = (get(backend, "service"), get(backend, "resource"));
    match (service.is_null(), resource.is_null()) {
        (false, false) => found.invalid(at, "", "cannot set both resource and service backends"),
        (true, true) => found.invalid(at, "", "resource or service backend is required"),
        (true, false) => {
            let at = at.field("resource");
            if let Some(group) = get(resource, "apiGroup").as_str() {
                found.faults(&at.field("apiGroup"), group, dns1123_subdomain(group));
            }
            for field in ["kind", "name"] {
                match text(resource, field) {
                    "" => found.required(&at.field(field), ""),
                    name => found.faults(&at.field(field), name, path_segment(name)),
                }
            }
        }
        (false, true) => backend_service(service, at, found),
    }
}

fn backend_service(service: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    match text(service, "name") {
        "" => found.required(&at.field("service.name"), ""),
        name => found.faults(&at.field("service.name"), name, dns1123_label(name)),
    }
    let port = get(service, "port");
    match (text(port, "name"), int(port, "number")) {
        ("", 0) => found.required(at, "port name or number is required"),
        ("", number) => common::between(&number.into(), 1, 65535, &at.field("service.port.number"), found),
        (name, 0) => found.faults(&at.field("service.port.name"), name, port_name(name)),
        _ => found.invalid(at, "", "cannot set both port name & port number"),
    }
}

fn controller(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    match text(spec, "controller") {
        "" => found.required(&at.field("controller"), ""),
        name => domain_prefixed_path(name, &at.field("controller"), found),
    }
}

fn parameters_namespace(reference: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (namespace, at) = (get(reference, "namespace"), at.field("namespace"));
    match (text(reference, "scope"), namespace.as_str()) {
        ("Namespace", None) => found.required(&at, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", Some(name)) => found.faults(&at, name, dns1123_label(name)),
        ("Cluster", Some(_)) => found.forbidden(&at, "`parameters.scope` is set to 'Cluster'"),
        _ => {}
    }
}

fn policy_types(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (types, at) = (items(spec, "policyTypes"), at.field("policyTypes"));
    if types.len() > 2 {
        return found.invalid(&at, types.to_vec(), "may not specify more than two policyTypes");
    }
    for (index, kind) in types.iter().filter_map(Value::as_str).enumerate() {
        if !["Ingress", "Egress"].contains(&kind) {
            found.not_supported(&at.index(index), kind, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (port, end) = (get(value, "port"), get(value, "endPort"));
    let end_at = at.field("endPort");
    match (port.as_i64(), port.as_str()) {
        (Some(first), _) => {
            common::between(port, 1, 65535, &at.field("port"), found);
            if let Some(last) = end.as_i64() {
                if last < first {
                    found.invalid(&end_at, first, "must be greater than or equal to `port`");
                }
                common::between(end, 1, 65535, &end_at, found);
            }
        }
        (_, Some(name)) => {
            if !end.is_null() {
                found.invalid(&end_at, end.clone(), "may not be specified when `port` is non-numeric");
            }
            found.faults(&at.field("port"), name, port_name(name));
        }
        _ if !end.is_null() => {
            found.invalid(&end_at, end.clone(), "may not be specified when `port` is not specified");
        }
        _ => {}
    }
}

fn peer(peer: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let selectors = ["podSelector", "namespaceSelector"].iter().filter(|field| has(peer, field)).count();
    match (selectors, has(peer, "ipBlock")) {
        (0, false) => found.required(at, "must specify a peer"),
        (1.., true) => found.forbidden(at, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn ip_block(block: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let range = text(block, "cidr");
    if range.is_empty() {
        return;
    }
    let faults = net::cidr(range);
    if !faults.is_empty() {
        // The exceptions from an invalid CIDR are not validated.
        return found.faults(&at.field("cidr"), range, faults);
    }
    for (index, except) in items(block, "except").iter().filter_map(Value::as_str).enumerate() {
        let list = at.field("except");
        found.faults(&list.index(index), except, net::cidr(except));
        if net::is_strict_subset(except, range) == Some(false) {
            found.invalid(&list.index(index), except, "must be a strict subset of `cidr`");
        }
    }
}

fn cidrs(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, range) in value.as_array().into_iter().flatten().filter_map(Value::as_str).enumerate() {
        found.faults(&at.index(index), range, net::cidr(range));
    }
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Validates the addresses of an Ingress. Invalid addresses of the old object may stay.
pub(crate) fn validate_ingress_status(old: &Value, new: &Value, found: &mut FieldErrors) {
    let points = |object| items(path_in(object, "status.loadBalancer"), "ingress");
    reachable(points(old), points(new), found);
}

/// Validates addresses and host names of a load balancer.
pub(super) fn reachable(old: &[Value], new: &[Value], found: &mut FieldErrors) {
    let at = FieldPath::TOP.field("status.loadBalancer.ingress");
    for (index, point) in new.iter().enumerate() {
        let (at, ip, name) = (at.index(index), text(point, "ip"), text(point, "hostname"));
        if !ip.is_empty() && !old.iter().any(|old_ip| text(old_ip, "ip") == ip) {
            found.faults(&at.field("ip"), ip, net::ip(ip));
        }
        if !name.is_empty() {
            found.faults(&at.field("hostname"), name, dns1123_subdomain(name));
            if net::is_ip(name) {
                found.invalid(&at.field("hostname"), name, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// Checks that the class annotation and `ingressClassName` agree.
pub(crate) fn validate_create_ingress(ingress: &Value, found: &mut FieldErrors) {
    let annotation = get(path_in(ingress, "metadata.annotations"), CLASS_ANNOTATION).as_str();
    let class = path_in(ingress, "spec.ingressClassName").as_str();
    if let (Some(annotation), Some(class)) = (annotation, class)
        && annotation != class
    {
        let list = FieldPath::TOP.field("annotations");
        let detail = "must match `ingressClassName` when both are specified";
        found.invalid(&list.field(CLASS_ANNOTATION), annotation, detail);
    }
}
