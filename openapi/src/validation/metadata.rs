//! Validation of the metadata of every object.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::catalog::resource_info::ResourceInfo;
use crate::schema::Origin;
use api::meta::field::{ErrorType, FieldError};
use api::meta::go;
use api::meta::names::{NameRule, dns1123_label, qualified_name};

use super::value::{get, items, same, text, truth};
use crate::validation::common;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::name_rules::name_rule;

const METADATA: &str = "metadata";
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];
pub(super) const UNQUALIFIED_FINALIZER: &str =
    "name is neither a standard finalizer name nor is it fully qualified";

/// Built-in resources and subresources whose finalizers need no domain: by name, and `*` for a whole group. The list
/// was determined with a Kubernetes API server, kind by kind.
const ANY_FINALIZER: &[&str] = &[
    "*.admissionregistration.k8s.io",
    "apiservices.apiregistration.k8s.io",
    "cronjobs.batch/status",
    "customresourcedefinitions.apiextensions.k8s.io",
    "events",
    "leases.coordination.k8s.io",
    "poddisruptionbudgets.policy",
    "poddisruptionbudgets.policy/status",
    "runtimeclasses.node.k8s.io",
];

/// Validates names, labels, annotations, owners and finalizers. `subresource` is the subresource that is written, if
/// any.
pub(super) fn validate(
    resource: &ResourceInfo,
    subresource: Option<&str>,
    object: &Value,
    found: &mut FieldErrors,
) {
    let at = FieldPath::TOP.field(METADATA);
    let metadata = get(object, METADATA);
    validate_at(metadata, &at, name_rule(resource), resource.namespaced, found);
    let (finalizers, at) = (items(metadata, "finalizers"), at.field("finalizers"));
    for (index, name) in finalizers.iter().filter_map(Value::as_str).enumerate() {
        if !is_qualified_finalizer(name) && needs_domain(resource, subresource) {
            found.invalid(&at.index(index), name, UNQUALIFIED_FINALIZER);
        }
    }
}

/// Reports whether finalizers of a kind are invalid without a domain. For custom kinds it is only a warning: many
/// operators have finalizers without a domain.
fn needs_domain(resource: &ResourceInfo, subresource: Option<&str>) -> bool {
    let name = resource.qualified();
    let is_listed = |listed: &&str| match (listed.strip_prefix("*."), subresource) {
        (Some(group), _) => *resource.group == *group,
        (None, None) => **listed == name,
        (None, Some(subresource)) => listed.split_once('/') == Some((name.as_str(), subresource)),
    };
    resource.origin == Origin::BuiltIn && !ANY_FINALIZER.iter().any(is_listed)
}

pub(super) fn is_qualified_finalizer(name: &str) -> bool {
    name.contains('/') || STANDARD_FINALIZERS.contains(&name)
}

/// Returns warnings about new finalizers of a custom object.
pub(crate) fn finalizer_warnings(old: Option<&Value>, new: &Value) -> Vec<String> {
    let of = |object: &Value| -> BTreeSet<String> {
        let names = items(get(object, METADATA), "finalizers").iter().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    let old_names = old.map(of).unwrap_or_default();
    let added = of(new).into_iter().filter(|name| !old_names.contains(name) && !is_qualified_finalizer(name));
    let warning = |name: String| {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts \
             with other finalizer writers",
            go::quote(&name)
        )
    };
    added.map(warning).collect()
}

/// Validates the metadata of an embedded object, which need not have a name.
pub(crate) fn embedded_metadata(metadata: &Value, path: &str) -> Vec<FieldError> {
    let mut found = FieldErrors::default();
    let namespaced = !text(metadata, "namespace").is_empty();
    validate_at(metadata, &FieldPath::TOP.field(path), NameRule::PathSegment, namespaced, &mut found);
    let nameless = format!("{path}.name");
    found.errors.retain(|error| error.fault != ErrorType::Required || error.field != nameless);
    found.errors
}

fn validate_at(
    metadata: &Value,
    at: &FieldPath<'_>,
    rule: NameRule,
    namespaced: bool,
    found: &mut FieldErrors,
) {
    let (name, prefix) = (text(metadata, "name"), text(metadata, "generateName"));
    if !prefix.is_empty() {
        found.faults(&at.field("generateName"), prefix, rule.check_prefix(prefix));
    }
    match name {
        "" => found.required(&at.field("name"), "name or generateName is required"),
        _ => found.faults(&at.field("name"), name, rule.check(name)),
    }
    let namespace = text(metadata, "namespace");
    match (namespaced, namespace) {
        (true, "") => found.required(&at.field("namespace"), ""),
        (true, _) => found.faults(&at.field("namespace"), namespace, dns1123_label(namespace)),
        (false, "") => {}
        (false, _) => found.forbidden(&at.field("namespace"), "not allowed on this type"),
    }
    common::labels(get(metadata, "labels"), &at.field("labels"), found);
    common::annotations(get(metadata, "annotations"), &at.field("annotations"), found);
    owners(metadata, &at.field("ownerReferences"), found);
    finalizers(metadata, &at.field("finalizers"), found);
}

fn owners(metadata: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let owners = items(metadata, "ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners {
        let (version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
        // Of `group/version` only the version is required.
        if version.split('/').next_back().is_none_or(str::is_empty) || version.matches('/').count() > 1 {
            found.invalid(&at.field("apiVersion"), version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                found.invalid(&at.field(field), "", "must not be empty");
            }
        }
        if version == "v1" && kind == "Event" {
            found.invalid(at, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
        }
        if truth(owner, "controller") {
            let this = format!("{kind}/{}", text(owner, "name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {this}"
                    );
                    found.error_with_text(at, ErrorType::Invalid, &in_order(owners), &detail);
                }
            }
        }
    }
}

/// Formats owners with their fields in the order of Kubernetes.
fn in_order(owners: &[Value]) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let formatted = owners.iter().map(|owner| {
        let present = fields.iter().filter(|field| !get(owner, field).is_null());
        let present: Vec<_> = present.map(|field| format!("\"{field}\":{}", get(owner, field))).collect();
        format!("{{{}}}", present.join(","))
    });
    format!("[{}]", formatted.collect::<Vec<_>>().join(","))
}

fn finalizers(metadata: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let finalizers = items(metadata, "finalizers");
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        found.faults(at, finalizer, qualified_name(finalizer));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        found.invalid(at, get(metadata, "finalizers").clone(), detail);
    }
}

/// Validates the metadata of an update of any object.
pub(super) fn validate_update(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (old, new, at) = (get(old, METADATA), get(new, METADATA), FieldPath::TOP.field(METADATA));
    if !get(old, "deletionTimestamp").is_null() {
        let old_names = items(old, "finalizers");
        let added: Vec<_> =
            items(new, "finalizers").iter().filter(|name| !old_names.contains(name)).collect();
        if !added.is_empty() {
            let mut added: Vec<_> = added.iter().filter_map(|name| name.as_str()).map(go::quote).collect();
            added.sort_unstable();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            found.forbidden(&at.field("finalizers"), detail);
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"] {
        let value = get(new, field);
        if !same(get(old, field), value) {
            found.invalid(&at.field(field), value.clone(), common::IMMUTABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn every_resource_with_short_finalizers_exists() {
        for listed in ANY_FINALIZER {
            let name = listed.split('/').next().unwrap_or_default();
            let is_meant = |resource: &ResourceInfo| match name.strip_prefix("*.") {
                Some(group) => *resource.group == *group,
                None => resource.qualified() == name,
            };
            assert!(catalog::built_in().iter().any(|resource| is_meant(resource)), "{listed}");
        }
    }
}
