//! Validation of ResourceQuotas and LimitRanges.

use serde_json::Value;

use crate::validation::common::IMMUTABLE;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::resources;
use crate::validation::rule::FieldRule::Code;
use crate::validation::rule::Rule::{Check, Field};
use crate::validation::rule::Table;
use crate::validation::value::{entries, get, items, quantity, same, text};
use api::meta::names::qualified_name;
use api::meta::quantity::Quantity;

pub(super) const RULES: Table = &[
    (
        "core.v1.ResourceQuotaSpec",
        &[Field("hard", &[Code(resources::quota_amounts)]), Check(scopes), Check(scope_selector)],
    ),
    (
        "core.v1.ResourceQuotaStatus",
        &[Field("hard", &[Code(resources::quota_amounts)]), Field("used", &[Code(resources::quota_amounts)])],
    ),
    ("core.v1.LimitRangeSpec", &[Field("limits", &[Code(limits)])]),
];

const OF_PODS: &[&str] =
    &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const OF_CLAIMS: &[&str] = &["persistentvolumeclaims", "requests.storage"];

/// Quota scopes, and the resources that can be counted in each.
const SCOPES: &[(&str, &[&str])] = &[
    ("Terminating", OF_PODS),
    ("NotTerminating", OF_PODS),
    ("BestEffort", &["pods"]),
    ("NotBestEffort", OF_PODS),
    ("PriorityClass", OF_PODS),
    ("CrossNamespacePodAffinity", OF_PODS),
    ("VolumeAttributesClass", OF_CLAIMS),
];

const OPPOSITES: &[(&str, &str)] = &[("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

/// Returns how many of the quota's resources cannot be counted in the scope; none for an unknown scope.
fn uncountable(spec: &Value, scope: &str) -> Option<usize> {
    let (_, countable) = SCOPES.iter().find(|(name, _)| *name == scope)?;
    let names = entries(spec, "hard").map(|(name, _)| name.as_str());
    Some(names.filter(|name| resources::is_quota(name) && !countable.contains(name)).count())
}

fn scopes(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (scopes, at) = (items(spec, "scopes"), at.field("scopes"));
    for scope in scopes.iter().filter_map(Value::as_str) {
        match uncountable(spec, scope) {
            None => found.invalid(&at, scopes.to_vec(), "unsupported scope"),
            Some(count) => (0..count).for_each(|_| {
                found.invalid(&at, scopes.to_vec(), "unsupported scope applied to resource");
            }),
        }
    }
    let has = |name: &str| scopes.iter().any(|scope| scope == name);
    for _ in OPPOSITES.iter().filter(|(one, other)| has(one) && has(other)) {
        found.invalid(&at, scopes.to_vec(), "conflicting scopes");
    }
}

/// Validates the scope selector. Errors are reported at the list instead of the item.
fn scope_selector(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (selector, at) = (get(spec, "scopeSelector"), at.field("scopeSelector.matchExpressions"));
    for requirement in items(selector, "matchExpressions") {
        let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
        match uncountable(spec, scope) {
            None => found.invalid(&at.field("scopeName"), scope, "unsupported scope"),
            Some(count) => (0..count).for_each(|_| {
                found.invalid(&at, selector.clone(), "unsupported scope applied to resource");
            }),
        }
        if !["PriorityClass", "VolumeAttributesClass"].contains(&scope)
            && uncountable(spec, scope).is_some()
            && operator != "Exists"
        {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            found.invalid(&at.field("operator"), operator, detail);
        }
        let values = items(requirement, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => found.required(
                &at.field("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                found.invalid(&at.field("values"), values.to_vec(), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => found.invalid(&at.field("operator"), operator, "not a valid selector operator"),
        }
    }
}

/// Checks that the scopes of a quota do not change.
pub(crate) fn validate_update_quota(old: &Value, new: &Value, found: &mut FieldErrors) {
    let scopes = |quota: &Value| {
        let mut scopes = items(get(quota, "spec"), "scopes").to_vec();
        scopes.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        scopes.dedup();
        Value::Array(scopes)
    };
    if !same(&scopes(old), &scopes(new)) {
        let value = get(get(new, "spec"), "scopes").clone();
        found.invalid(&FieldPath::TOP.field("spec.scopes"), value, IMMUTABLE);
    }
}

fn limits(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let limits = value.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, limit) in limits.iter().enumerate() {
        let item = at.index(index);
        let kind = text(limit, "type");
        let faults = qualified_name(kind);
        let is_known_kind = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind);
        if faults.is_empty() && !kind.contains('/') && !is_known_kind {
            let detail = "must be a standard limit type or fully qualified";
            found.invalid(&item.field("type"), kind, detail);
        }
        found.faults(&item.field("type"), kind, faults);
        if limits[..index].iter().any(|other| text(other, "type") == kind) {
            found.duplicate(&item.field("type"), kind);
        }
        limited(limit, kind, &item, found);
    }
}

fn limited(limit: &Value, kind: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        if kind == "Pod" && field.starts_with("default") {
            if entries(limit, field).next().is_some() {
                found.forbidden(&at.field(field), "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, _) in entries(limit, field) {
            let list = at.field(field);
            match kind {
                "Pod" | "Container" => resources::container_name(name, &list.key(name), found),
                _ => resources::name(name, &list.key(name), found),
            }
        }
    }
    let storage = |field: &str| get(limit, field).get("storage").is_some();
    if kind == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        found.required(&at.field("limits"), detail);
    }
    for name in names(limit) {
        in_order(limit, name, at, found);
    }
}

fn names(limit: &Value) -> Vec<&str> {
    let fields = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let mut names: Vec<_> =
        fields.iter().flat_map(|field| entries(limit, field)).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Checks that minimum, default request, default limit and maximum are in this order.
fn in_order(limit: &Value, name: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let field = |field: &str| get(limit, field).get(name).map(quantity);
    let (min, max) = (field("min"), field("max"));
    let (default, request) = (field("default"), field("defaultRequest"));
    let ratio = field("maxLimitRequestRatio");
    let mut order = |low: &Option<Quantity>,
                     high: &Option<Quantity>,
                     field,
                     value: &Option<Quantity>,
                     low_name,
                     high_name| {
        if let (Some(low), Some(high), Some(value)) = (low, high, value)
            && low > high
        {
            let detail = format!("{low_name} value {low} is greater than {high_name} value {high}");
            let list = at.field(field);
            found.invalid(&list.key(name), value.to_string(), detail);
        }
    };
    order(&min, &max, "min", &min, "min", "max");
    order(&min, &request, "defaultRequest", &request, "min", "default request");
    order(&request, &max, "defaultRequest", &request, "default request", "max");
    order(&request, &default, "defaultRequest", &request, "default request", "default limit");
    order(&min, &default, "default", &min, "min", "default");
    order(&default, &max, "default", &max, "default", "max");
    let one = quantity(&1.into());
    if let Some(ratio) = ratio.as_ref().filter(|ratio| **ratio < one) {
        let list = at.field("maxLimitRequestRatio");
        found.invalid(&list.key(name), ratio.to_string(), format!("ratio {ratio} is less than 1"));
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && !resources::may_overcommit(name)
        && default != request
    {
        let detail =
            format!("default value {default} must equal to defaultRequest value {request} in {name}");
        let list = at.field("defaultRequest");
        found.invalid(&list.key(name), request.to_string(), detail);
    }
}
