//! Validation of roles and their bindings.

use serde_json::Value;

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Each, OneOf, Required, Selector, Text};
use crate::validation::rule::Rule::{Check, Field};
use crate::validation::rule::{REQUIRED, Table};
use crate::validation::value::{get, items, same, text};
use api::meta::field::ErrorType;
use api::meta::go;
use api::meta::names::{dns1123_subdomain, path_segment};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) const RULES: Table = &[
    ("rbac.v1.Role", &[Check(role)]),
    ("rbac.v1.ClusterRole", &[Check(cluster_role)]),
    ("rbac.v1.RoleBinding", &[Check(role_binding)]),
    ("rbac.v1.ClusterRoleBinding", &[Check(cluster_role_binding)]),
    (
        "rbac.v1.AggregationRule",
        &[Field(
            "clusterRoleSelectors",
            &[
                Required("at least one clusterRoleSelector required if aggregationRule is non-nil"),
                Each(&[Selector]),
            ],
        )],
    ),
    (
        "rbac.v1.RoleRef",
        &[Field("apiGroup", &[OneOf(&[GROUP])]), Field("name", &[REQUIRED, Text(path_segment)])],
    ),
];

fn role(role: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    rules(role, true, at, found);
}

fn cluster_role(role: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    rules(role, false, at, found);
}

fn rules(role: &Value, namespaced: bool, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, rule) in items(role, "rules").iter().enumerate() {
        let list = at.field("rules");
        let item = list.index(index);
        let none = |field: &str| items(rule, field).is_empty();
        if none("verbs") {
            found.required(&item.field("verbs"), "verbs must contain at least one value");
        }
        if !none("nonResourceURLs") {
            let (urls, at) = (get(rule, "nonResourceURLs"), item.field("nonResourceURLs"));
            if namespaced {
                found.invalid(&at, urls.clone(), "namespaced rules cannot apply to non-resource URLs");
            }
            if !(none("apiGroups") && none("resources") && none("resourceNames")) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                found.invalid(&at, urls.clone(), detail);
            }
            continue;
        }
        if none("apiGroups") {
            found.required(&item.field("apiGroups"), "resource rules must supply at least one api group");
        }
        if none("resources") {
            found.required(&item.field("resources"), "resource rules must supply at least one resource");
        }
    }
}

fn role_binding(binding: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    role_kind(binding, &["Role", "ClusterRole"], at, found);
    subjects(binding, true, at, found);
}

fn cluster_role_binding(binding: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    role_kind(binding, &["ClusterRole"], at, found);
    subjects(binding, false, at, found);
}

fn role_kind(binding: &Value, kinds: &[&str], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let kind = text(get(binding, "roleRef"), "kind");
    if !kinds.contains(&kind) {
        found.not_supported(&at.field("roleRef.kind"), kind, kinds);
    }
}

/// Checks that a binding keeps its role.
pub(crate) fn validate_update_binding(old: &Value, new: &Value, found: &mut FieldErrors) {
    let role = get(new, "roleRef");
    if same(get(old, "roleRef"), role) {
        return;
    }
    let fields = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
    let formatted = fields.map(|(name, field)| format!("\"{name}\":{}", go::quote(text(role, field))));
    let formatted = format!("{{{}}}", formatted.join(","));
    found.error_with_text(
        &FieldPath::TOP.field("roleRef"),
        ErrorType::Invalid,
        &formatted,
        "cannot change roleRef",
    );
}

fn subjects(binding: &Value, namespaced: bool, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, subject) in items(binding, "subjects").iter().enumerate() {
        let list = at.field("subjects");
        let item = list.index(index);
        let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
        if name.is_empty() {
            found.required(&item.field("name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    found.faults(&item.field("name"), name, dns1123_subdomain(name));
                }
                if !group.is_empty() {
                    found.not_supported(&item.field("apiGroup"), group, &[""]);
                }
                if !namespaced && text(subject, "namespace").is_empty() {
                    found.required(&item.field("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    found.not_supported(&item.field("apiGroup"), group, &[GROUP]);
                }
            }
            kind => found.not_supported(&item.field("kind"), kind, &["ServiceAccount", "User", "Group"]),
        }
    }
}
