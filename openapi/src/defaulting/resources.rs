//! What a pod asks for as a whole, from what its containers ask for.

use std::collections::BTreeMap;

use serde_json::Value;

use super::access::{Fields, inner, inner_mut, is_filled, items, made, text};
use api::meta::quantity::Quantity;

/// Amounts by the name of the resource.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Where a pod as a whole has limits: requests as large as those of its containers together, or else as the limits; and
/// limits of huge pages, which are never overcommitted, as large as the containers' limits.
pub(super) fn of_pod(spec: &mut Fields) {
    let requests = together(spec, "requests");
    let limits = together(spec, "limits");
    let Some(resources) = inner_mut(spec, &["resources"]) else { return };
    if !is_filled(resources, "limits") && !is_filled(resources, "requests") {
        return;
    }
    let asked = inner(resources, &["requests"]).cloned().unwrap_or_default();
    let pages = limits.into_iter().filter(|(name, _)| is_huge_pages(name) && !asked.contains_key(name));
    add_missing(resources, "limits", pages);
    if !is_filled(resources, "limits") {
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

/// What the containers take at the same time, or the most demanding of those that run before them. Those that run before
/// and keep running count for everything after them.
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

/// The amounts of a list of a container's or a pod's resources that are amounts.
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
        let total = sum.get(name).map_or_else(|| Some(amount.clone()), |known| known.checked_add(amount));
        // An amount too large to add up is refused by validation.
        sum.extend(total.map(|total| (name.clone(), total)));
    }
}

fn raise(peak: &mut Amounts, now: Amounts) {
    for (name, amount) in now {
        if peak.get(&name).is_none_or(|known| *known < amount) {
            peak.insert(name, amount);
        }
    }
}
