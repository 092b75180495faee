//! The objects that an object references in its namespace.
//!
//! A pod template references ConfigMaps, Secrets, claims and a service account; an Ingress references Secrets and
//! Services; a Service is needed on the targets of the pods it selects. Only names are collected here; the objects need
//! not exist.

use std::collections::BTreeSet;

use serde_json::Value;

/// A reference to an object of the core group in the same namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DependencyRef {
    pub kind: &'static str,
    pub name: String,
}

const CONFIG_MAP: &str = "ConfigMap";
const SECRET: &str = "Secret";
const ACCOUNT: &str = "ServiceAccount";
pub(crate) const CLAIM: &str = "PersistentVolumeClaim";
const SERVICE: &str = "Service";

/// Where kinds have their pod spec.
const POD_SPECS: &[(&str, &str, &str)] = &[
    ("", "Pod", "/spec"),
    ("", "PodTemplate", "/template/spec"),
    ("batch", "CronJob", "/spec/jobTemplate/spec/template/spec"),
];
/// Where all other kinds have it, custom kinds such as Rollouts included.
const TEMPLATE_SPEC: &str = "/spec/template/spec";

/// Paths in a pod spec. `*` is every item of a list.
const OF_PODS: &[(&str, &[&str])] = &[
    (SECRET, &["imagePullSecrets", "*", "name"]),
    (ACCOUNT, &["serviceAccountName"]),
    (CONFIG_MAP, &["volumes", "*", "configMap", "name"]),
    (SECRET, &["volumes", "*", "secret", "secretName"]),
    (CLAIM, &["volumes", "*", "persistentVolumeClaim", "claimName"]),
    (CONFIG_MAP, &["volumes", "*", "projected", "sources", "*", "configMap", "name"]),
    (SECRET, &["volumes", "*", "projected", "sources", "*", "secret", "name"]),
    (SECRET, &["volumes", "*", "csi", "nodePublishSecretRef", "name"]),
    (SECRET, &["volumes", "*", "azureFile", "secretName"]),
    (SECRET, &["volumes", "*", "cephfs", "secretRef", "name"]),
    (SECRET, &["volumes", "*", "cinder", "secretRef", "name"]),
    (SECRET, &["volumes", "*", "flexVolume", "secretRef", "name"]),
    (SECRET, &["volumes", "*", "iscsi", "secretRef", "name"]),
    (SECRET, &["volumes", "*", "rbd", "secretRef", "name"]),
    (SECRET, &["volumes", "*", "scaleIO", "secretRef", "name"]),
    (SECRET, &["volumes", "*", "storageos", "secretRef", "name"]),
];

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

const OF_CONTAINERS: &[(&str, &[&str])] = &[
    (CONFIG_MAP, &["env", "*", "valueFrom", "configMapKeyRef", "name"]),
    (SECRET, &["env", "*", "valueFrom", "secretKeyRef", "name"]),
    (CONFIG_MAP, &["envFrom", "*", "configMapRef", "name"]),
    (SECRET, &["envFrom", "*", "secretRef", "name"]),
];

/// Paths in other objects.
const OF_KINDS: &[(&str, &str, &str, &[&str])] = &[
    ("", "ServiceAccount", SECRET, &["imagePullSecrets", "*", "name"]),
    ("networking.k8s.io", "Ingress", SECRET, &["spec", "tls", "*", "secretName"]),
    ("networking.k8s.io", "Ingress", SERVICE, &["spec", "defaultBackend", "service", "name"]),
    (
        "networking.k8s.io",
        "Ingress",
        SERVICE,
        &["spec", "rules", "*", "http", "paths", "*", "backend", "service", "name"],
    ),
    ("apps", "StatefulSet", SERVICE, &["spec", "serviceName"]),
];

/// Every namespace has these from its own server.
const EVERYWHERE: &[(&str, &str)] = &[(ACCOUNT, "default"), (CONFIG_MAP, "kube-root-ca.crt")];

/// The pointer to the pod spec of an object, if it has one.
pub fn pod_spec_at(object: &Value) -> Option<&'static str> {
    let (group, kind) = super::group_kind(object);
    if let Some((_, _, pointer)) = POD_SPECS.iter().find(|(of, name, _)| *of == group && *name == kind) {
        return Some(pointer);
    }
    let has_containers = object.pointer(TEMPLATE_SPEC).is_some_and(|spec| spec["containers"].is_array());
    has_containers.then_some(TEMPLATE_SPEC)
}

/// Whether an object creates pods.
pub fn makes_pods(object: &Value) -> bool {
    pod_spec_at(object).is_some()
}

/// The objects that an object references in its namespace.
pub fn dependencies(object: &Value) -> BTreeSet<DependencyRef> {
    let mut needs = BTreeSet::new();
    let (group, kind) = super::group_kind(object);
    for (_, _, needed, path) in OF_KINDS.iter().filter(|(of, name, _, _)| *of == group && *name == kind) {
        collect(object, path, needed, &mut needs);
    }
    if let Some(spec) = pod_spec_at(object).and_then(|pointer| object.pointer(pointer)) {
        of_pod(spec, &mut needs);
    }
    needs.retain(|need| !need.name.is_empty() && !EVERYWHERE.contains(&(need.kind, need.name.as_str())));
    needs
}

fn of_pod(spec: &Value, needs: &mut BTreeSet<DependencyRef>) {
    for (kind, path) in OF_PODS {
        collect(spec, path, kind, needs);
    }
    for container in CONTAINERS.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten()) {
        for (kind, path) in OF_CONTAINERS {
            collect(container, path, kind, needs);
        }
    }
}

fn collect(value: &Value, path: &[&str], kind: &'static str, needs: &mut BTreeSet<DependencyRef>) {
    match (path.split_first(), value) {
        (None, Value::String(name)) => drop(needs.insert(DependencyRef { kind, name: name.clone() })),
        (Some((&"*", rest)), Value::Array(items)) => {
            items.iter().for_each(|item| collect(item, rest, kind, needs));
        }
        (Some((name, rest)), Value::Object(fields)) => {
            if let Some(inner) = fields.get(*name) {
                collect(inner, rest, kind, needs);
            }
        }
        _ => {}
    }
}

/// The PersistentVolumeClaims that an object references.
pub fn claims(object: &Value) -> Vec<String> {
    dependencies(object).into_iter().filter(|need| need.kind == CLAIM).map(|need| need.name).collect()
}

/// The labels of the pods an object creates.
pub fn pod_labels(object: &Value) -> Option<&serde_json::Map<String, Value>> {
    let spec_at = pod_spec_at(object)?;
    let of_pod = spec_at.strip_suffix("/spec").unwrap_or_default();
    object.pointer(&format!("{of_pod}/metadata/labels"))?.as_object()
}

/// Whether a Service selects the pods of an object. One without a selector selects none.
pub fn serves(service: &Value, object: &Value) -> bool {
    let Some(selector) = service.pointer("/spec/selector").and_then(Value::as_object) else { return false };
    let Some(labels) = pod_labels(object) else { return false };
    !selector.is_empty() && selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}
