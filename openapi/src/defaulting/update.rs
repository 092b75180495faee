//! Prepares updates: keeps fields that an update cannot change.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::{Fields, inner, items, made, text};
use super::create::{self, TEMPLATE_GENERATION};
use super::{ip_families, other_kinds, volume_claims};
use api::meta::time;

use crate::catalog::resource_info::ResourceInfo;

type UpdateFn = fn(old: &Fields, new: &mut Fields, now: &str);

/// Steps for updated objects by kind, besides keeping their status.
const STEPS: &[(&str, UpdateFn)] = &[
    ("certificatesigningrequests.certificates.k8s.io", |old, new, _| keep(old, new, "spec")),
    ("customresourcedefinitions.apiextensions.k8s.io", |_, new, _| stored_version(new)),
    ("daemonsets.apps", |old, new, _| template_generation(old, new)),
    ("jobs.batch", |_, new, _| other_kinds::template_labels(new)),
    ("namespaces", |old, new, _| finalizers(old, new)),
    ("persistentvolumeclaims", |old, new, _| {
        volume_claims::data_sources(new, volume_claims::has_source(old))
    }),
    ("resourceslices.resource.k8s.io", |_, new, now| create::device_taints(new, now)),
    ("serviceaccounts", |_, new, _| create::secret_names(new)),
    ("services", |old, new, _| service(old, new)),
];

pub(super) fn prepare(resource: &ResourceInfo, old: &Fields, new: &mut Fields, now: Timestamp) {
    let kind = resource.qualified();
    if resource.has_status() {
        keep(old, new, "status");
    }
    if let Some((_, step)) = STEPS.iter().find(|(name, _)| *name == kind) {
        step(old, new, &time::seconds(now));
    }
}

fn keep(old: &Fields, new: &mut Fields, field: &str) {
    match old.get(field) {
        Some(value) => new.insert(field.to_owned(), value.clone()),
        None => new.remove(field),
    };
}

/// Adds a new storage version to the stored versions.
fn stored_version(definition: &mut Fields) {
    let Some(spec) = inner(definition, &["spec"]) else { return };
    let stored = items(spec, "versions").find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let Some(name) = stored.and_then(|version| version.get("name")).cloned() else { return };
    let Some(status) = made(definition, "status") else { return };
    match status.get_mut("storedVersions") {
        Some(Value::Array(versions)) if versions.contains(&name) => {}
        Some(Value::Array(versions)) => versions.push(name),
        _ => {
            status.insert("storedVersions".to_owned(), json!([name]));
        }
    }
}

fn template_generation(old: &Fields, new: &mut Fields) {
    let before = inner(old, &["metadata", "annotations"])
        .map_or("", |annotations| text(annotations, TEMPLATE_GENERATION));
    let before: i64 = before.parse().unwrap_or_default();
    let template = |set: &Fields| inner(set, &["spec", "template"]).cloned();
    let grows = template(old) != template(new);
    if let Some(annotations) = made(new, "metadata").and_then(|metadata| made(metadata, "annotations")) {
        let generation = before.saturating_add(i64::from(grows));
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

/// Keeps the finalizers of a namespace, which only the `finalize` subresource changes.
fn finalizers(old: &Fields, new: &mut Fields) {
    let before = inner(old, &["spec"]).and_then(|spec| spec.get("finalizers")).cloned();
    if let Some(spec) = made(new, "spec") {
        match before {
            Some(before) => spec.insert("finalizers".to_owned(), before),
            None => spec.remove("finalizers"),
        };
    }
}

fn service(old: &Fields, new: &mut Fields) {
    ip_families::default_ip_families(new, Some(old));
    ip_families::drop_unneeded(new, old);
}
