//! Validation of resource names and quantities in containers, quotas and limit ranges.

use serde_json::Value;

use api::meta::names::{dns1123_label, qualified_name};
use api::meta::quantity::Quantity;

use super::value::{entries, get, items, quantity, text};
use crate::validation::common::NOT_NEGATIVE;
use crate::validation::field_path::{FieldErrors, FieldPath};

/// Resources that are counted.
const COUNTED: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// Resources that are measured, and their sums in quotas.
const MEASURED: &[&str] = &[
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];

const OF_CONTAINERS: &[&str] = &["cpu", "ephemeral-storage", "memory"];

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_huge_quota(name: &str) -> bool {
    is_huge(name) || name.starts_with("requests.hugepages-")
}

pub(super) fn is_quota(name: &str) -> bool {
    COUNTED.contains(&name) || MEASURED.contains(&name) || is_huge_quota(name)
}

/// Reports whether a resource is Kubernetes' own, and not an extended resource such as a device.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

pub(super) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

/// Checks the name of any resource.
pub(super) fn name(name: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let faults = qualified_name(name);
    if faults.is_empty() && !name.contains('/') && !is_quota(name) && name != "storage" {
        found.invalid(at, name, "must be a standard resource type or fully qualified");
    }
    found.faults(at, name, faults);
}

/// Checks the name of a resource that a container can request.
pub(super) fn container_name(resource: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    name(resource, at, found);
    if !resource.contains('/') {
        if !OF_CONTAINERS.contains(&resource) && !is_huge(resource) {
            found.invalid(at, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        found.invalid(at, resource, "doesn't follow extended resource name standard");
    }
}

/// Checks the name of a resource that a whole pod can request.
fn pod_name(resource: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let before = found.count();
    name(resource, at, found);
    if found.count() == before && !["cpu", "memory"].contains(&resource) && !is_huge(resource) {
        found.not_supported(at, resource, &["cpu", "hugepages-", "memory"]);
    }
}

/// Checks the name of a resource that a quota can limit.
pub(super) fn quota_name(resource: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    name(resource, at, found);
    if !resource.contains('/') && !is_quota(resource) {
        found.invalid(at, resource, "must be a standard resource for quota");
    }
}

/// Checks that a quantity is not negative, and whole if it is a count.
pub(super) fn amount(name: &str, value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let amount = quantity(value);
    if amount.is_negative() {
        found.invalid(at, amount.to_string(), NOT_NEGATIVE);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !amount.is_whole() {
        found.invalid(at, amount.to_string(), "must be an integer");
    }
}

/// Checks names and quantities of a map of resources.
pub(super) fn quota_amounts(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (name, value) in value.as_object().into_iter().flatten() {
        quota_name(name, &at.key(name), found);
        amount(name, value, &at.key(name), found);
    }
}

type NameCheck = fn(&str, &FieldPath<'_>, &mut FieldErrors);

/// Checks the requests and limits of a container.
pub(super) fn container_requirements(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    requirements(value, container_name, at, found);
}

pub(super) fn pod_requirements(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    requirements(value, pod_name, at, found);
}

fn requirements(value: &Value, validate_name: NameCheck, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (limits, requests) = (at.field("limits"), at.field("requests"));
    let (mut computes, mut huge) = (false, false);
    let mut each = |name: &str, value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors| {
        validate_name(name, at, found);
        amount(name, value, at, found);
        huge |= is_huge(name);
        computes |= ["cpu", "memory"].contains(&name);
    };
    for (name, value) in entries(value, "limits") {
        each(name, value, &limits.key(name), found);
        pages(name, value, &limits.key(name), found);
    }
    for (name, request) in entries(value, "requests") {
        each(name, request, &requests.key(name), found);
        let limit = get(get(value, "limits"), name);
        if limit.is_null() && !may_overcommit(name) {
            found.required(&limits, "Limit must be set for non overcommitable resources");
        } else if !limit.is_null() {
            within_limit(name, &quantity(request), &quantity(limit), &requests, found);
        }
        pages(name, request, &requests.key(name), found);
    }
    if huge && !computes {
        found.forbidden(at, "HugePages require cpu or memory");
    }
}

fn within_limit(
    name: &str,
    request: &Quantity,
    limit: &Quantity,
    at: &FieldPath<'_>,
    found: &mut FieldErrors,
) {
    if request != limit && !may_overcommit(name) {
        found.invalid(at, request.to_string(), format!("must be equal to {name} limit of {limit}"));
    } else if request > limit {
        let detail = format!("must be less than or equal to {name} limit of {limit}");
        found.invalid(at, request.to_string(), detail);
    }
}

/// Checks that huge pages are requested as whole pages.
fn pages(name: &str, value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let Some(page) = name.strip_prefix("hugepages-") else { return };
    let (page, request) = (page.parse::<Quantity>().ok().and_then(|page| page.ceil()), quantity(value));
    let is_multiple = match (page, request.ceil()) {
        (Some(page), Some(request)) if page > 0 => request % page == 0,
        _ => false,
    };
    if !is_multiple {
        found.invalid(
            at,
            request.to_string(),
            format!("{request} is not positive integer multiple of {name}"),
        );
    }
}

/// Checks that the device claims of a container are among those of its pod.
pub(super) fn claims(value: &Value, of_pod: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, claim) in items(value, "claims").iter().enumerate() {
        let list = at.field("claims");
        let at = list.index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            found.required(&at, "");
            continue;
        }
        if !request.is_empty() {
            found.faults(&at.field("request"), request, dns1123_label(request));
        }
        let overlaps = |(other, other_request): &(&str, &str)| {
            *other == name && (request.is_empty() || other_request.is_empty() || *other_request == request)
        };
        if seen.iter().any(overlaps) {
            let is_entire_claim = seen.contains(&(name, "")) || request.is_empty();
            found.duplicate(&at, if is_entire_claim { name.to_owned() } else { format!("{name}/{request}") });
        }
        seen.push((name, request));
        if !of_pod.iter().any(|claim| text(claim, "name") == name) {
            let mut claims_of_pod: Vec<_> = of_pod.iter().map(|claim| text(claim, "name")).collect();
            claims_of_pod.sort_unstable();
            let claims_of_pod = match claims_of_pod.is_empty() {
                true => " which is empty".to_owned(),
                false => format!(": {}", claims_of_pod.join(", ")),
            };
            found.not_found(&at, name);
            if let Some(error) = found.errors.last_mut() {
                error.detail = format!("must be one of the names in pod.spec.resourceClaims{claims_of_pod}");
            }
        }
    }
}
