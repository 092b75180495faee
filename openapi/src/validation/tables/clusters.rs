//! Validation of nodes, namespaces, classes, leases and other kinds about the cluster itself.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::metadata::{UNQUALIFIED_FINALIZER, is_qualified_finalizer};
use crate::validation::resources;
use crate::validation::rule::FieldRule::{AtLeast, Labels, OneOf, Text};
use crate::validation::rule::Rule::{Check, Field, Into};
use crate::validation::rule::{REQUIRED, Table};
use crate::validation::value::{at as path_in, entries, get, int, items, text, truth};
use api::meta::field::ErrorType;
use api::meta::go;
use api::meta::names::{dns1123_label, qualified_name};
use api::meta::net;

pub(super) const RULES: Table = &[
    ("core.v1.Node", &[Check(node)]),
    ("core.v1.NamespaceSpec", &[Check(namespace_finalizers)]),
    (
        "scheduling.v1.PriorityClass",
        &[Check(priority), Field("preemptionPolicy", &[OneOf(&["PreemptLowerPriority", "Never"])])],
    ),
    (
        "node.v1.RuntimeClass",
        &[Field("handler", &[REQUIRED, Text(dns1123_label)]), Into("overhead"), Into("scheduling")],
    ),
    ("node.v1.Overhead", &[Check(overhead)]),
    ("node.v1.Scheduling", &[Field("nodeSelector", &[Labels]), Into("tolerations")]),
    (
        "coordination.v1.LeaseSpec",
        &[
            Field("leaseDurationSeconds", &[AtLeast(1, "must be greater than 0")]),
            Field("leaseTransitions", &[AtLeast(0, "must be greater than or equal to 0")]),
        ],
    ),
];

fn node(node: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let spec = get(node, "spec");
    crate::validation::tables::pods::scheduling::taints(
        items(spec, "taints"),
        &at.field("metadata.taints"),
        found,
    );
    node_amounts(node, found);
    let (ranges, at) = (items(spec, "podCIDRs"), at.field("spec.podCIDRs"));
    for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
        found.faults(&at.index(index), range, net::cidr(range));
    }
    let sixes = ranges.iter().filter_map(Value::as_str).filter(|range| range.contains(':')).count();
    if ranges.len() > 2 || (ranges.len() == 2 && sixes != 1) {
        found.invalid(&at, ranges.to_vec(), "may specify no more than one CIDR for each IP family");
    }
}

/// Checks the capacity and the allocatable resources of a node.
fn node_amounts(node: &Value, found: &mut FieldErrors) {
    let at = FieldPath::TOP.field("status");
    for field in ["capacity", "allocatable"] {
        for (name, value) in entries(get(node, "status"), field) {
            resources::amount(name, value, &at.field(field).field(name), found);
        }
    }
}

/// Validates a node status as a kubelet reports it.
pub(crate) fn validate_node_status(_old: &Value, new: &Value, found: &mut FieldErrors) {
    node_amounts(new, found);
    let (status, at) = (get(new, "status"), FieldPath::TOP.field("status"));
    features(items(status, "declaredFeatures"), &at.field("declaredFeatures"), found);
    let (addresses, at) = (items(status, "addresses"), at.field("addresses"));
    let mut seen = HashSet::new();
    for (index, address) in addresses.iter().enumerate() {
        let (kind, address) = (text(address, "type"), text(address, "address"));
        if !seen.insert((kind, address)) {
            let formatted = format!("{{\"Type\":{},\"Address\":{}}}", go::quote(kind), go::quote(address));
            found.error_with_text(&at.index(index), ErrorType::Duplicate, &formatted, "");
        }
    }
}

const MAX_FEATURE_CHARS: usize = 253;

/// Checks that the names of features are sorted and unique.
fn features(features: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let names: Vec<&str> = features.iter().filter_map(Value::as_str).collect();
    for (index, name) in names.iter().enumerate() {
        if name.len() > MAX_FEATURE_CHARS {
            let detail =
                format!("invalid feature name {name:?}: must be no more than {MAX_FEATURE_CHARS} characters");
            found.invalid(&at.index(index), *name, detail);
        } else if !is_feature(name) {
            let detail = format!(
                "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric \
                 characters and slashes"
            );
            found.invalid(&at.index(index), *name, detail);
        }
        match names.get(index + 1) {
            Some(next) if next == name => found.duplicate(&at.index(index + 1), *next),
            Some(next) if next < name => {
                found.invalid(&at.index(index + 1), *next, "list must be sorted alphabetically");
            }
            _ => {}
        }
    }
}

fn is_feature(name: &str) -> bool {
    let is_word =
        |segment: &str| !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_alphanumeric());
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(is_word)
}

/// Checks that the phase of a namespace agrees with its deletion timestamp.
pub(crate) fn validate_namespace_status(_old: &Value, new: &Value, found: &mut FieldErrors) {
    let (at, phase) = (FieldPath::TOP.field("status.Phase"), text(get(new, "status"), "phase"));
    match (path_in(new, "metadata.deletionTimestamp").is_null(), phase) {
        (true, "Active") | (false, "Terminating") => {}
        (true, _) => found.invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty"),
        (false, _) => {
            found.invalid(&at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
        }
    }
}

/// Checks the finalizers of a namespace.
pub(crate) fn validate_finalize(_old: &Value, new: &Value, found: &mut FieldErrors) {
    let at = FieldPath::TOP.field("spec.finalizers");
    let names = items(get(new, "spec"), "finalizers");
    for (index, name) in names.iter().filter_map(Value::as_str).enumerate() {
        finalizer_name(name, &at.index(index), found);
    }
}

/// Checks that pod CIDRs and the provider ID of a node are set only once.
pub(crate) fn validate_update_node(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (old, new, at) = (get(old, "spec"), get(new, "spec"), FieldPath::TOP.field("spec"));
    let (olds, news) = (items(old, "podCIDRs"), items(new, "podCIDRs"));
    let changed = match olds.len() == news.len() {
        true => olds.iter().zip(news).filter(|(old, new)| old != new).count(),
        false if olds.is_empty() => 0,
        false => 1,
    };
    for _ in 0..changed {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        found.forbidden(&at.field("podCIDRs"), detail);
    }
    let id = text(old, "providerID");
    if !id.is_empty() && id != text(new, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        found.forbidden(&at.field("providerID"), detail);
    }
}

fn namespace_finalizers(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let at = at.field("finalizers");
    for name in items(spec, "finalizers").iter().filter_map(Value::as_str) {
        finalizer_name(name, &at, found);
    }
}

fn finalizer_name(name: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    found.faults(at, name, qualified_name(name));
    if !is_qualified_finalizer(name) {
        found.invalid(at, name, UNQUALIFIED_FINALIZER);
    }
}

const HIGHEST_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority(class: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let name = path_in(class, "metadata.name").as_str().unwrap_or_default();
    let value = int(class, "value");
    if !name.starts_with("system-") {
        if value > HIGHEST_PRIORITY {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
            found.forbidden(&at.field("value"), detail);
        }
        return;
    }
    let fault = match SYSTEM_CLASSES.iter().find(|(class, _)| *class == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, class)) if *class != value => format!("value of {name} PriorityClass must be {class}"),
        Some(_) if truth(class, "globalDefault") => {
            format!("globalDefault of {name} PriorityClass must be false")
        }
        Some(_) => return,
    };
    let detail = format!(
        "priority class names with 'system-' prefix are reserved for system use only. error: {fault}"
    );
    found.forbidden(&at.field("metadata.name"), detail);
}

fn overhead(overhead: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let limits = json!({ "limits": get(overhead, "podFixed") });
    resources::container_requirements(&limits, at, found);
}
