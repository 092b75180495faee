//! Defaults of pods and pod templates that `defaults.txt` cannot express.

use serde_json::{Value, json};

use super::access::{Fields, inner_mut, items, items_mut, made, number, text};
use super::image::tag;
use super::resources;

/// The lists with containers.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Annotations that kubelets wrote before the fields existed; they are removed so that no client trusts them.
const OLD_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Sets the pull policy: `Always` for an image whose content may change under its tag.
pub(super) fn pull_policy(container: &mut Fields) {
    if text(container, "imagePullPolicy").is_empty() {
        let policy = policy_of(text(container, "image"));
        container.insert("imagePullPolicy".to_owned(), policy.into());
    }
}

pub(super) fn image_volume_policy(source: &mut Fields) {
    if text(source, "pullPolicy").is_empty() {
        let policy = policy_of(text(source, "reference"));
        source.insert("pullPolicy".to_owned(), policy.into());
    }
}

fn policy_of(image: &str) -> &'static str {
    if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// Turns a volume without a source into an empty directory.
pub(super) fn volume_source(volume: &mut Fields) {
    if volume.keys().all(|name| name == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
}

/// Keeps `serviceAccount` equal to `serviceAccountName`, the newer name of the field, which wins.
pub(super) fn account_alias(spec: &mut Fields) {
    if text(spec, "serviceAccountName").is_empty() {
        let old = text(spec, "serviceAccount").to_owned();
        spec.insert("serviceAccountName".to_owned(), old.into());
    }
    let name = text(spec, "serviceAccountName").to_owned();
    spec.insert("serviceAccount".to_owned(), name.into());
}

/// Sets missing requests to the limits. This applies to pods only, not to templates: each pod created from one gets it.
pub(super) fn requests(pod: &mut Fields) {
    let Some(spec) = inner_mut(pod, &["spec"]) else { return };
    for list in CONTAINERS {
        for container in items_mut(spec, list) {
            requests_of_limits(container);
        }
    }
    resources::of_pod(spec);
}

fn requests_of_limits(container: &mut Fields) {
    let Some(resources) = inner_mut(container, &["resources"]) else { return };
    let Some(limits) = inner_mut(resources, &["limits"]).cloned() else { return };
    let Some(requests) = made(resources, "requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Sets the host ports of a pod with `hostNetwork` to its container ports.
pub(super) fn host_ports(pod: &mut Fields) {
    let Some(spec) = inner_mut(pod, &["spec"]) else { return };
    if spec.get("hostNetwork") != Some(&Value::Bool(true)) {
        return;
    }
    for list in CONTAINERS {
        for port in items_mut(spec, list).flat_map(|container| items_mut(container, "ports")) {
            if number(port, "hostPort") == 0 {
                port.insert("hostPort".to_owned(), number(port, "containerPort").into());
            }
        }
    }
}

/// Replaces a negative grace period by one second.
pub(super) fn grace(pod: &mut Fields) {
    if let Some(spec) = inner_mut(pod, &["spec"])
        && number(spec, "terminationGracePeriodSeconds") < 0
    {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
}

pub(super) fn old_annotations(object: &mut Fields) {
    if let Some(annotations) = inner_mut(object, &["metadata", "annotations"]) {
        annotations.retain(|name, _| !OLD_ANNOTATIONS.contains(&name.as_str()));
    }
}

/// Sets `podIP` to the first of `podIPs`, or the list to `podIP`, which wins if they differ.
pub(super) fn pod_ips(status: &mut Fields) {
    let alone = text(status, "podIP").to_owned();
    let first = items(status, "podIPs").next().map(|ip| text(ip, "ip").to_owned());
    match first {
        Some(first) if alone.is_empty() => status.insert("podIP".to_owned(), first.into()),
        Some(first) if first == alone => None,
        _ if alone.is_empty() => None,
        _ => status.insert("podIPs".to_owned(), json!([{ "ip": alone }])),
    };
}
