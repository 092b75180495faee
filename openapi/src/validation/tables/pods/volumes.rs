//! Validation of the volumes of pods.

use serde_json::Value;

use crate::validation::common;
use crate::validation::common::{
    absolute_path, annotations, descending_path, driver_name, no_backsteps, relative_path,
};
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{AtLeast, AtMost, Code, OneOf, Text};
use crate::validation::rule::Rule::{Check, Field, One, Skip};
use crate::validation::rule::{FieldRule, REQUIRED, Table};
use crate::validation::value::{get, has, int, is_empty, items, quantity, text};
use api::meta::names::{dns1123_label, dns1123_subdomain};

use super::containers::{self, PULL_POLICIES};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MODE: &[FieldRule] = &[AtLeast(0, FILE_MODE), AtMost(0o777, FILE_MODE)];
pub(in crate::validation) const MANY_SOURCES: &str = "may not specify more than 1 volume type";
pub(in crate::validation) const NO_SOURCE: &str = "must specify a volume type";

const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Volume sources, in order of precedence.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

pub(in crate::validation) const RULES: Table = &[
    (
        "core.v1.Volume",
        &[
            One { of: SOURCES, many: MANY_SOURCES, none: Some(NO_SOURCE) },
            Field("name", &[REQUIRED, Text(dns1123_label)]),
        ],
    ),
    ("core.v1.EmptyDirVolumeSource", &[Check(empty_dir)]),
    (
        "core.v1.HostPathVolumeSource",
        &[Field("path", &[REQUIRED, Text(no_backsteps)]), Field("type", &[OneOf(HOST_PATH_TYPES)])],
    ),
    (
        "core.v1.GitRepoVolumeSource",
        &[Field("repository", &[REQUIRED]), Field("directory", &[Text(descending_path)])],
    ),
    ("core.v1.SecretVolumeSource", &[Field("secretName", &[REQUIRED]), Field("defaultMode", MODE)]),
    ("core.v1.ConfigMapVolumeSource", &[Field("name", &[REQUIRED]), Field("defaultMode", MODE)]),
    (
        "core.v1.KeyToPath",
        &[Field("key", &[REQUIRED]), Field("path", &[REQUIRED, Text(relative_path)]), Field("mode", MODE)],
    ),
    ("core.v1.PersistentVolumeClaimVolumeSource", &[Field("claimName", &[REQUIRED])]),
    ("core.v1.NFSVolumeSource", &[Field("server", &[REQUIRED]), Check(nfs_path)]),
    (
        "core.v1.DownwardAPIVolumeSource",
        &[Field("defaultMode", MODE), Skip("items"), Check(downward_api_files)],
    ),
    ("core.v1.DownwardAPIProjection", &[Skip("items"), Check(downward_api_files)]),
    ("core.v1.ProjectedVolumeSource", &[Field("defaultMode", MODE), Skip("sources"), Check(projected)]),
    ("core.v1.CSIVolumeSource", &[Check(csi)]),
    ("core.v1.EphemeralVolumeSource", &[Field("volumeClaimTemplate", &[REQUIRED])]),
    ("core.v1.PersistentVolumeClaimTemplate", &[Field("metadata", &[Code(template_metadata)])]),
    ("core.v1.ImageVolumeSource", &[Field("pullPolicy", &[REQUIRED, OneOf(PULL_POLICIES)])]),
    // Disks that are identified by a name in an external system.
    ("core.v1.GCEPersistentDiskVolumeSource", &[Field("pdName", &[REQUIRED])]),
    ("core.v1.AWSElasticBlockStoreVolumeSource", &[Field("volumeID", &[REQUIRED])]),
    ("core.v1.ISCSIVolumeSource", &[Field("targetPortal", &[REQUIRED]), Field("iqn", &[REQUIRED])]),
    ("core.v1.ISCSIPersistentVolumeSource", &[Field("targetPortal", &[REQUIRED]), Field("iqn", &[REQUIRED])]),
    ("core.v1.GlusterfsVolumeSource", &[Field("endpoints", &[REQUIRED]), Field("path", &[REQUIRED])]),
    (
        "core.v1.GlusterfsPersistentVolumeSource",
        &[Field("endpoints", &[REQUIRED]), Field("path", &[REQUIRED])],
    ),
    ("core.v1.RBDVolumeSource", &[Field("monitors", &[REQUIRED]), Field("image", &[REQUIRED])]),
    ("core.v1.RBDPersistentVolumeSource", &[Field("monitors", &[REQUIRED]), Field("image", &[REQUIRED])]),
    ("core.v1.CinderVolumeSource", &[Field("volumeID", &[REQUIRED])]),
    ("core.v1.CinderPersistentVolumeSource", &[Field("volumeID", &[REQUIRED])]),
    ("core.v1.CephFSVolumeSource", &[Field("monitors", &[REQUIRED])]),
    ("core.v1.CephFSPersistentVolumeSource", &[Field("monitors", &[REQUIRED])]),
    ("core.v1.FlexVolumeSource", &[Field("driver", &[REQUIRED])]),
    ("core.v1.FlexPersistentVolumeSource", &[Field("driver", &[REQUIRED])]),
    ("core.v1.AzureFileVolumeSource", &[Field("secretName", &[REQUIRED]), Field("shareName", &[REQUIRED])]),
    (
        "core.v1.AzureFilePersistentVolumeSource",
        &[Field("secretName", &[REQUIRED]), Field("shareName", &[REQUIRED])],
    ),
    ("core.v1.VsphereVirtualDiskVolumeSource", &[Field("volumePath", &[REQUIRED])]),
    ("core.v1.PhotonPersistentDiskVolumeSource", &[Field("pdID", &[REQUIRED])]),
    ("core.v1.PortworxVolumeSource", &[Field("volumeID", &[REQUIRED])]),
    (
        "core.v1.ScaleIOVolumeSource",
        &[Field("gateway", &[REQUIRED]), Field("system", &[REQUIRED]), Field("volumeName", &[REQUIRED])],
    ),
    (
        "core.v1.ScaleIOPersistentVolumeSource",
        &[Field("gateway", &[REQUIRED]), Field("system", &[REQUIRED]), Field("volumeName", &[REQUIRED])],
    ),
];

fn empty_dir(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if quantity(get(value, "sizeLimit")).is_negative() {
        found.forbidden(&at.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

/// Checks an NFS path. As in Kubernetes, an empty path is reported as missing and as not absolute.
fn nfs_path(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let path = text(value, "path");
    if path.is_empty() {
        found.required(&at.field("path"), "");
    }
    found.faults(&at.field("path"), path, absolute_path(path));
}

fn csi(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    driver_name(get(value, "driver"), &at.field("driver"), found);
    let secret = get(value, "nodePublishSecretRef");
    match text(secret, "name") {
        _ if secret.is_null() => {}
        "" => found.required(&at.field("nodePublishSecretRef.name"), ""),
        name => found.faults(&at.field("name"), name, dns1123_subdomain(name)),
    }
}

/// Checks that the metadata of a claim template has only labels and annotations.
fn template_metadata(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    annotations(get(value, "annotations"), &at.field("annotations"), found);
    common::labels(get(value, "labels"), &at.field("labels"), found);
    for (name, value) in value.as_object().into_iter().flatten() {
        if !["annotations", "labels"].contains(&name.as_str()) && !is_empty(value) {
            found.forbidden(&at.field(name), "cannot be set");
        }
    }
}

/// Fields of the pod that a file can use.
const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Validates the paths of files. Errors are reported at the volume instead of the file.
fn downward_api_files(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for file in items(value, "items") {
        let path = text(file, "path");
        if path.is_empty() {
            found.required(&at.field("path"), "");
        }
        found.faults(&at.field("path"), path, relative_path(path));
        if has(file, "fieldRef") {
            containers::field_ref(get(file, "fieldRef"), FILE_FIELDS, &at.field("fieldRef"), found);
            if has(file, "resourceFieldRef") {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                found.invalid(at, "resource", detail);
            }
        } else if has(file, "resourceFieldRef") {
            let resource = get(file, "resourceFieldRef");
            containers::resource_ref(resource, true, &at.field("resourceFieldRef"), found);
        } else {
            found.required(at, "one of fieldRef and resourceFieldRef is required");
        }
        file_mode(file, "mode", at, found);
    }
}

fn file_mode(value: &Value, field: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !(0..=0o777).contains(&int(value, field)) {
        found.invalid(&at.field(field), int(value, field), FILE_MODE);
    }
}

/// Checks that no two sources of a projected volume use the same path.
fn projected(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let mut taken: Vec<&str> = Vec::new();
    for (index, source) in items(value, "sources").iter().enumerate() {
        let list = at.field("sources");
        let item = list.index(index);
        for kind in ["secret", "configMap"] {
            let (from, from_at) = (get(source, kind), item.field(kind));
            if from.is_null() {
                continue;
            }
            if text(from, "name").is_empty() {
                found.required(&from_at.field("name"), "");
            }
            for (index, file) in items(from, "items").iter().enumerate() {
                let files = from_at.field("items");
                crate::validation::tables::plan::validate(
                    "io.k8s.api.core.v1.KeyToPath",
                    file,
                    &files.index(index),
                    found,
                );
                claim(text(file, "path"), text(from, "name"), &mut taken, at, found);
            }
        }
        let downward_api = get(source, "downwardAPI");
        downward_api_files(downward_api, &item.field("downwardAPI"), found);
        for file in items(downward_api, "items") {
            claim(text(file, "path"), text(file, "path"), &mut taken, at, found);
        }
        token(get(source, "serviceAccountToken"), &item.field("serviceAccountToken"), at, found);
        if count_sources(source) > 1 {
            found.forbidden(&item, "may not specify more than 1 volume type per source");
        }
    }
}

fn count_sources(source: &Value) -> usize {
    let fields = source.as_object().into_iter().flatten();
    fields.filter(|(_, value)| !value.is_null()).count()
}

fn claim<'v>(path: &'v str, by: &str, taken: &mut Vec<&'v str>, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if path.is_empty() {
        return;
    }
    if taken.contains(&path) {
        found.invalid(at, by, "conflicting duplicate paths");
    }
    taken.push(path);
}

fn token(token: &Value, at: &FieldPath<'_>, volume: &FieldPath<'_>, found: &mut FieldErrors) {
    if token.is_null() {
        return;
    }
    let seconds = int(token, "expirationSeconds");
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        found.invalid(&at.field("expirationSeconds"), seconds, detail);
    }
    if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        found.invalid(&at.field("expirationSeconds"), seconds, detail);
    }
    match text(token, "path") {
        "" => found.required(&volume.field("path"), ""),
        path => found.faults(&volume.field("path"), path, relative_path(path)),
    }
}

/// Checks that no other volume uses a claim that is created for an ephemeral volume of the pod.
pub(in crate::validation) fn ephemeral_claims(
    pod: &str,
    volumes: &[Value],
    at: &FieldPath<'_>,
    found: &mut FieldErrors,
) {
    let made: Vec<String> = volumes
        .iter()
        .filter(|volume| has(volume, "ephemeral"))
        .map(|volume| format!("{pod}-{}", text(volume, "name")))
        .collect();
    for (index, volume) in volumes.iter().enumerate() {
        let claim = text(get(volume, "persistentVolumeClaim"), "claimName");
        if made.iter().any(|made| made == claim) {
            let item = at.index(index);
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            found.invalid(&item.field("persistentVolumeClaim.claimName"), claim, detail);
        }
    }
}
