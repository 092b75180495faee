//! Fields that are set or reset only on create.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, items_mut, made, text};
use super::{ip_families, other_kinds, pod_status, volume_claims};
use api::meta::time;

use crate::catalog::resource_info::ResourceInfo;

type CreateFn = fn(&mut Fields, now: &str);

/// Steps for new objects by kind, besides the removal of their status.
const STEPS: &[(&str, CreateFn)] = &[
    ("apiservices.apiregistration.k8s.io", api_service),
    ("certificatesigningrequests.certificates.k8s.io", signing_request),
    ("daemonsets.apps", daemon_set),
    ("jobs.batch", |job, _| {
        pod_selector(job);
        // After the selector, so that a Job without labels also gets the labels its pods have just received.
        other_kinds::template_labels(job);
    }),
    ("namespaces", |namespace, _| finalizer(namespace)),
    ("persistentvolumeclaims", |claim, _| volume_claims::data_sources(claim, false)),
    ("persistentvolumes", volume),
    ("pods", pod_status::pod),
    ("resourceslices.resource.k8s.io", device_taints),
    ("serviceaccounts", |account, _| secret_names(account)),
    ("services", |service, _| ip_families::default_ip_families(service, None)),
];

/// Kinds whose status is not simply removed: clients may set it on create, or the step above uses it.
const WITH_STATUS: &[&str] = &["nodes", "pods", "servicecidrs.networking.k8s.io"];

/// Prepares a new object. Returns whether more than the status may have changed.
pub(super) fn prepare(resource: &ResourceInfo, object: &mut Fields, now: Timestamp) -> bool {
    let kind = resource.qualified();
    if resource.has_status() && !WITH_STATUS.contains(&&*kind) {
        object.remove("status");
    }
    let step = STEPS.iter().find(|(name, _)| *name == kind);
    if let Some((_, step)) = step {
        step(object, &time::seconds(now));
    }
    step.is_some()
}

/// Marks an API that this server itself serves as available.
fn api_service(service: &mut Fields, now: &str) {
    if inner_mut(service, &["spec", "service"]).is_none() {
        let available = json!({
            "type": "Available", "status": "True", "lastTransitionTime": now,
            "reason": "Local", "message": "Local APIServices are always available",
        });
        service.insert("status".to_owned(), json!({ "conditions": [available] }));
    }
}

/// Removes the requester's identity, which clients must not set. The server adds it afterwards.
fn signing_request(request: &mut Fields, _: &str) {
    if let Some(spec) = inner_mut(request, &["spec"]) {
        spec.retain(|name, _| !matches!(name.as_str(), "username" | "uid" | "groups" | "extra"));
    }
}

fn daemon_set(set: &mut Fields, _: &str) {
    let Some(annotations) = made(set, "metadata").and_then(|metadata| made(metadata, "annotations")) else {
        return;
    };
    if text(annotations, TEMPLATE_GENERATION).parse::<i64>().is_ok_and(|generation| generation > 0) {
        return;
    }
    annotations.insert(TEMPLATE_GENERATION.to_owned(), "1".into());
}

/// The annotation in which a DaemonSet counts its templates, for clients older than ControllerRevisions.
pub(super) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Adds labels with the Job's name and uid to its pods, and selects the pods by uid.
fn pod_selector(job: &mut Fields) {
    let metadata_text =
        |name: &str| inner(job, &["metadata"]).map_or("", |metadata| text(metadata, name)).to_owned();
    let (name, uid) = (metadata_text("name"), metadata_text("uid"));
    let Some(spec) = inner_mut(job, &["spec"]) else { return };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let template = made(spec, "template").and_then(|template| made(template, "metadata"));
    if let Some(labels) = template.and_then(|metadata| made(metadata, "labels")) {
        for (key, value) in [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            (CONTROLLER_UID, &uid),
        ] {
            labels.entry(key).or_insert_with(|| value.as_str().into());
        }
    }
    if let Some(labels) = made(spec, "selector").and_then(|selector| made(selector, "matchLabels")) {
        labels.entry(CONTROLLER_UID).or_insert_with(|| uid.into());
    }
}

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// Adds the finalizer that keeps a namespace until its contents are deleted.
fn finalizer(namespace: &mut Fields) {
    let Some(spec) = made(namespace, "spec") else { return };
    let finalizers = spec.entry("finalizers").or_insert(Value::Null);
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
}

fn volume(volume: &mut Fields, now: &str) {
    volume.insert("status".to_owned(), json!({ "phase": "Pending", "lastPhaseTransitionTime": now }));
}

pub(super) fn device_taints(slice: &mut Fields, now: &str) {
    let Some(spec) = inner_mut(slice, &["spec"]) else { return };
    for taint in items_mut(spec, "devices").flat_map(|device| items_mut(device, "taints")) {
        taint.entry("timeAdded").or_insert_with(|| now.into());
    }
}

/// Keeps only the names of a ServiceAccount's secrets.
pub(super) fn secret_names(account: &mut Fields) {
    for secret in items_mut(account, "secrets") {
        secret.retain(|field, _| field == "name");
    }
}
