//! Defaults of a Service's addresses and address families.
//!
//! Addresses and ports are allocated elsewhere. Here are the defaults that need no allocation: `clusterIP` and
//! `clusterIPs` agree, the families are set, and an update that omits allocated fields keeps them. A cluster has one
//! family, IPv4. Only a Service without address and selector may have IPv6 too, because no address is allocated for it.

use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, is_non_empty, items, items_mut, number, text};

/// Defaults the addresses of a new Service, or of an updated one with respect to the old one.
pub(super) fn default_ip_families(service: &mut Fields, old: Option<&Fields>) {
    let old = old.and_then(|old| inner(old, &["spec"]));
    let Some(spec) = inner_mut(service, &["spec"]) else { return };
    match old {
        None => one_address_is_a_list_of_one(spec),
        Some(old) => {
            keep_allocated(spec, old);
            follow_the_address(spec, old);
        }
    }
    if text(spec, "type") != "ExternalName" {
        families(spec, old);
    }
}

fn one_address_is_a_list_of_one(spec: &mut Fields) {
    let address = text(spec, "clusterIP").to_owned();
    if !address.is_empty() && !is_non_empty(spec, "clusterIPs") {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
}

/// Keeps allocated fields that the client omitted and the type still needs.
fn keep_allocated(spec: &mut Fields, old: &Fields) {
    if has_address(old) && has_address(spec) {
        if text(spec, "clusterIP").is_empty() {
            copy(old, spec, "clusterIP");
        }
        if !is_non_empty(spec, "clusterIPs") {
            copy(old, spec, "clusterIPs");
        }
    }
    if has_node_ports(old) && has_node_ports(spec) {
        keep_node_ports(spec, old);
    }
    if has_health_port(old) && has_health_port(spec) && number(spec, "healthCheckNodePort") == 0 {
        copy(old, spec, "healthCheckNodePort");
    }
}

/// Keeps node ports by the names of their ports, unless another port now has the number.
fn keep_node_ports(spec: &mut Fields, old: &Fields) {
    let taken = node_ports(spec);
    for port in items_mut(spec, "ports").filter(|port| number(port, "nodePort") == 0) {
        let before = items(old, "ports").filter(|old| text(old, "name") == text(port, "name")).last();
        let number = before.map_or(0, |before| number(before, "nodePort"));
        if number != 0 && !taken.contains(&number) {
            port.insert("nodePort".to_owned(), number.into());
        }
    }
}

fn node_ports(spec: &Fields) -> Vec<i64> {
    items(spec, "ports").map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

/// Updates `clusterIPs` if the client changed or removed only `clusterIP`.
fn follow_the_address(spec: &mut Fields, old: &Fields) {
    let (before, after) = (text(old, "clusterIP"), text(spec, "clusterIP").to_owned());
    if before == after {
        if !is_non_empty(spec, "clusterIPs") {
            copy(old, spec, "clusterIPs");
        }
    } else if same(spec, old, "clusterIPs") {
        match after.as_str() {
            "" => spec.remove("clusterIPs"),
            address => spec.insert("clusterIPs".to_owned(), json!([address])),
        };
    }
}

fn families(spec: &mut Fields, old: Option<&Fields>) {
    let selects_nothing = text(spec, "clusterIP") == "None" && !is_non_empty(spec, "selector");
    if text(spec, "ipFamilyPolicy").is_empty() {
        let before = old.map_or("", |old| text(old, "ipFamilyPolicy"));
        let policy = match before {
            "" if selects_nothing => "RequireDualStack",
            "" => "SingleStack",
            before => before,
        };
        spec.insert("ipFamilyPolicy".to_owned(), policy.into());
    }
    let single = text(spec, "ipFamilyPolicy") == "SingleStack";
    if let Some(old) = old.filter(|_| single) {
        for list in ["clusterIPs", "ipFamilies"] {
            if same(spec, old, list)
                && let Some(Value::Array(items)) = spec.get_mut(list)
            {
                items.truncate(1);
            }
        }
    }
    let mut families: Vec<Value> =
        spec.get("ipFamilies").and_then(Value::as_array).cloned().unwrap_or_default();
    let addresses =
        spec.get("clusterIPs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for address in addresses.take_while(|address| *address != "None").skip(families.len()) {
        families.push(if address.contains(':') { "IPv6" } else { "IPv4" }.into());
    }
    if families.is_empty() {
        families.push("IPv4".into());
    }
    if selects_nothing && !single && families.len() == 1 {
        families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.into());
    }
    spec.insert("ipFamilies".to_owned(), families.into());
}

/// Removes fields that the new type of a Service does not need. A field that the client changed too stays: validation
/// rejects it.
pub(super) fn drop_unneeded(service: &mut Fields, old: &Fields) {
    let Some(old) = inner(old, &["spec"]) else { return };
    let Some(spec) = inner_mut(service, &["spec"]) else { return };
    if has_address(old) && !has_address(spec) {
        if text(spec, "clusterIP") == text(old, "clusterIP") && same(spec, old, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        remove_unchanged(spec, old, &["ipFamilies", "ipFamilyPolicy"]);
    }
    let before = node_ports(old);
    if has_node_ports(old)
        && !has_node_ports(spec)
        && node_ports(spec).iter().all(|port| before.contains(port))
    {
        items_mut(spec, "ports").for_each(|port| {
            port.remove("nodePort");
        });
    }
    if has_health_port(old) && !has_health_port(spec) {
        remove_unchanged(spec, old, &["healthCheckNodePort"]);
    }
    let balanced = |spec: &Fields| text(spec, "type") == "LoadBalancer";
    if balanced(old) && !balanced(spec) {
        remove_unchanged(spec, old, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_reachable(old) && !is_reachable(spec) {
        remove_unchanged(spec, old, &["externalTrafficPolicy"]);
    }
    if !balanced(spec)
        && let Some(status) = inner_mut(service, &["status"])
    {
        status.insert("loadBalancer".to_owned(), Value::Object(Fields::new()));
    }
}

fn remove_unchanged(spec: &mut Fields, old: &Fields, fields: &[&str]) {
    for field in fields {
        if same(spec, old, field) {
            spec.remove(*field);
        }
    }
}

fn has_address(spec: &Fields) -> bool {
    text(spec, "type") != "ExternalName"
}

fn has_node_ports(spec: &Fields) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn has_health_port(spec: &Fields) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_reachable(spec: &Fields) -> bool {
    has_node_ports(spec) || text(spec, "type") == "ClusterIP" && is_non_empty(spec, "externalIPs")
}

fn same(spec: &Fields, old: &Fields, field: &str) -> bool {
    spec.get(field) == old.get(field)
}

fn copy(from: &Fields, to: &mut Fields, field: &str) {
    if let Some(value) = from.get(field) {
        to.insert(field.to_owned(), value.clone());
    }
}
