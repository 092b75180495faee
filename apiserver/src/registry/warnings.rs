//! Warnings beside a response: about deprecated resources and fields, and likely mistakes.
//!
//! A warning refuses nothing. Each is a row of a table: a kind, conditions on the object, and the text, copied from
//! Kubernetes. Warnings about pods also apply to pod templates.

use openapi::catalog::resource_info::ResourceInfo;
use openapi::validation::{self, definition};
use serde_json::Value;

use crate::keys::Collection;
use crate::kinds::DEFINITIONS;
use crate::request::path;

/// Deprecated resources. Every response about one carries a warning.
const DEPRECATED: &[(&str, &str, &str, &str)] =
    &[("", "v1", "endpoints", "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")];

/// The writes that a rule applies to: `Create`, or `Write` for creates and updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteKind {
    Create,
    Write,
}

/// A condition on an object. Places are JSON pointers; an empty value counts as missing.
enum FieldCondition {
    Has(&'static str),
    Lacks(&'static str),
    Is(&'static str, &'static str),
    IsNot(&'static str, &'static str),
}

use FieldCondition::{Has, Is, IsNot, Lacks};
use WriteKind::{Create, Write};

impl FieldCondition {
    fn holds(&self, object: &Value) -> bool {
        let is = |place: &str, value: &str| object.pointer(place).is_some_and(|found| found == value);
        match self {
            Has(place) => object.pointer(place).is_some_and(is_set),
            Lacks(place) => !object.pointer(place).is_some_and(is_set),
            Is(place, value) => is(place, value),
            IsNot(place, value) => !is(place, value),
        }
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// A rule: group and kind, the writes it applies to, the conditions (all must hold), and the text.
struct Rule(&'static str, &'static str, WriteKind, &'static [FieldCondition], &'static str);

const RULES: &[Rule] = &[
    Rule(
        "",
        "Service",
        Write,
        &[Has("/metadata/annotations/service.kubernetes.io~1topology-aware-hints")],
        "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
    ),
    Rule(
        "",
        "Service",
        Write,
        &[Is("/spec/clusterIP", "None"), Has("/spec/loadBalancerIP")],
        "spec.loadBalancerIP is ignored for headless services",
    ),
    Rule(
        "",
        "Service",
        Write,
        &[Is("/spec/clusterIP", "None"), Has("/spec/externalIPs")],
        "spec.externalIPs is ignored for headless services",
    ),
    Rule(
        "",
        "Service",
        Write,
        &[Is("/spec/clusterIP", "None"), Is("/spec/sessionAffinity", "ClientIP")],
        "spec.SessionAffinity is ignored for headless services",
    ),
    Rule(
        "",
        "Service",
        Write,
        &[Is("/spec/type", "ExternalName"), Has("/spec/externalIPs")],
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
    ),
    Rule(
        "",
        "Service",
        Write,
        &[IsNot("/spec/type", "ExternalName"), Has("/spec/externalName")],
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    ),
    Rule(
        "",
        "Service",
        Write,
        &[IsNot("/spec/type", "ExternalName"), IsNot("/spec/clusterIP", "None"), Has("/spec/externalIPs")],
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    ),
    Rule(
        "",
        "Service",
        Write,
        &[Is("/spec/trafficDistribution", "PreferClose")],
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    ),
    Rule(
        "",
        "PersistentVolume",
        Write,
        &[Has("/metadata/annotations/volume.beta.kubernetes.io~1storage-class")],
        "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead",
    ),
    Rule(
        "",
        "PersistentVolume",
        Write,
        &[Is("/spec/persistentVolumeReclaimPolicy", "Recycle")],
        "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
    ),
    Rule(
        "",
        "ServiceAccount",
        Create,
        &[Has("/metadata/annotations/kubernetes.io~1enforce-mountable-secrets")],
        "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
    ),
    Rule(
        "",
        "Node",
        Write,
        &[Has("/spec/externalID")],
        "spec.externalID: this field is deprecated, and is unused by Kubernetes",
    ),
    Rule(
        "discovery.k8s.io",
        "EndpointSlice",
        Create,
        &[Is("/addressType", "FQDN")],
        "spec.addressType: FQDN endpoints are deprecated",
    ),
    Rule(
        "networking.k8s.io",
        "Ingress",
        Create,
        &[Has("/metadata/annotations/kubernetes.io~1ingress.class")],
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead",
    ),
    Rule(
        "storage.k8s.io",
        "CSIDriver",
        Create,
        &[Has("/spec/tokenRequests"), Lacks("/spec/serviceAccountTokenInSecrets")],
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes",
    ),
];

/// The kinds with a pod spec, and its place.
const PODS: &[(&str, &str, &str)] = &[
    ("", "Pod", "/spec"),
    ("", "ReplicationController", "/spec/template/spec"),
    ("apps", "DaemonSet", "/spec/template/spec"),
    ("apps", "Deployment", "/spec/template/spec"),
    ("apps", "ReplicaSet", "/spec/template/spec"),
    ("apps", "StatefulSet", "/spec/template/spec"),
    ("batch", "Job", "/spec/template/spec"),
    ("batch", "CronJob", "/spec/jobTemplate/spec/template/spec"),
];

/// A list in a pod spec, the conditions on one element, and the text after the path of the element.
const OF_PODS: &[(&str, &[FieldCondition], &str)] = &[
    ("volumes", &[Has("/gitRepo")], ".gitRepo: deprecated in v1.11, and disabled by default in v1.33+"),
    ("imagePullSecrets", &[Lacks("/name")], ".name: invalid empty name \"\""),
];

/// Returns the warning for any use of a resource.
pub(crate) fn deprecated(requested: &path::Resource) -> Option<&'static str> {
    let address = (requested.group.as_str(), requested.version.as_str(), requested.resource.as_str());
    let found = DEPRECATED.iter().find(|(group, version, plural, _)| (*group, *version, *plural) == address);
    found.map(|(.., text)| *text)
}

/// Returns the warnings for a write. `old` is the replaced object, if this is an update.
pub(crate) fn about(resource: &ResourceInfo, old: Option<&Value>, object: &Value) -> Vec<String> {
    let write = if old.is_some() { Write } else { Create };
    let is_kind = |group: &str, kind: &str| (group, kind) == (&*resource.group, &*resource.kind);
    let of_kind = RULES.iter().filter(|Rule(group, kind, rule_write, conditions, _)| {
        let in_time = write == Create || *rule_write == Write;
        is_kind(group, kind) && in_time && conditions.iter().all(|condition| condition.holds(object))
    });
    let mut warnings: Vec<String> = of_kind.map(|Rule(.., text)| (*text).to_owned()).collect();
    let pod = PODS.iter().find(|(group, kind, _)| write == Create && is_kind(group, kind));
    if let Some((_, _, place)) = pod {
        warnings.extend(about_pod(object, place));
    }
    if (Collection { group: &resource.group, plural: &resource.plural }) == DEFINITIONS {
        warnings.extend(definition::definition_warnings(None, object));
    }
    warnings.extend(validation::object_warnings(resource, old, object));
    warnings
}

fn about_pod(object: &Value, place: &str) -> Vec<String> {
    let path = place.trim_start_matches('/').replace('/', ".");
    let of_list = |(list, conditions, text): &(&str, &[FieldCondition], &str)| -> Vec<String> {
        let items = object.pointer(&format!("{place}/{list}")).and_then(Value::as_array);
        let items = items.into_iter().flatten().enumerate();
        let matching = items.filter(|(_, item)| conditions.iter().all(|condition| condition.holds(item)));
        matching.map(|(index, _)| format!("{path}.{list}[{index}]{text}")).collect()
    };
    OF_PODS.iter().flat_map(of_list).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use openapi::catalog;
    use serde_json::json;

    #[test]
    fn rules_name_existing_kinds() {
        let kinds = RULES.iter().map(|Rule(group, kind, ..)| (*group, *kind));
        for (group, kind) in kinds.chain(PODS.iter().map(|(group, kind, _)| (*group, *kind))) {
            assert!(openapi::schema::builtin::type_name(group, "v1", kind).is_some(), "{group} {kind}");
        }
    }

    #[test]
    fn warnings_are_returned_once_and_in_order() {
        let warnings = |plural: (&str, &str), write, object: Value| {
            let resource = catalog::find(plural.0, "v1", plural.1).unwrap();
            about(resource, Some(&json!({})).filter(|_| write == Write), &object)
        };
        let service =
            json!({ "spec": { "clusterIP": "None", "externalIPs": ["1.2.3.4"], "externalName": "a.b" } });
        let expected = [
            "spec.externalIPs is ignored for headless services",
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ];
        assert_eq!(warnings(("", "services"), Write, service), expected);
        let slice = json!({ "addressType": "FQDN" });
        assert_eq!(warnings(("discovery.k8s.io", "endpointslices"), Create, slice.clone()).len(), 1);
        assert_eq!(warnings(("discovery.k8s.io", "endpointslices"), Write, slice), [""; 0]);
        let spec = json!({ "imagePullSecrets": [{ "name": "a" }, {}] });
        let deployment = json!({ "spec": { "template": { "spec": spec } } });
        let expected = ["spec.template.spec.imagePullSecrets[1].name: invalid empty name \"\""];
        assert_eq!(warnings(("apps", "deployments"), Create, deployment), expected);
        assert_eq!(warnings(("", "services"), Create, json!({ "spec": { "externalIPs": [] } })), [""; 0]);
        let schema = json!({ "openAPIV3Schema": { "type": "string", "format": "odd" } });
        let definition = json!({ "spec": { "versions": [{ "name": "v1", "schema": schema }] } });
        let expected = ["unrecognized format \"odd\""];
        assert_eq!(
            warnings(("apiextensions.k8s.io", "customresourcedefinitions"), Create, definition),
            expected
        );
    }
}
