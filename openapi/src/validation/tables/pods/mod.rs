//! Validation of pods and pod templates.
//!
//! The spec of a pod is one type in both. Rules only for pods belong to `Pod`, rules only for templates to
//! `PodTemplateSpec`.

pub(super) mod containers;
mod mounts;
pub(super) mod scheduling;
pub(super) mod security;
mod spec;
mod status;
mod subresources;
mod update;
pub(super) mod volumes;

use serde_json::Value;

use crate::validation::common;
use crate::validation::common::search_domain;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Between, Code, Each, Labels, OneOf, Required, Text, Unique};
use crate::validation::rule::Rule::{Check, Field, Into, Skip};
use crate::validation::rule::{REQUIRED, Table};
use crate::validation::value::{get, has, items, text};
use api::meta::names::{dns1123_label, dns1123_subdomain, qualified_name};
use api::meta::net;

use update::MIRROR;

pub(crate) use status::validate_status;
pub(crate) use subresources::{validate_ephemeral_containers, validate_resize};
pub(crate) use update::validate as validate_update;

pub(super) const RULES: Table = &[
    ("core.v1.Pod", &[Into("spec"), Check(pod)]),
    ("core.v1.PodTemplateSpec", &[Check(template_metadata), Into("spec"), Check(template)]),
    (
        "core.v1.PodSpec",
        &[
            Into("volumes"),
            Field("volumes", &[Unique("name")]),
            Into("resourceClaims"),
            Field("resourceClaims", &[Unique("name")]),
            Field("containers", &[REQUIRED]),
            Into("containers"),
            Check(spec::containers),
            Into("initContainers"),
            Check(spec::init_containers),
            Into("ephemeralContainers"),
            Check(spec::ephemeral_containers),
            Skip("resources"),
            Field("resources", &[Code(spec::resources)]),
            Check(spec::host_network),
            Field("restartPolicy", &[REQUIRED, OneOf(&["Always", "OnFailure", "Never"])]),
            Field(
                "dnsPolicy",
                &[REQUIRED, OneOf(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"])],
            ),
            Field("nodeSelector", &[Labels]),
            Into("securityContext"),
            Check(spec::namespaces),
            Into("affinity"),
            Check(dns),
            Into("readinessGates"),
            Field("schedulingGates", &[Code(scheduling_gates)]),
            Field("topologySpreadConstraints", &[Code(crate::validation::tables::pods::scheduling::spread)]),
            Check(spec::host_name),
            Field("serviceAccountName", &[Text(dns1123_subdomain)]),
            Field("nodeName", &[Text(dns1123_subdomain)]),
            Field("activeDeadlineSeconds", &[Between(1, i32::MAX as i64)]),
            Field("hostname", &[Text(dns1123_label)]),
            Field("subdomain", &[Text(dns1123_label)]),
            Into("tolerations"),
            Into("hostAliases"),
            Field("priorityClassName", &[Text(dns1123_subdomain)]),
            Field("runtimeClassName", &[Text(dns1123_subdomain)]),
            Field("preemptionPolicy", &[OneOf(&["PreemptLowerPriority", "Never"])]),
            Check(spec::overhead),
            Check(spec::os),
            Check(spec::files_of_variables),
        ],
    ),
    (
        "core.v1.PodResourceClaim",
        &[
            Field("name", &[REQUIRED, Text(dns1123_label)]),
            Field("resourceClaimName", &[Text(dns1123_subdomain)]),
            Field("resourceClaimTemplateName", &[Text(dns1123_subdomain)]),
        ],
    ),
    ("core.v1.PodReadinessGate", &[Check(condition_type)]),
    (
        "core.v1.HostAlias",
        &[Check(alias_ip), Field("hostnames", &[Each(&[Required(""), Text(dns1123_subdomain)])])],
    ),
    (
        "core.v1.PodDNSConfig",
        &[
            Field("nameservers", &[Each(&[Text(net::ip)])]),
            Field("searches", &[Each(&[Text(search_domain)])]),
            Field("options", &[Each(&[Code(dns_option)])]),
        ],
    ),
    ("core.v1.PodTemplate", &[Into("template")]),
];

fn condition_type(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let name = text(value, "conditionType");
    found.faults(&at.field("conditionType"), name, qualified_name(name));
}

fn alias_ip(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let ip = text(value, "ip");
    found.faults(&at.field("ip"), ip, net::ip(ip));
}

fn dns_option(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if text(value, "name").is_empty() {
        found.required(at, "must not be empty");
    }
}

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

fn dns(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (config, at) = (get(spec, "dnsConfig"), at.field("dnsConfig"));
    let (servers, searches) = (items(config, "nameservers"), items(config, "searches"));
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            return found.required(&at, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return found.required(&at.field("nameservers"), detail);
        }
    }
    if servers.len() > MAX_NAMESERVERS {
        let detail = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        found.invalid(&at.field("nameservers"), servers.to_vec(), detail);
    }
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        found.invalid(&at.field("searches"), searches.to_vec(), detail);
    }
    let chars = |search: &Value| search.as_str().map(str::len).unwrap_or_default() + 1;
    if searches.iter().map(chars).sum::<usize>() > MAX_SEARCH_CHARS + 1 {
        let detail = format!(
            "must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list"
        );
        found.invalid(&at.field("searches"), searches.to_vec(), detail);
    }
}

/// Validates scheduling gates. Errors are reported at the item instead of its name.
fn scheduling_gates(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let gates = value.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        found.faults(&at.index(index), name, qualified_name(name));
        if gates[..index].iter().any(|other| text(other, "name") == name) {
            found.duplicate(&at.index(index), name);
        }
    }
}

/// Rules for a pod itself, new or not.
fn pod(pod: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (metadata, spec) = (get(pod, "metadata"), get(pod, "spec"));
    annotations(get(metadata, "annotations"), spec, &at.field("metadata.annotations"), found);
    let at = at.field("spec");
    let pod_volumes = items(spec, "volumes");
    volumes::ephemeral_claims(text(metadata, "name"), pod_volumes, &at.field("volumes"), found);
    if text(spec, "serviceAccountName").is_empty() {
        tokens_without_account(pod_volumes, &at.field("volumes"), found);
    }
    for (index, volume) in pod_volumes.iter().enumerate() {
        let image = get(volume, "image");
        if !image.is_null() && text(image, "reference").is_empty() {
            found.required(&at.field("volumes").index(index).field("image.reference"), "");
        }
    }
    for list in ["containers", "initContainers"] {
        spec::images_are_trimmed(spec, list, &at, found);
    }
}

fn tokens_without_account(volumes: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, volume) in volumes.iter().enumerate() {
        for (source_index, source) in items(get(volume, "projected"), "sources").iter().enumerate() {
            if has(source, "serviceAccountToken") {
                let item = at.index(index);
                let sources = item.field("projected.sources");
                let source = sources.index(source_index);
                let detail = "must not be specified when serviceAccountName is not set";
                found.forbidden(&source.field("serviceAccountToken"), detail);
            }
        }
    }
}

/// Rules for new pods only.
pub(crate) fn validate_create(pod: &Value, found: &mut FieldErrors) {
    let (spec, at) = (get(pod, "spec"), FieldPath::TOP.field("spec"));
    if !items(spec, "ephemeralContainers").is_empty() {
        found.forbidden(&at.field("ephemeralContainers"), "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && !items(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        found.forbidden(&at.field("nodeName"), detail);
    }
}

/// Validates the labels and annotations of a template. Kubernetes reports paths without `metadata` here.
fn template_metadata(template: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let metadata = get(template, "metadata");
    common::labels(get(metadata, "labels"), &at.field("labels"), found);
    let notes = get(metadata, "annotations");
    common::annotations(notes, &at.field("annotations"), found);
    annotations(notes, get(template, "spec"), &at.field("annotations"), found);
}

fn template(template: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !items(get(template, "spec"), "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        found.forbidden(&at.field("spec.ephemeralContainers"), detail);
    }
}

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Validates annotations with a meaning for pods.
fn annotations(annotations: &Value, spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if let Some(value) = get(annotations, MIRROR).as_str()
        && text(spec, "nodeName").is_empty()
    {
        found.invalid(&at.key(MIRROR), value, "must set spec.nodeName if mirror pod annotation is set");
    }
    if let Some(cost) = get(annotations, DELETION_COST).as_str() {
        let starts_well =
            cost == "0" || cost.starts_with('-') || cost.starts_with(|c| ('1'..='9').contains(&c));
        if !starts_well || cost.parse::<i32>().is_err() {
            found.invalid(&at.key(DELETION_COST), cost, "must be a 32bit integer");
        }
    }
}

/// Validates the annotations with a meaning for pods after an update, and checks that the immutable one stays.
fn validate_annotation_update(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (before, after) = (get(old, "metadata"), get(new, "metadata"));
    update::mirror(before, after, found);
    let path = FieldPath::TOP.field("metadata.annotations");
    annotations(get(after, "annotations"), get(new, "spec"), &path, found);
}
