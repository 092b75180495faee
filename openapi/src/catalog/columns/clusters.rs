//! Columns of configuration, storage, nodes, events and other kinds about the cluster itself.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::CellSource::*;
use super::{Columns, condition, is_being_deleted};
use crate::catalog::printer::{items, since, text, time};

pub(super) const COLUMNS: &[Columns] = &[
    ("configmaps", &[("Data", Made(config_entries))]),
    ("secrets", &[("Type", Text("/type", "")), ("Data", Count("/data"))]),
    ("namespaces", &[("Status", Text("/status/phase", ""))]),
    (
        "componentstatuses",
        &[
            ("Status", Made(component_status)),
            ("Message", Text("/conditions/0/message", "")),
            ("Error", Text("/conditions/0/error", "")),
        ],
    ),
    ("events", EVENT),
    ("events.events.k8s.io", EVENT),
    (
        "nodes",
        &[
            ("Status", Made(node_status)),
            ("Roles", Made(node_roles)),
            ("Version", Text("/status/nodeInfo/kubeletVersion", "")),
            ("Internal-IP", Made(|node, _| node_address(node, "InternalIP"))),
            ("External-IP", Made(|node, _| node_address(node, "ExternalIP"))),
            ("OS-Image", Text("/status/nodeInfo/osImage", "<unknown>")),
            ("Kernel-Version", Made(node_kernel)),
            ("Container-Runtime", Text("/status/nodeInfo/containerRuntimeVersion", "<unknown>")),
        ],
    ),
    (
        "persistentvolumes",
        &[
            ("Capacity", Text("/spec/capacity/storage", "0")),
            ("Access Modes", Made(|volume, _| access_modes(volume, "/spec/accessModes"))),
            ("Reclaim Policy", Text("/spec/persistentVolumeReclaimPolicy", "")),
            ("Status", Made(volume_phase)),
            ("Claim", Made(claim)),
            ("StorageClass", Made(storage_class_of)),
            ("VolumeAttributesClass", Text("/spec/volumeAttributesClassName", "<unset>")),
            ("Reason", Text("/status/reason", "")),
            ("VolumeMode", Text("/spec/volumeMode", "<unset>")),
        ],
    ),
    (
        "persistentvolumeclaims",
        &[
            ("Status", Made(volume_phase)),
            ("Volume", Text("/spec/volumeName", "")),
            ("Capacity", Made(claimed_capacity)),
            ("Access Modes", Made(claimed_modes)),
            ("StorageClass", Made(storage_class_of)),
            ("VolumeAttributesClass", Text("/spec/volumeAttributesClassName", "<unset>")),
            ("VolumeMode", Text("/spec/volumeMode", "<unset>")),
        ],
    ),
    (
        "storageclasses.storage.k8s.io",
        &[
            ("Name", Made(storage_class_name)),
            ("Provisioner", Text("/provisioner", "")),
            ("ReclaimPolicy", Text("/reclaimPolicy", "Delete")),
            ("VolumeBindingMode", Text("/volumeBindingMode", "Immediate")),
            ("AllowVolumeExpansion", Truth("/allowVolumeExpansion", false)),
        ],
    ),
    (
        "volumeattachments.storage.k8s.io",
        &[
            ("Attacher", Text("/spec/attacher", "")),
            ("PV", Text("/spec/source/persistentVolumeName", "")),
            ("Node", Text("/spec/nodeName", "")),
            ("Attached", Truth("/status/attached", false)),
        ],
    ),
    ("volumeattributesclasses.storage.k8s.io", &[("DriverName", Text("/driverName", ""))]),
    (
        "csidrivers.storage.k8s.io",
        &[
            ("AttachRequired", Truth("/spec/attachRequired", true)),
            ("PodInfoOnMount", Truth("/spec/podInfoOnMount", false)),
            ("StorageCapacity", Truth("/spec/storageCapacity", false)),
            ("TokenRequests", JoinEach("/spec/tokenRequests", "/audience", "<unset>")),
            ("RequiresRepublish", Truth("/spec/requiresRepublish", false)),
            ("Modes", Join("/spec/volumeLifecycleModes", "<none>")),
        ],
    ),
    ("csinodes.storage.k8s.io", &[("Drivers", Count("/spec/drivers"))]),
    ("leases.coordination.k8s.io", &[("Holder", Text("/spec/holderIdentity", ""))]),
    ("runtimeclasses.node.k8s.io", &[("Handler", Text("/handler", ""))]),
    ("resourceclaims.resource.k8s.io", &[("State", Made(claim_state))]),
    (
        "resourceslices.resource.k8s.io",
        &[
            ("Node", Text("/spec/nodeName", "")),
            ("Driver", Text("/spec/driver", "")),
            ("Pool", Text("/spec/pool/name", "")),
        ],
    ),
    (
        "apiservices.apiregistration.k8s.io",
        &[("Service", Made(api_service)), ("Available", Made(api_service_available))],
    ),
];

/// Columns of both Event kinds, whose fields have different names.
const EVENT: &[(&str, super::CellSource)] = &[
    ("Last Seen", Made(event_last_seen)),
    ("Type", Text("/type", "")),
    ("Reason", Text("/reason", "")),
    ("Object", Made(event_object)),
    (
        "Subobject",
        Made(|event, _| first(event, &["/involvedObject/fieldPath", "/regarding/fieldPath"]).into()),
    ),
    ("Source", Made(event_source)),
    ("Message", Made(|event, _| first(event, &["/message", "/note"]).trim().into())),
    ("First Seen", Made(|event, now| event_first_seen(event, now).into())),
    ("Count", Made(event_count)),
];

/// Returns the first of the texts that is not empty.
fn first(object: &Value, pointers: &[&str]) -> String {
    pointers.iter().map(|pointer| text(object, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

fn event_first_seen(event: &Value, now: Timestamp) -> String {
    let candidates = ["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"];
    let first_time = candidates.into_iter().find(|pointer| time(event, pointer).is_some());
    since(event, first_time.unwrap_or("/eventTime"), now)
}

fn event_last_seen(event: &Value, now: Timestamp) -> Value {
    if event["series"].is_object() {
        return since(event, "/series/lastObservedTime", now).into();
    }
    let candidates = ["/lastTimestamp", "/deprecatedLastTimestamp"];
    match candidates.into_iter().find(|pointer| time(event, pointer).is_some()) {
        Some(pointer) => since(event, pointer, now).into(),
        None => event_first_seen(event, now).into(),
    }
}

fn event_object(event: &Value, _: Timestamp) -> Value {
    let kind = first(event, &["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    match first(event, &["/involvedObject/name", "/regarding/name"]) {
        name if name.is_empty() => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn event_source(event: &Value, _: Timestamp) -> Value {
    let component =
        ["/source/component", "/deprecatedSource/component", "/reportingComponent", "/reportingController"];
    let component = first(event, &component);
    match first(event, &["/source/host", "/deprecatedSource/host", "/reportingInstance"]) {
        instance if instance.is_empty() => component.into(),
        instance => format!("{component}, {instance}").into(),
    }
}

/// Returns how often the event happened: once, if it has no count.
fn event_count(event: &Value, _: Timestamp) -> Value {
    let number = |pointer: &str| event.pointer(pointer).and_then(Value::as_i64).filter(|count| *count != 0);
    if event["series"].is_object() {
        return number("/series/count").unwrap_or(0).into();
    }
    number("/count").or_else(|| number("/deprecatedCount")).unwrap_or(1).into()
}

fn config_entries(map: &Value, _: Timestamp) -> Value {
    let count = |field: &str| map[field].as_object().map_or(0, |entries| entries.len());
    (count("data") + count("binaryData")).into()
}

fn component_status(component: &Value, _: Timestamp) -> Value {
    match condition(component, "/conditions", "Healthy") {
        Some(condition) if condition["status"] == "True" => json!("Healthy"),
        Some(_) => json!("Unhealthy"),
        None => json!("Unknown"),
    }
}

fn node_status(node: &Value, _: Timestamp) -> Value {
    let mut status = match condition(node, "/status/conditions", "Ready") {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status += ",SchedulingDisabled";
    }
    status.into()
}

fn node_roles(node: &Value, _: Timestamp) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(label, value)| match label.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| label == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    match roles.is_empty() {
        true => json!("<none>"),
        false => roles.into_iter().collect::<Vec<_>>().join(",").into(),
    }
}

fn node_address(node: &Value, kind: &str) -> Value {
    match items(node, "/status/addresses").find(|address| address["type"] == kind) {
        Some(address) => text(address, "/address").into(),
        None => json!("<none>"),
    }
}

fn node_kernel(node: &Value, _: Timestamp) -> Value {
    let version = match text(node, "/status/nodeInfo/kernelVersion") {
        version if version.is_empty() => "<unknown>".to_owned(),
        version => version,
    };
    match text(node, "/status/nodeInfo/architecture") {
        architecture if architecture.is_empty() => version.into(),
        architecture => format!("{version} ({architecture})").into(),
    }
}

fn access_modes(object: &Value, pointer: &str) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes: Vec<&Value> = items(object, pointer).collect();
    let has = |mode: &str| modes.iter().any(|one| **one == mode);
    let modes: Vec<&str> = SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    modes.join(",").into()
}

fn volume_phase(object: &Value, _: Timestamp) -> Value {
    match is_being_deleted(object) {
        true => json!("Terminating"),
        false => text(object, "/status/phase").into(),
    }
}

fn claim(volume: &Value, _: Timestamp) -> Value {
    match &volume["spec"]["claimRef"] {
        Value::Null => json!(""),
        claim => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")).into(),
    }
}

fn storage_class_of(object: &Value, _: Timestamp) -> Value {
    let before = object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    before.map_or_else(|| text(object, "/spec/storageClassName"), str::to_owned).into()
}

/// Returns the provisioned capacity of a claim; empty until the claim is bound.
fn claimed_capacity(claim: &Value, _: Timestamp) -> Value {
    match text(claim, "/spec/volumeName").is_empty() {
        true => json!(""),
        false => claim["status"]["capacity"]["storage"].as_str().unwrap_or("0").into(),
    }
}

fn claimed_modes(claim: &Value, _: Timestamp) -> Value {
    match text(claim, "/spec/volumeName").is_empty() {
        true => json!(""),
        false => access_modes(claim, "/status/accessModes"),
    }
}

fn storage_class_name(class: &Value, _: Timestamp) -> Value {
    let annotations = &class["metadata"]["annotations"];
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|annotation| annotations[annotation] == "true");
    format!("{}{}", text(class, "/metadata/name"), if is_default { " (default)" } else { "" }).into()
}

fn claim_state(claim: &Value, _: Timestamp) -> Value {
    let is_allocated = claim["status"]["allocation"].is_object();
    let is_reserved = items(claim, "/status/reservedFor").next().is_some();
    let states = [
        ("deleted", is_being_deleted(claim)),
        ("pending", !is_allocated && !is_being_deleted(claim)),
        ("allocated", is_allocated),
        ("reserved", is_allocated && is_reserved),
    ];
    states.iter().filter(|(_, holds)| *holds).map(|(state, _)| *state).collect::<Vec<_>>().join(",").into()
}

fn api_service(service: &Value, _: Timestamp) -> Value {
    match &service["spec"]["service"] {
        Value::Null => json!("Local"),
        service => format!("{}/{}", text(service, "/namespace"), text(service, "/name")).into(),
    }
}

fn api_service_available(service: &Value, _: Timestamp) -> Value {
    let Some(condition) = condition(service, "/status/conditions", "Available") else {
        return json!("Unknown");
    };
    match (text(condition, "/status"), text(condition, "/reason")) {
        (status, reason) if status != "True" && !reason.is_empty() => format!("{status} ({reason})").into(),
        (status, _) => status.into(),
    }
}
