//! Validation of affinity, tolerations and topology spread constraints.

use serde_json::Value;

use crate::validation::common;
use crate::validation::common::POSITIVE;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Required, Selector};
use crate::validation::rule::Rule::{Check, Field, Into, Skip};
use crate::validation::rule::Table;
use crate::validation::value::{entries, get, has, int, items, text};
use api::meta::names::{dns1123_label, dns1123_subdomain, label_value, qualified_name};

pub(in crate::validation) const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(in crate::validation) const RULES: Table = &[
    (
        "core.v1.NodeSelector",
        &[Field("nodeSelectorTerms", &[Required("must have at least one node selector term")])],
    ),
    ("core.v1.NodeSelectorTerm", &[Check(term)]),
    ("core.v1.PreferredSchedulingTerm", &[Check(weight), Skip("preference"), Check(preference)]),
    ("core.v1.WeightedPodAffinityTerm", &[Check(weight), Into("podAffinityTerm")]),
    (
        "core.v1.PodAffinityTerm",
        &[
            Field("labelSelector", &[Selector]),
            Field("namespaceSelector", &[Selector]),
            Check(namespaces),
            Check(label_keys),
            Check(topology_key),
        ],
    ),
    ("core.v1.Toleration", &[Check(toleration)]),
    (
        "core.v1.TopologySelectorLabelRequirement",
        &[Field("values", &[Required("")]), Check(topology_requirement)],
    ),
];

fn weight(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let weight = int(value, "weight");
    if !(1..=100).contains(&weight) {
        found.invalid(&at.field("weight"), weight, "must be in the range 1-100");
    }
}

fn term(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    validate_term(value, true, at, found);
}

/// Validates a preferred term. It may contain invalid label values, which never match.
fn preference(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    validate_term(get(value, "preference"), false, &at.field("preference"), found);
}

fn validate_term(value: &Value, with_values: bool, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, requirement) in items(value, "matchExpressions").iter().enumerate() {
        let list = at.field("matchExpressions");
        expression(requirement, with_values, &list.index(index), found);
    }
    for (index, requirement) in items(value, "matchFields").iter().enumerate() {
        let list = at.field("matchFields");
        field(requirement, &list.index(index), found);
    }
}

fn expression(requirement: &Value, with_values: bool, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let values = items(requirement, "values");
    let values_at = at.field("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            found.required(&values_at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            found.forbidden(&values_at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }
        "Gt" | "Lt" if values.len() != 1 => {
            found.required(&values_at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        operator => found.invalid(&at.field("operator"), operator, "not a valid selector operator"),
    }
    let key = text(requirement, "key");
    found.faults(&at.field("key"), key, qualified_name(key));
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate().filter(|_| with_values) {
        found.faults(&values_at.index(index), value, label_value(value));
    }
}

/// Validates a requirement on a node's fields, of which only the name is selectable.
fn field(requirement: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let values = items(requirement, "values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => found.required(
            &at.field("values"),
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        operator => found.invalid(&at.field("operator"), operator, "not a valid selector operator"),
    }
    match text(requirement, "key") {
        "metadata.name" => {
            for (index, name) in values.iter().filter_map(Value::as_str).enumerate() {
                found.faults(&at.field("values").index(index), name, dns1123_subdomain(name));
            }
        }
        key => found.invalid(&at.field("key"), key, "not a valid field selector key"),
    }
}

fn namespaces(term: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for name in items(term, "namespaces").iter().filter_map(Value::as_str) {
        found.faults(&at.field("namespace"), name, dns1123_label(name));
    }
}

/// Validates the keys of pod labels that a selector uses.
fn label_keys(term: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, at) = (items(term, list), at.field(list));
        if keys.is_empty() {
            continue;
        }
        if !has(term, "labelSelector") {
            found.forbidden(&at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            found.faults(&at.index(index), key, qualified_name(key));
        }
    }
    let mismatched = items(term, "mismatchLabelKeys");
    for (index, key) in items(term, "matchLabelKeys").iter().enumerate() {
        if mismatched.contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            found.invalid(&at.field("matchLabelKeys").index(index), key.clone(), detail);
        }
    }
    let selector = get(term, "labelSelector");
    let mut chosen: Vec<&str> = entries(selector, "matchLabels").map(|(key, _)| key.as_str()).collect();
    for requirement in items(selector, "matchExpressions") {
        let key = text(requirement, "key");
        let index =
            items(term, "matchLabelKeys").iter().rposition(|label_key| label_key.as_str() == Some(key));
        if let Some(index) = index.filter(|_| chosen.contains(&key)) {
            found.invalid(&at.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
        chosen.push(key);
    }
}

fn topology_key(term: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (key, at) = (text(term, "topologyKey"), at.field("topologyKey"));
    if key.is_empty() {
        found.required(&at, "can not be empty");
    }
    found.faults(&at, key, qualified_name(key));
}

fn toleration(toleration: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
    let operator_at = at.field("operator");
    if !key.is_empty() {
        found.faults(&at.field("key"), key, qualified_name(key));
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        found.invalid(&operator_at, operator, detail);
    }
    if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        found.invalid(&at.field("effect"), effect, detail);
    }
    match operator {
        "Equal" | "" => {
            let faults = label_value(value);
            if !faults.is_empty() {
                found.invalid(&operator_at, value, faults.join(";"));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => found.invalid(&operator_at, value, "value must be empty when `operator` is 'Exists'"),
        "Lt" | "Gt" => found.not_supported(&operator_at, operator, &["Equal", "Exists", "Lt", "Gt"]),
        _ => found.not_supported(&operator_at, operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        found.not_supported(&at.field("effect"), effect, EFFECTS);
    }
}

/// Validates topology spread constraints.
pub(in crate::validation) fn spread(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let constraints = value.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, constraint) in constraints.iter().enumerate() {
        let item = at.index(index);
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if int(constraint, "maxSkew") <= 0 {
            found.invalid(&item.field("maxSkew"), int(constraint, "maxSkew"), POSITIVE);
        }
        if key.is_empty() {
            found.required(&item.field("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            found.not_supported(&item.field("whenUnsatisfiable"), action, &actions);
        }
        let is_repeated =
            |other: &Value| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action;
        if constraints[index + 1..].iter().any(is_repeated) {
            let pair = item.field("{topologyKey, whenUnsatisfiable}");
            found.duplicate(&pair, format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = get(constraint, "minDomains").as_i64() {
            let at = item.field("minDomains");
            if domains <= 0 {
                found.invalid(&at, domains, POSITIVE);
            }
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                found.invalid(&at, domains, detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let word = text(constraint, policy);
            if has(constraint, policy) && !["Honor", "Ignore"].contains(&word) {
                found.not_supported(&item.field(policy), word, &["Honor", "Ignore"]);
            }
        }
        label_keys(constraint, &item, found);
        common::selector(get(constraint, "labelSelector"), &item.field("labelSelector"), found);
    }
}

fn topology_requirement(requirement: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let values = items(requirement, "values");
    for (index, value) in values.iter().enumerate() {
        if values[..index].contains(value) {
            found.duplicate(&at.field("values").index(index), value.clone());
        }
    }
    let key = text(requirement, "key");
    found.faults(&at.field("key"), key, qualified_name(key));
}

/// Validates the taints of a node.
pub(in crate::validation) fn taints(taints: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, taint) in taints.iter().enumerate() {
        let item = at.index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        found.faults(&item.field("key"), key, qualified_name(key));
        let faults = label_value(value);
        if !faults.is_empty() {
            found.invalid(&item.field("value"), value, faults.join(";"));
        }
        match effect {
            "" => found.required(&item.field("effect"), ""),
            _ if EFFECTS.contains(&effect) => {}
            _ => found.not_supported(&item.field("effect"), effect, EFFECTS),
        }
        let same = |other: &Value| text(other, "key") == key && text(other, "effect") == effect;
        if taints[..index].iter().any(same) {
            found.duplicate(&item, taint.clone());
            if let Some(error) = found.errors.last_mut() {
                error.detail = "taints must be unique by key and effect pair".to_owned();
            }
        }
    }
}
