//! Validation of API priority and fairness: FlowSchemas and PriorityLevelConfigurations.

use serde_json::Value;

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{AtLeast, AtMost, Code, OneOf, Required, Text};
use crate::validation::rule::Rule::{Check, Field, Into};
use crate::validation::rule::{FieldRule, REQUIRED, Table};
use crate::validation::value::{at as path_in, get, has, int, items, text};
use api::meta::names::{dns1123_label, dns1123_subdomain};

const VERBS: &[&str] =
    &["*", "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const WITHIN: &str = "must be between 0 and 100, inclusive";

const NO_VERBS: FieldRule = Required("verbs must contain at least one value");

pub(super) const RULES: Table = &[
    ("flowcontrol.v1.FlowSchema", &[Check(precedence), Into("spec")]),
    ("flowcontrol.v1.FlowDistinguisherMethod", &[Field("type", &[OneOf(&["ByNamespace", "ByUser"])])]),
    (
        "flowcontrol.v1.PriorityLevelConfigurationReference",
        &[Field("name", &[Required("must reference a priority level"), Text(dns1123_subdomain)])],
    ),
    (
        "flowcontrol.v1.PolicyRulesWithSubjects",
        &[
            Field("subjects", &[Required("subjects must contain at least one value")]),
            Into("subjects"),
            Check(any_rules),
            Into("resourceRules"),
            Into("nonResourceRules"),
        ],
    ),
    ("flowcontrol.v1.Subject", &[Check(subject)]),
    (
        "flowcontrol.v1.ResourcePolicyRule",
        &[
            Field("verbs", &[NO_VERBS, Code(verbs)]),
            Field("apiGroups", &[Required("resource rules must supply at least one api group")]),
            Field("resources", &[Required("resource rules must supply at least one resource")]),
            Check(rule_namespaces),
        ],
    ),
    (
        "flowcontrol.v1.NonResourcePolicyRule",
        &[
            Field("verbs", &[NO_VERBS, Code(verbs)]),
            Field("nonResourceURLs", &[Required("nonResourceURLs must contain at least one value")]),
        ],
    ),
    ("flowcontrol.v1.PriorityLevelConfiguration", &[Check(level), Into("spec")]),
    (
        "flowcontrol.v1.LimitedPriorityLevelConfiguration",
        &[
            Field("nominalConcurrencyShares", &[AtLeast(0, "must be a non-negative integer")]),
            Into("limitResponse"),
            Field("lendablePercent", &[AtLeast(0, WITHIN), AtMost(100, WITHIN)]),
            Field("borrowingLimitPercent", &[AtLeast(0, "if specified, must be a non-negative integer")]),
        ],
    ),
    ("flowcontrol.v1.LimitResponse", &[Field("type", &[REQUIRED, OneOf(&["Queue", "Reject"])])]),
];

fn precedence(schema: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let precedence = int(get(schema, "spec"), "matchingPrecedence");
    let at = at.field("spec.matchingPrecedence");
    let name = path_in(schema, "metadata.name").as_str().unwrap_or_default();
    if precedence <= 0 {
        found.invalid(&at, precedence, "must be a positive value");
    }
    if precedence > 10000 {
        found.invalid(&at, precedence, "must not be greater than 10000");
    }
    if precedence == 1 && name != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        found.invalid(&at, precedence, detail);
    }
}

fn any_rules(rules: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if items(rules, "resourceRules").is_empty() && items(rules, "nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        found.required(at, detail);
    }
}

/// The kinds of subjects, and the field that names the subject.
const SUBJECTS: [(&str, &str); 3] =
    [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn subject(subject: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let kind = text(subject, "kind");
    let Some((_, field)) = SUBJECTS.iter().find(|(subject_kind, _)| *subject_kind == kind) else {
        return found.not_supported(&at.field("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let (subject_value, subject_at) = (get(subject, field), at.field(field));
    if subject_value.is_null() {
        found.required(&subject_at, &format!("{field} is required when subject kind is '{kind}'"));
    } else {
        let name = text(subject_value, "name");
        match name {
            "" => found.required(&subject_at.field("name"), ""),
            "*" => {}
            _ if kind == "ServiceAccount" => {
                found.faults(&subject_at.field("name"), name, dns1123_subdomain(name));
            }
            _ => {}
        }
        if kind == "ServiceAccount" {
            match text(subject_value, "namespace") {
                "" => found
                    .required(&subject_at.field("namespace"), "must specify namespace for service account"),
                namespace => {
                    found.faults(&subject_at.field("namespace"), namespace, dns1123_label(namespace))
                }
            }
        }
    }
    for (other, field) in SUBJECTS.iter().filter(|(other, field)| *other != kind && has(subject, field)) {
        let detail = format!("{field} is forbidden when subject kind is not '{other}'");
        found.forbidden(&at.field(field), detail);
    }
}

fn verbs(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let verbs = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if verbs.iter().any(|verb| verb == "*") {
        if verbs.len() > 1 {
            found.invalid(at, value.clone(), "if '*' is present, must not specify other verbs");
        }
    } else if verbs.iter().filter_map(Value::as_str).any(|verb| !VERBS.contains(&verb)) {
        found.not_supported(at, value.clone(), &VERBS[1..]);
    }
}

fn rule_namespaces(rule: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (names, at) = (items(rule, "namespaces"), at.field("namespaces"));
    let all = names.iter().any(|name| name == "*");
    if names.is_empty() && get(rule, "clusterScope").as_bool() != Some(true) {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        found.required(&at, detail);
    } else if all && names.len() > 1 {
        found.invalid(&at, names.to_vec(), "if '*' is present, must not specify other namespaces");
    }
    for (index, name) in names.iter().filter_map(Value::as_str).enumerate().filter(|_| !all) {
        for fault in dns1123_label(name) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
            found.invalid(&at.index(index), name, detail);
        }
    }
}

fn level(level: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let name = path_in(level, "metadata.name").as_str().unwrap_or_default();
    let (spec, at) = (get(level, "spec"), at.field("spec"));
    let kind = text(spec, "type");
    if (name == "exempt") != (kind == "Exempt") {
        found.invalid(&at.field("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind {
        "Exempt" if has(spec, "limited") => {
            found.forbidden(&at.field("limited"), "must be nil if the type is not Limited");
        }
        "Limited" if has(spec, "exempt") => {
            found.forbidden(&at.field("exempt"), "must be nil if the type is Limited");
        }
        "Limited" if !has(spec, "limited") => {
            found.required(&at.field("limited"), "must not be empty when type is Limited");
        }
        "Exempt" | "Limited" => {}
        "" => found.required(&at.field("type"), ""),
        _ => found.not_supported(&at.field("type"), kind, &["Exempt", "Limited"]),
    }
}
