//! Validation of Endpoints and EndpointSlices.

use serde_json::Value;

use crate::validation::common;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Code, MaxItems, OneOf, Text};
use crate::validation::rule::Rule::{Check, Field, Into, Skip};
use crate::validation::rule::{PROTOCOLS, REQUIRED, Table};
use crate::validation::value::{int, items, text};
use api::meta::names::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use api::meta::net;

pub(super) const RULES: Table = &[
    ("core.v1.EndpointSubset", &[Check(subset)]),
    (
        "core.v1.EndpointAddress",
        &[
            Check(address),
            Field("hostname", &[Text(dns1123_label)]),
            Field("nodeName", &[Text(dns1123_subdomain)]),
        ],
    ),
    (
        "core.v1.EndpointPort",
        &[
            Field("name", &[Text(dns1123_label)]),
            Check(port_number),
            Field("protocol", &[REQUIRED, PROTOCOLS]),
            Field("appProtocol", &[Text(qualified_name)]),
        ],
    ),
    (
        "discovery.v1.EndpointSlice",
        &[
            Field("addressType", &[REQUIRED, OneOf(&["FQDN", "IPv4", "IPv6"])]),
            Field("ports", &[MaxItems(20000), Code(port_names)]),
            Into("ports"),
            Field("endpoints", &[MaxItems(1000)]),
            Check(endpoints),
            Into("endpoints"),
        ],
    ),
    (
        "discovery.v1.EndpointPort",
        &[
            Field("name", &[Text(dns1123_label)]),
            Field("protocol", &[REQUIRED, PROTOCOLS]),
            Field("appProtocol", &[Text(qualified_name)]),
        ],
    ),
    (
        "discovery.v1.Endpoint",
        &[
            Field("nodeName", &[Text(dns1123_subdomain)]),
            Field("hostname", &[Text(dns1123_label)]),
            Skip("hints"),
            Field("hints", &[Code(hints)]),
        ],
    ),
];

fn subset(subset: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if items(subset, "addresses").is_empty() && items(subset, "notReadyAddresses").is_empty() {
        found.required(at, "must specify `addresses` or `notReadyAddresses`");
    }
    let ports = items(subset, "ports");
    for (index, port) in ports.iter().enumerate().filter(|_| ports.len() > 1) {
        if text(port, "name").is_empty() {
            found.required(&at.field("ports").index(index).field("name"), "");
        }
    }
}

/// Validates an address. As in Kubernetes, an unparsable one is reported twice.
fn address(address: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (ip, at) = (text(address, "ip"), at.field("ip"));
    found.faults(&at, ip, net::ip(ip));
    common::endpoint_ip(ip, &at, found);
}

fn port_number(port: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    common::between(&int(port, "port").into(), 1, 65535, &at.field("port"), found);
}

fn port_names(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let ports = value.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, port) in ports.iter().enumerate() {
        let name = text(port, "name");
        if ports[..index].iter().any(|other| text(other, "name") == name) {
            found.duplicate(&at.index(index).field("name"), name);
        }
    }
}

const MAX_ADDRESSES: usize = 100;

fn endpoints(slice: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let kind = text(slice, "addressType");
    for (index, endpoint) in items(slice, "endpoints").iter().enumerate() {
        let list = at.field("endpoints");
        let item = list.index(index);
        let (addresses, at) = (items(endpoint, "addresses"), item.field("addresses"));
        if addresses.is_empty() {
            found.required(&at, "must contain at least 1 address");
        } else if addresses.len() > MAX_ADDRESSES {
            found.too_many(&at, addresses.len(), MAX_ADDRESSES);
        }
        for (index, text) in addresses.iter().filter_map(Value::as_str).enumerate() {
            slice_address(kind, text, &at, index, found);
        }
    }
}

fn slice_address(kind: &str, text: &str, list: &FieldPath<'_>, index: usize, found: &mut FieldErrors) {
    let at = list.index(index);
    let faults = match kind {
        "IPv4" => net::ip(text),
        "IPv6" => net::strict_ip(text),
        "FQDN" => return domain(text, &at, found),
        _ => return,
    };
    if !faults.is_empty() {
        return found.faults(&at, text, faults);
    }
    if (kind == "IPv6") != net::is_v6(text) {
        found.invalid(list, text, format!("must be an {kind} address"));
    }
    common::endpoint_ip(text, &at, found);
}

fn domain(name: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let name = name.strip_suffix('.').unwrap_or(name);
    let faults = dns1123_subdomain(name);
    if !faults.is_empty() {
        found.invalid(at, name, faults.join(","));
    } else if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        found.invalid(at, name, detail);
    } else if let Some(label) = name.split('.').find(|label| !dns1123_label(label).is_empty()) {
        found.invalid(at, label, dns1123_label(label).join(","));
    }
}

const MAX_HINTS: usize = 8;

fn hints(hints: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    type TextRule = fn(&str) -> Vec<String>;
    let lists: [(&str, TextRule); 2] = [("forZones", label_value), ("forNodes", dns1123_subdomain)];
    for (field, rule) in lists {
        let (entries, list) = (items(hints, field), at.field(field));
        if entries.len() > MAX_HINTS {
            return found.too_many(&list, entries.len(), MAX_HINTS);
        }
        for (index, entry) in entries.iter().enumerate() {
            let item = list.index(index);
            let name = text(entry, "name");
            if entries[..index].iter().any(|other| text(other, "name") == name) {
                found.duplicate(&item.field("name"), name);
            }
            found.faults(&item.field("name"), name, rule(name));
        }
    }
}
