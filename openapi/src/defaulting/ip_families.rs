//! The addresses of a Service: what follows from what it says, and what it keeps when it changes.
//!
//! Addresses and ports are allocated elsewhere. Here is what can be said without: that the one address and the list of
//! addresses agree, which families they are of, and what an update that does not mention them means. A cluster has one
//! family, IPv4; only a Service without address and selector may name the other as well, since none is assigned.

use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, is_filled, items, items_mut, number, text};

/// Puts in order what a new Service says of its addresses, or a changed one beside the old.
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
    if !address.is_empty() && !is_filled(spec, "clusterIPs") {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
}

/// What was allocated stays where the client does not mention it and the type still has use for it.
fn keep_allocated(spec: &mut Fields, old: &Fields) {
    if has_address(old) && has_address(spec) {
        if text(spec, "clusterIP").is_empty() {
            copy(old, spec, "clusterIP");
        }
        if !is_filled(spec, "clusterIPs") {
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

/// By the names of ports, and unless another port has it now.
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

/// A client that changes only the one address, or takes it away, means the list as well.
fn follow_the_address(spec: &mut Fields, old: &Fields) {
    let (before, after) = (text(old, "clusterIP"), text(spec, "clusterIP").to_owned());
    if before == after {
        if !is_filled(spec, "clusterIPs") {
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
    let selects_nothing = text(spec, "clusterIP") == "None" && !is_filled(spec, "selector");
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

/// What a Service of another type no longer needs goes, unless the client changed it too: then it is for validation to
/// say that this cannot be.
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
    has_node_ports(spec) || text(spec, "type") == "ClusterIP" && is_filled(spec, "externalIPs")
}

fn same(spec: &Fields, old: &Fields, field: &str) -> bool {
    spec.get(field) == old.get(field)
}

fn copy(from: &Fields, to: &mut Fields, field: &str) {
    if let Some(value) = from.get(field) {
        to.insert(field.to_owned(), value.clone());
    }
}
