//! Validation of PersistentVolumes, their claims, and storage classes.

use serde_json::Value;

use crate::validation::common::{IMMUTABLE, POSITIVE, driver_name, no_backsteps};
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{
    AtLeast, Code, EachAtList, NonNegative, NonNegativeQuantity, OneOf, Required, Selector, Text, Unique,
};
use crate::validation::rule::Rule::{Check, Field, Into, One, Skip};
use crate::validation::rule::{FieldRule, REQUIRED, Table};
use crate::validation::value::{at as path_in, entries, entry_count, get, has, items, quantity, same, text};
use api::meta::names::{dns1123_label, dns1123_subdomain, qualified_name};

use crate::validation::tables::pods::volumes::{MANY_SOURCES, NO_SOURCE};

const ACCESS: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const MODES: FieldRule = OneOf(&["Block", "Filesystem"]);
const CLASS: &[FieldRule] = &[Text(dns1123_subdomain)];

/// Volume sources, in order of precedence.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) const RULES: Table = &[
    (
        "core.v1.PersistentVolumeClaimSpec",
        &[
            Field("accessModes", &[Required("at least 1 access mode is required")]),
            Field("selector", &[Selector]),
            Check(access_modes),
            Check(requested),
            Field("storageClassName", CLASS),
            Field("volumeMode", &[MODES]),
            Field("dataSource", &[Code(data_source)]),
            Field("dataSourceRef", &[Code(data_source)]),
            Check(one_source),
            Field("volumeAttributesClassName", CLASS),
        ],
    ),
    (
        "core.v1.PersistentVolumeSpec",
        &[
            Field("accessModes", &[REQUIRED]),
            Check(access_modes),
            Check(capacity),
            Field("persistentVolumeReclaimPolicy", &[OneOf(&["Delete", "Recycle", "Retain"])]),
            Into("nodeAffinity"),
            One { of: SOURCES, many: MANY_SOURCES, none: Some(NO_SOURCE) },
            Check(local_has_node_affinity),
            Field("storageClassName", CLASS),
            Field("volumeMode", &[MODES]),
            Field("volumeAttributesClassName", CLASS),
        ],
    ),
    (
        "core.v1.VolumeNodeAffinity",
        &[Field("required", &[Required("must specify required node constraints")])],
    ),
    ("core.v1.LocalVolumeSource", &[Field("path", &[REQUIRED, Text(no_backsteps)])]),
    ("core.v1.CSIPersistentVolumeSource", &[Check(csi_driver), Field("volumeHandle", &[REQUIRED])]),
    (
        "core.v1.SecretReference",
        &[
            Field("name", &[REQUIRED, Text(dns1123_subdomain)]),
            Field("namespace", &[REQUIRED, Text(dns1123_label)]),
        ],
    ),
    (
        "storage.v1.StorageClass",
        &[
            Field("provisioner", &[REQUIRED, Code(provisioner)]),
            Check(parameters),
            Field("reclaimPolicy", &[OneOf(&["Delete", "Retain"])]),
            Field("volumeBindingMode", &[REQUIRED, OneOf(&["Immediate", "WaitForFirstConsumer"])]),
        ],
    ),
    (
        "storage.v1.VolumeAttributesClass",
        &[
            Field("driverName", &[REQUIRED, Code(provisioner)]),
            Check(parameters),
            Field("parameters", &[Required("must contain at least one key/value pair")]),
        ],
    ),
    (
        "storage.v1.CSIDriverSpec",
        &[
            Field("fsGroupPolicy", &[OneOf(&["File", "None", "ReadWriteOnceWithFSType"])]),
            Field("volumeLifecycleModes", &[EachAtList(&[OneOf(&["Persistent", "Ephemeral"])])]),
            Field(
                "nodeAllocatableUpdatePeriodSeconds",
                &[AtLeast(10, "must be greater than or equal to 10 seconds")],
            ),
        ],
    ),
    ("storage.v1.CSINodeSpec", &[Into("drivers"), Field("drivers", &[Unique("name")])]),
    ("storage.v1.CSINodeDriver", &[Check(node_driver), Field("nodeID", &[REQUIRED])]),
    ("storage.v1.VolumeNodeResources", &[Field("count", &[NonNegative])]),
    (
        "storage.v1.CSIStorageCapacity",
        &[
            Field("nodeTopology", &[Selector]),
            Check(class_of_capacity),
            Field("capacity", &[NonNegativeQuantity]),
        ],
    ),
    (
        "storage.v1.VolumeAttachmentSpec",
        &[Check(attacher), Skip("source"), Check(attached), Check(attached_to)],
    ),
];

fn access_modes(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (modes, at) = (items(spec, "accessModes"), at.field("accessModes"));
    let (mut pod, mut other) = (false, false);
    for mode in modes.iter().filter_map(Value::as_str) {
        match mode {
            "ReadWriteOncePod" => pod = true,
            _ if ACCESS.contains(&mode) => other = true,
            _ => found.not_supported(&at, mode, ACCESS),
        }
    }
    if pod && other {
        found.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

fn requested(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (storage, at) = (path_in(spec, "resources.requests.storage"), at.field("resources"));
    if storage.is_null() {
        return found.required(&at.key("storage"), "");
    }
    let amount = quantity(storage);
    if amount.is_negative() || amount.is_zero() {
        found.invalid(&at.key("storage"), amount.to_string(), POSITIVE);
    }
}

fn data_source(source: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            found.required(&at.field(field), "");
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        found.invalid(at, kind, detail);
    }
    if !group.is_empty() {
        found.faults(&at.field("apiGroup"), group, dns1123_subdomain(group));
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        found.faults(&at.field("namespace"), namespace, dns1123_label(namespace));
    }
}

/// Checks that `dataSource` and `dataSourceRef` agree.
fn one_source(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (source, reference) = (get(spec, "dataSource"), get(spec, "dataSourceRef"));
    if source.is_null() || reference.is_null() {
        return;
    }
    if !text(reference, "namespace").is_empty() {
        found.error_with_text(
            at,
            api::meta::field::ErrorType::Invalid,
            "{}",
            "may not be specified when dataSourceRef.namespace is specified",
        );
    } else if !["apiGroup", "kind", "name"].iter().all(|field| get(source, field) == get(reference, field)) {
        found.error_with_text(at, api::meta::field::ErrorType::Invalid, "{}", "must match dataSourceRef");
    }
}

fn capacity(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (capacity, at) = (get(spec, "capacity"), at.field("capacity"));
    if entry_count(spec, "capacity") == 0 {
        found.required(&at, "");
    }
    if capacity.get("storage").is_none() || entry_count(spec, "capacity") > 1 {
        found.not_supported(&at, capacity.clone(), &["storage"]);
    }
    for (name, value) in entries(spec, "capacity") {
        let amount = quantity(value);
        if amount.is_negative() {
            let rounded = amount.ceil().unwrap_or(i64::MIN);
            found.invalid(&at.key(name), rounded, "must be a valid resource quantity");
        }
        if amount.is_negative() || amount.is_zero() {
            found.invalid(&at.key(name), amount.to_string(), POSITIVE);
        }
    }
}

fn local_has_node_affinity(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if has(spec, "local") && !has(spec, "nodeAffinity") {
        found.required(&at.field("nodeAffinity"), "Local volume requires node affinity");
    }
    let root = text(get(spec, "hostPath"), "path").trim_matches('/').is_empty() && has(spec, "hostPath");
    if root && text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        found.forbidden(&at.field("persistentVolumeReclaimPolicy"), detail);
    }
    if has(spec, "volumeAttributesClassName") && !has(spec, "csi") {
        found.required(&at.field("csi"), "has to be specified when using volumeAttributesClassName");
    }
}

fn csi_driver(source: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    driver_name(get(source, "driver"), &at.field("driver"), found);
}

fn provisioner(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let name = value.as_str().unwrap_or_default().to_lowercase();
    found.faults(at, &name, qualified_name(&name));
}

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;

fn parameters(class: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let at = at.field("parameters");
    if entry_count(class, "parameters") > MAX_PARAMETERS {
        return found.too_long(&at, MAX_PARAMETERS);
    }
    let mut bytes = 0;
    for (key, value) in entries(class, "parameters") {
        if key.is_empty() {
            found.invalid(&at, key.as_str(), "field can not be empty.");
        }
        bytes += key.len() + value.as_str().map(str::len).unwrap_or_default();
    }
    if bytes > MAX_PARAMETER_BYTES {
        found.too_long(&at, MAX_PARAMETER_BYTES);
    }
}

const MAX_NODE_ID: usize = 256;

fn node_driver(driver: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    driver_name(get(driver, "name"), &at.field("name"), found);
    let id = text(driver, "nodeID");
    if id.len() > MAX_NODE_ID {
        found.invalid(&at.field("nodeID"), id, format!("must be {MAX_NODE_ID} characters or less"));
    }
    let keys = items(driver, "topologyKeys");
    for (index, key) in keys.iter().enumerate() {
        let text = key.as_str().unwrap_or_default();
        if keys[..index].contains(key) {
            found.duplicate(at, text);
        }
        found.faults(at, text, qualified_name(text));
    }
}

fn class_of_capacity(capacity: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let class = text(capacity, "storageClassName");
    found.faults(&at.field("storageClassName"), class, dns1123_subdomain(class));
}

fn attacher(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    driver_name(get(spec, "attacher"), &at.field("attacher"), found);
}

fn attached(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (source, at) = (get(spec, "source"), at.field("source"));
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (has(source, "inlineVolumeSpec"), has(source, "persistentVolumeName")) {
        (false, false) => found.required(&at, detail),
        (true, true) => found.forbidden(&at, detail),
        (false, true) => {
            let (name, at) = (text(source, "persistentVolumeName"), at.field("persistentVolumeName"));
            if name.is_empty() {
                found.required(&at, "must specify non empty persistentVolumeName");
            }
            found.faults(&at, name, dns1123_subdomain(name));
        }
        (true, false) => {}
    }
}

fn attached_to(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let node = text(spec, "nodeName");
    found.faults(&at.field("nodeName"), node, dns1123_subdomain(node));
}

/// Checks that a claim is immutable, except for its requested size once it is bound.
pub(crate) fn validate_update_claim(old: &Value, new: &Value, found: &mut FieldErrors) {
    let at = FieldPath::TOP.field("spec");
    let bound = path_in(new, "status.phase").as_str() == Some("Bound");
    let (before, mut after) = (get(old, "spec"), get(new, "spec").clone());
    let mut keep = |field: &str| {
        if let Some(fields) = after.as_object_mut() {
            match get(before, field) {
                Value::Null => drop(fields.remove(field)),
                value => drop(fields.insert(field.to_owned(), value.clone())),
            }
        }
    };
    // Volume and class can be set once if they were empty.
    for field in ["volumeName", "storageClassName"] {
        if text(before, field).is_empty() {
            keep(field);
        }
    }
    let storage = |claim: &Value| quantity(path_in(claim, "spec.resources.requests.storage"));
    if bound {
        keep("volumeAttributesClassName");
    }
    if bound || storage(old) == storage(new) {
        keep("resources");
    }
    if !same(before, &after) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims\n";
        found.forbidden(&at, detail);
    }
    let (size, has_size) = (storage(new), path_in(old, "status.capacity.storage"));
    if size < storage(old) && size <= quantity(has_size) {
        let detail = "field can not be less than status.capacity";
        found.forbidden(&at.field("resources.requests.storage"), detail);
    }
    let (mode, new_mode) = (get(before, "volumeMode"), path_in(new, "spec.volumeMode"));
    if !same(mode, new_mode) {
        found.invalid(&FieldPath::TOP.field("volumeMode"), new_mode.clone(), IMMUTABLE);
    }
}

const RESIZES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Validates the capacity of a claim and the progress of its expansion.
pub(crate) fn validate_claim_status(_old: &Value, new: &Value, found: &mut FieldErrors) {
    let (status, at) = (get(new, "status"), FieldPath::TOP.field("status"));
    let capacity = at.field("capacity");
    for (name, amount) in entries(status, "capacity") {
        not_negative(amount, &capacity.key(name), found);
    }
    let steps = at.field("allocatedResourceStatuses");
    for (name, step) in entries(status, "allocatedResourceStatuses") {
        claimed(name, &steps, found);
        if !step.as_str().is_some_and(|step| RESIZES.contains(&step)) {
            found.not_supported(&steps, name.as_str(), RESIZES);
        }
    }
    let amounts = at.field("allocatedResources");
    for (name, amount) in entries(status, "allocatedResources") {
        if claimed(name, &amounts, found) {
            not_negative(amount, &amounts.key(name), found);
        }
    }
}

/// Checks that a quantity is not negative. As in Kubernetes, the text shows it rounded to an integer.
fn not_negative(amount: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let amount = quantity(amount);
    if amount.is_negative() {
        found.invalid(at, amount.ceil().unwrap_or(i64::MIN), "must be a valid resource quantity");
    }
}

/// Checks the name of a resource of a claim. Of Kubernetes' own resources only storage is valid.
fn claimed(name: &str, at: &FieldPath<'_>, found: &mut FieldErrors) -> bool {
    let before = found.count();
    found.faults(at, name, qualified_name(name));
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    if found.count() == before && is_native && name != "storage" {
        found.not_supported(at, name, &["storage"]);
    }
    found.count() == before
}

/// Checks that the source of a volume does not change.
pub(crate) fn validate_update_volume(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (old, new) = (get(old, "spec"), get(new, "spec"));
    if SOURCES.iter().any(|source| !same_source(get(old, source), get(new, source))) {
        let detail = "spec.persistentvolumesource is immutable after creation\n";
        found.forbidden(&FieldPath::TOP.field("spec.persistentvolumesource"), detail);
    }
    let mode = get(new, "volumeMode");
    if !same(get(old, "volumeMode"), mode) {
        found.invalid(&FieldPath::TOP.field("volumeMode"), mode.clone(), IMMUTABLE);
    }
    let affinity = get(old, "nodeAffinity");
    if !affinity.is_null() && !same(affinity, get(new, "nodeAffinity")) {
        found.invalid(&FieldPath::TOP.field("nodeAffinity"), get(new, "nodeAffinity").clone(), IMMUTABLE);
    }
}

/// Reports whether two sources are the same, except that a secret for expansion may be added.
fn same_source(old: &Value, new: &Value) -> bool {
    if has(old, "controllerExpandSecretRef") || !has(new, "controllerExpandSecretRef") {
        return same(old, new) && old.is_null() == new.is_null();
    }
    let mut new = new.clone();
    new.as_object_mut().and_then(|fields| fields.remove("controllerExpandSecretRef"));
    same(old, &new)
}
