//! Removes the fields that the server or a controller of the logical cluster set: the physical cluster sets its own.

use serde_json::Value;

/// The metadata that is propagated.
const METADATA: &[&str] = &["name", "namespace", "labels", "annotations"];

/// Prefixes of annotations that are not propagated.
const ANNOTATIONS: &[&str] = &[
    "holon.dev/",
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "batch.kubernetes.io/job-tracking",
    "kubernetes.io/service-account.",
];

/// Prefixes of labels that are not propagated. The admins of the physical cluster set the Pod Security level of its
/// namespaces.
const LABELS: &[&str] = &["holon.dev/", "kubernetes.io/metadata.name", "pod-security.kubernetes.io/"];

/// Whether a label is not propagated.
pub(crate) fn is_not_propagated(label: &str) -> bool {
    LABELS.iter().any(|start| label.starts_with(start))
}

struct ServerField {
    group: &'static str,
    kind: &'static str,
    /// `*` is every item of a list.
    path: &'static [&'static str],
    /// The field is kept if this holds.
    unless: Option<fn(&Value) -> bool>,
}

const fn field(group: &'static str, kind: &'static str, path: &'static [&'static str]) -> ServerField {
    ServerField { group, kind, path, unless: None }
}

const fn service(path: &'static [&'static str]) -> ServerField {
    ServerField { group: "", kind: "Service", path, unless: Some(is_headless) }
}

const fn job(path: &'static [&'static str]) -> ServerField {
    ServerField { group: "batch", kind: "Job", path, unless: Some(has_manual_selector) }
}

fn is_headless(service: &Value) -> bool {
    service.pointer("/spec/clusterIP").is_some_and(|address| address == "None")
}

fn has_manual_selector(job: &Value) -> bool {
    job.pointer("/spec/manualSelector").is_some_and(|by_hand| by_hand == true)
}

/// The physical cluster would refuse these fields, or its controllers own them.
const FIELDS: &[ServerField] = &[
    field("", "Namespace", &["spec"]),
    field("", "ServiceAccount", &["secrets"]),
    field("", "Pod", &["spec", "nodeName"]),
    service(&["spec", "clusterIPs"]),
    service(&["spec", "ipFamilies"]),
    service(&["spec", "ipFamilyPolicy"]),
    service(&["spec", "clusterIP"]),
    field("", "Service", &["spec", "healthCheckNodePort"]),
    job(&["spec", "selector"]),
    job(&["spec", "template", "metadata", "labels", "controller-uid"]),
    job(&["spec", "template", "metadata", "labels", "job-name"]),
    job(&["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"]),
    job(&["spec", "template", "metadata", "labels", "batch.kubernetes.io/job-name"]),
    // A Job that is deleted by its TTL on the physical cluster would be created, and run, again.
    field("batch", "Job", &["spec", "ttlSecondsAfterFinished"]),
];

/// The prefix of the token volumes that a server adds to pods.
const TOKEN_VOLUME: &str = "kube-api-access-";

pub(super) fn strip_server_fields(object: &mut Value) {
    let (group, kind) = super::group_kind(object);
    let (group, kind) = (group.to_owned(), kind.to_owned());
    let applies = |field: &&ServerField| {
        let is_kept = field.unless.is_some_and(|unless| unless(object));
        field.group == group && field.kind == kind && !is_kept
    };
    let fields: Vec<&ServerField> = FIELDS.iter().filter(applies).collect();
    for field in fields {
        remove(object, field.path);
    }
    if group.is_empty() && kind == "Service" {
        strip_allocated_node_ports(object);
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    // Finalizers are removed too: their controllers run in the logical cluster, and would never remove them downstream.
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|name, _| METADATA.contains(&name.as_str()));
        retain(metadata.get_mut("annotations"), ANNOTATIONS);
        retain(metadata.get_mut("labels"), LABELS);
    }
    if group.is_empty() && kind == "Pod" {
        strip_token(&mut object["spec"]);
    }
}

fn retain(table: Option<&mut Value>, without: &[&str]) {
    if let Some(Value::Object(table)) = table {
        table.retain(|name, _| !without.iter().any(|prefix| name.starts_with(prefix)));
    }
}

/// Removes the node ports that the server allocated. Those that the user set have a field manager, and stay.
fn strip_allocated_node_ports(service: &mut Value) {
    let entries = service["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owned: Vec<(i64, String)> = entries
        .filter_map(|entry| entry.pointer("/fieldsV1/f:spec/f:ports")?.as_object())
        .flatten()
        .filter(|(_, fields)| fields.get("f:nodePort").is_some())
        .filter_map(|(key, _)| port_key(&serde_json::from_str(key.strip_prefix("k:")?).ok()?))
        .collect();
    at_each(service, &["spec", "ports", "*"], &mut |port| {
        let is_owned = port_key(port).is_some_and(|key| owned.contains(&key));
        if let (false, Value::Object(fields)) = (is_owned, port) {
            fields.remove("nodePort");
        }
    });
}

/// The merge key of a Service port.
fn port_key(port: &Value) -> Option<(i64, String)> {
    Some((port["port"].as_i64()?, port["protocol"].as_str().unwrap_or("TCP").to_owned()))
}

fn strip_token(spec: &mut Value) {
    let is_token = |item: &Value| item["name"].as_str().is_some_and(|name| name.starts_with(TOKEN_VOLUME));
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.retain(|volume| !is_token(volume));
    }
    for list in ["containers", "initContainers"] {
        at_each(spec, &[list, "*", "volumeMounts"], &mut |mounts| {
            if let Value::Array(mounts) = mounts {
                mounts.retain(|mount| !is_token(mount));
            }
        });
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    let Some((last, before)) = path.split_last() else { return };
    at_each(value, before, &mut |parent| {
        if let Value::Object(fields) = parent {
            fields.remove(*last);
        }
    });
}

/// Visits every existing value at a path.
pub(crate) fn at_each(value: &mut Value, path: &[&str], visit: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else { return visit(value) };
    match (value, *first) {
        (Value::Array(items), "*") => items.iter_mut().for_each(|item| at_each(item, rest, visit)),
        (Value::Object(fields), name) => {
            if let Some(inner) = fields.get_mut(name) {
                at_each(inner, rest, visit);
            }
        }
        _ => {}
    }
}
