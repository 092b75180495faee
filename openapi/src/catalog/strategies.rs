//! Behaviour of the built-in kinds that differs between them, keyed by resource in the form `plural.group`.

use std::sync::Arc;

use crate::catalog::resource_info::{Generation, SelectableField};

/// Generation 1 on create, incremented when one of these fields changes.
const GENERATIONS: &[(&str, &[&str])] = &[
    ("customresourcedefinitions.apiextensions.k8s.io", SPEC),
    ("cronjobs.batch", SPEC),
    ("daemonsets.apps", SPEC),
    // Annotations too: a rollback was once requested with them.
    ("deployments.apps", &["/spec", "/metadata/annotations"]),
    ("deviceclasses.resource.k8s.io", SPEC),
    ("endpointslices.discovery.k8s.io", &["/addressType", "/endpoints", "/ports", "/metadata/labels"]),
    ("flowschemas.flowcontrol.apiserver.k8s.io", SPEC),
    ("ingressclasses.networking.k8s.io", SPEC),
    ("ingresses.networking.k8s.io", SPEC),
    ("jobs.batch", SPEC),
    ("mutatingadmissionpolicies.admissionregistration.k8s.io", SPEC),
    ("mutatingadmissionpolicybindings.admissionregistration.k8s.io", SPEC),
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", &["/webhooks"]),
    ("networkpolicies.networking.k8s.io", SPEC),
    ("poddisruptionbudgets.policy", SPEC),
    ("pods", SPEC),
    ("podtemplates", &["/template"]),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", SPEC),
    ("replicasets.apps", SPEC),
    ("replicationcontrollers", SPEC),
    ("resourceslices.resource.k8s.io", SPEC),
    ("statefulsets.apps", SPEC),
    ("validatingadmissionpolicies.admissionregistration.k8s.io", SPEC),
    ("validatingadmissionpolicybindings.admissionregistration.k8s.io", SPEC),
    ("validatingwebhookconfigurations.admissionregistration.k8s.io", &["/webhooks"]),
];
const SPEC: &[&str] = &["/spec"];

/// Created without a generation; the first change sets 1.
const GENERATIONS_FROM_NOTHING: &[(&str, &[&str])] = &[("csidrivers.storage.k8s.io", SPEC)];

const GENERATIONS_FIXED: &[&str] = &["priorityclasses.scheduling.k8s.io"];

pub(super) const CREATE_ON_UPDATE: &[&str] = &[
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "endpoints",
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "limitranges",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "runtimeclasses.node.k8s.io",
    "services",
];

pub(super) const UPDATE_NEEDS_VERSION: &[&str] = &[
    "apiservices.apiregistration.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "leases.coordination.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "poddisruptionbudgets.policy",
    "runtimeclasses.node.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "volumeattachments.storage.k8s.io",
];

pub(super) const DELETE_ANSWERS_OBJECT: &[&str] = &[
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourcequotas",
    "resourceslices.resource.k8s.io",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

/// A label, and what an absent value equals.
type Field = (&'static str, &'static str);

/// Selectable fields, beside name and namespace.
const SELECTABLE: &[(&str, &[Field])] = &[
    ("certificatesigningrequests.certificates.k8s.io", &[("spec.signerName", "")]),
    (
        "events",
        &[
            ("involvedObject.kind", ""),
            ("involvedObject.namespace", ""),
            ("involvedObject.name", ""),
            ("involvedObject.uid", ""),
            ("involvedObject.apiVersion", ""),
            ("involvedObject.resourceVersion", ""),
            ("involvedObject.fieldPath", ""),
            ("reason", ""),
            ("reportingComponent", ""),
            ("source", ""),
            ("type", ""),
        ],
    ),
    (
        "events.events.k8s.io",
        &[
            ("regarding.kind", ""),
            ("regarding.namespace", ""),
            ("regarding.name", ""),
            ("regarding.uid", ""),
            ("regarding.apiVersion", ""),
            ("regarding.resourceVersion", ""),
            ("regarding.fieldPath", ""),
            ("reason", ""),
            ("reportingController", ""),
            ("type", ""),
        ],
    ),
    ("jobs.batch", &[("status.successful", "0")]),
    ("namespaces", &[("status.phase", "")]),
    ("nodes", &[("spec.unschedulable", "false")]),
    (
        "pods",
        &[
            ("spec.host", ""),
            ("spec.hostNetwork", "false"),
            ("spec.nodeName", ""),
            ("spec.restartPolicy", ""),
            ("spec.schedulerName", ""),
            ("spec.serviceAccountName", ""),
            ("status.nominatedNodeName", ""),
            ("status.phase", ""),
            ("status.podIP", ""),
            ("status.podIPs", ""),
        ],
    ),
    ("replicationcontrollers", &[("status.replicas", "0")]),
    ("resourceslices.resource.k8s.io", &[("spec.driver", ""), ("spec.nodeName", "")]),
    ("secrets", &[("type", "")]),
    ("services", &[("spec.clusterIP", ""), ("spec.type", "")]),
];

/// Selectable fields whose label differs from the path of the value. The first pointer to a value that is not empty
/// wins.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("source", &["/source/component", "/reportingComponent"]),
    ("spec.host", &["/spec/nodeName"]),
    ("status.podIP", &["/status/podIPs/0/ip"]),
    // A selector may use it, but it never matches a value in Kubernetes either.
    ("status.podIPs", &[]),
    ("status.successful", &["/status/succeeded"]),
];

pub(super) fn generation(key: &str) -> Generation {
    let within = |first: i64, parts: &[&str]| Generation::Within { first, parts: shared(parts) };
    if let Some((_, parts)) = GENERATIONS.iter().find(|(resource, _)| *resource == key) {
        return within(1, parts);
    }
    if let Some((_, parts)) = GENERATIONS_FROM_NOTHING.iter().find(|(resource, _)| *resource == key) {
        return within(0, parts);
    }
    match GENERATIONS_FIXED.contains(&key) {
        true => Generation::Fixed,
        false => Generation::Never,
    }
}

pub(super) fn selectable(key: &str) -> Vec<SelectableField> {
    let fields =
        SELECTABLE.iter().find(|(resource, _)| *resource == key).map_or(&[][..], |(_, fields)| fields);
    fields
        .iter()
        .map(|(label, absent)| SelectableField { absent: (*absent).into(), ..field(label) })
        .collect()
}

/// Returns a selectable field with the pointer of its label; empty if the value is absent.
pub(super) fn field(label: &str) -> SelectableField {
    let pointers = match ELSEWHERE.iter().find(|(moved, _)| *moved == label) {
        Some((_, pointers)) => shared(pointers),
        None => vec![format!("/{}", label.replace('.', "/")).into()],
    };
    SelectableField { label: label.into(), pointers, absent: "".into() }
}

fn shared(texts: &[&str]) -> Vec<Arc<str>> {
    texts.iter().map(|text| (*text).into()).collect()
}

/// Returns every resource that has an entry in these tables.
#[cfg(test)]
pub(super) fn mentioned() -> impl Iterator<Item = &'static str> {
    let generations = GENERATIONS.iter().chain(GENERATIONS_FROM_NOTHING).map(|(key, _)| *key);
    let selectable = SELECTABLE.iter().map(|(key, _)| *key);
    let lists = [GENERATIONS_FIXED, CREATE_ON_UPDATE, UPDATE_NEEDS_VERSION, DELETE_ANSWERS_OBJECT]
        .into_iter()
        .flatten()
        .copied();
    generations.chain(selectable).chain(lists)
}
