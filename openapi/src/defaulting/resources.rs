//! Computes the resources of a whole pod from those of its containers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::access::{Fields, inner, inner_mut, is_non_empty, items, made, text};
use api::meta::quantity::Quantity;

/// Quantities by resource name.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Completes the resources of a pod that has any itself. If it has limits, missing requests are the sum of the
/// containers' requests, else the pod's limits. Missing limits of huge pages, which are never overcommitted, are the
/// sum of the containers' limits.
pub(super) fn of_pod(spec: &mut Fields) {
    let requests = together(spec, "requests");
    let limits = together(spec, "limits");
    let Some(resources) = inner_mut(spec, &["resources"]) else { return };
    if !is_non_empty(resources, "limits") && !is_non_empty(resources, "requests") {
        return;
    }
    let requested = inner(resources, &["requests"]).cloned().unwrap_or_default();
    let pages = limits.into_iter().filter(|(name, _)| is_huge_pages(name) && !requested.contains_key(name));
    add_missing(resources, "limits", pages);
    if !is_non_empty(resources, "limits") {
        return;
    }
    add_missing(resources, "requests", requests.into_iter().filter(|(name, _)| is_basic(name)));
    let limits = inner(resources, &["limits"]).cloned().unwrap_or_default();
    let limits = limits.into_iter().filter(|(name, _)| is_basic(name) || is_huge_pages(name));
    if let Some(requests) = made(resources, "requests") {
        limits.for_each(|(name, limit)| {
            requests.entry(name).or_insert(limit);
        });
    }
}

fn add_missing(resources: &mut Fields, list: &str, amounts: impl Iterator<Item = (String, Quantity)>) {
    let mut amounts = amounts.peekable();
    if amounts.peek().is_some()
        && let Some(list) = made(resources, list)
    {
        amounts.for_each(|(name, amount)| {
            list.entry(name).or_insert_with(|| amount.to_string().into());
        });
    }
}

fn is_basic(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Returns the resources the containers need at the same time, or the largest need of an init container if that is
/// more. A sidecar counts for everything that starts after it.
fn together(spec: &Fields, list: &str) -> Amounts {
    let mut running = Amounts::new();
    let mut peak = Amounts::new();
    for container in items(spec, "initContainers") {
        let mut now = running.clone();
        add(&mut now, &amounts(container, list));
        if text(container, "restartPolicy") == "Always" {
            running = now.clone();
        }
        raise(&mut peak, now);
    }
    for container in items(spec, "containers") {
        add(&mut running, &amounts(container, list));
    }
    raise(&mut running, peak);
    running
}

/// Returns the valid quantities in a list of a container's or a pod's resources.
pub(super) fn amounts(of: &Fields, list: &str) -> Amounts {
    let entries = inner(of, &["resources", list]).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), amount(value)?))).collect()
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

pub(super) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.get(name).map_or_else(|| Some(amount.clone()), |current| current.checked_add(amount));
        // Validation rejects an amount that is too large to add up.
        sum.extend(total.map(|total| (name.clone(), total)));
    }
}

fn raise(peak: &mut Amounts, now: Amounts) {
    for (name, amount) in now {
        if peak.get(&name).is_none_or(|current| *current < amount) {
            peak.insert(name, amount);
        }
    }
}
