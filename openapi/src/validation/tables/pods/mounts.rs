//! Validation of the mounts of a container, as far as it does not depend on the pod.

use serde_json::Value;

use crate::validation::common::{descending_path, no_backsteps};
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::value::{at as path_in, get, has, items, text, truth};

pub(in crate::validation) fn validate(container: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (mounts, devices) = (items(container, "volumeMounts"), items(container, "volumeDevices"));
    let privileged = path_in(container, "securityContext.privileged").as_bool().unwrap_or_default();
    let list = at.field("volumeMounts");
    for (index, mount) in mounts.iter().enumerate() {
        let item = list.index(index);
        let (name, path) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            found.required(&item.field("name"), "");
        }
        if path.is_empty() {
            found.required(&item.field("mountPath"), "");
        }
        if mounts[..index].iter().any(|other| text(other, "mountPath") == path) {
            found.invalid(&item.field("mountPath"), path, "must be unique");
        }
        if devices.iter().any(|device| text(device, "name") == name) {
            found.invalid(&item.field("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| text(device, "devicePath") == path) {
            found.invalid(
                &item.field("mountPath"),
                path,
                "must not already exist as a path in volumeDevices",
            );
        }
        sub_paths(mount, &list, &item, found);
        modes(mount, privileged, &list, found);
    }
    devices_of(devices, mounts, &at.field("volumeDevices"), found);
}

fn sub_paths(mount: &Value, list: &FieldPath<'_>, item: &FieldPath<'_>, found: &mut FieldErrors) {
    let (path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    found.faults(&list.field("subPath"), path, descending_path(path));
    if !path.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        found.invalid(&item.field("subPathExpr"), expression, detail);
    }
    found.faults(&list.field("subPathExpr"), expression, descending_path(expression));
}

/// Validates mount propagation and recursive read-only mounts.
fn modes(mount: &Value, privileged: bool, list: &FieldPath<'_>, found: &mut FieldErrors) {
    let (propagation, at) = (text(mount, "mountPropagation"), list.field("mountPropagation"));
    match propagation {
        "Bidirectional" if !privileged => {
            found.forbidden(&at, "Bidirectional mount propagation is available only to privileged containers")
        }
        "" | "None" | "HostToContainer" | "Bidirectional" => {}
        _ => found.not_supported(&at, propagation, &["Bidirectional", "HostToContainer", "None"]),
    }
    let (recursive, at) = (text(mount, "recursiveReadOnly"), list.field("recursiveReadOnly"));
    match recursive {
        "Enabled" | "IfPossible" => {
            if !truth(mount, "readOnly") {
                found.forbidden(&at, "may only be specified when readOnly is true");
            }
            if has(mount, "mountPropagation") && propagation != "None" {
                found.forbidden(&at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        "" | "Disabled" => {}
        _ => found.not_supported(&at, recursive, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices_of(devices: &[Value], mounts: &[Value], list: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, device) in devices.iter().enumerate() {
        let item = list.index(index);
        let (name, path) = (text(device, "name"), text(device, "devicePath"));
        let before = &devices[..index];
        if name.is_empty() {
            found.required(&item.field("name"), "");
        } else if before.iter().any(|other| text(other, "name") == name) {
            found.invalid(&item.field("name"), name, "must be unique");
        }
        if path.is_empty() {
            found.required(&item.field("devicePath"), "");
        }
        if before.iter().any(|other| text(other, "devicePath") == path) {
            found.invalid(&item.field("devicePath"), path, "must be unique");
        }
        if !no_backsteps(path).is_empty() {
            found.invalid(&item.field("devicePath"), path, "can not contain backsteps ('..')");
        }
        if mounts.iter().any(|mount| text(mount, "name") == name) {
            found.invalid(&item.field("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| text(mount, "mountPath") == path) {
            let detail = "must not already exist as a path in volumeMounts";
            found.invalid(&item.field("devicePath"), path, detail);
        }
    }
}

/// Checks that mounts refer to volumes of the pod, and devices to volumes with a claim.
pub(in crate::validation) fn are_volumes(
    container: &Value,
    volumes: &[&Value],
    at: &FieldPath<'_>,
    found: &mut FieldErrors,
) {
    let volume = |name: &str| volumes.iter().find(|volume| text(volume, "name") == name);
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let name = text(mount, "name");
        if volume(name).is_none() {
            found.not_found(&at.field("volumeMounts").index(index).field("name"), get(mount, "name").clone());
        }
    }
    for (index, device) in items(container, "volumeDevices").iter().enumerate() {
        let list = at.field("volumeDevices");
        let (name, item) = (text(device, "name"), list.index(index));
        match volume(name) {
            None => found.not_found(&item.field("name"), name),
            Some(volume) if has(volume, "persistentVolumeClaim") || has(volume, "ephemeral") => {}
            Some(_) => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                found.invalid(&item.field("name"), name, detail);
            }
        }
    }
}
