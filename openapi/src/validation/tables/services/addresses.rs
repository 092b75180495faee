//! Validation of a Service's addresses: number, families and immutability.

use serde_json::Value;

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::value::{get, has, int, items, text};
use api::meta::net;

use super::is_headless;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

pub(super) fn validate(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let (ip, ips, ips_at) = (text(spec, "clusterIP"), items(spec, "clusterIPs"), at.field("clusterIPs"));
    if ip.is_empty() && !ips.is_empty() {
        found.invalid(&ips_at, ips.to_vec(), "must be empty when `clusterIP` is not specified");
    } else if !ip.is_empty() && ips.is_empty() {
        found.required(&ips_at, "");
    } else if ips.first().is_some_and(|first| first != ip) {
        found.invalid(&ips_at, ips.to_vec(), "first value must match `clusterIP`");
    }
    families(spec, at, found);
    let before = found.count();
    for (index, ip) in ips.iter().filter_map(Value::as_str).enumerate() {
        match (index, ip) {
            (0, "None") if ips.len() > 1 => {
                found.invalid(&ips_at, ips.to_vec(), "'None' must be the first and only value");
            }
            (0, "None") => {}
            _ => found.faults(&ips_at.index(index), ip, net::ip(ip)),
        }
    }
    let readable = found.count() == before;
    if ips.len() > 2 {
        found.invalid(&ips_at, ips.to_vec(), "may only hold up to 2 values");
    }
    if readable {
        of_families(spec, ips, &ips_at, found);
    }
}

fn families(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (families, list) = (items(spec, "ipFamilies"), at.field("ipFamilies"));
    for (index, family) in families.iter().enumerate() {
        let name = family.as_str().unwrap_or_default();
        if !FAMILIES.contains(&name) {
            found.not_supported(&list.index(index), name, &FAMILIES);
        }
        if families[..index].contains(family) {
            found.duplicate(&list.index(index), name);
        }
    }
    let policy = text(spec, "ipFamilyPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        found.not_supported(&at.field("ipFamilyPolicy"), policy, &POLICIES);
    }
}

fn of_families(spec: &Value, ips: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let ips: Vec<&str> = ips.iter().filter_map(Value::as_str).collect();
    let sixes = ips.iter().filter(|ip| net::is_v6(ip)).count();
    if ips.len() > 1 && (sixes == 0 || sixes == ips.len()) {
        found.invalid(at, ips.clone(), "may specify no more than one IP for each IP family");
    }
    if is_headless(spec) {
        return;
    }
    for (index, (ip, family)) in ips.iter().zip(items(spec, "ipFamilies")).enumerate() {
        let family = family.as_str().unwrap_or_default();
        if FAMILIES.contains(&family) && (family == "IPv6") != net::is_v6(ip) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            found.invalid(&at.index(index), *ip, detail);
        }
    }
}

const FIXED: &str = "may not change once set";

/// Checks that a Service keeps its addresses, unless it becomes or was an ExternalName.
pub(crate) fn validate_update(old: &Value, new: &Value, found: &mut FieldErrors) {
    let (old, new, at) = (get(old, "spec"), get(new, "spec"), FieldPath::TOP.field("spec"));
    let named = |spec: &Value| text(spec, "type") == "ExternalName";
    if !named(old) && !named(new) {
        keep_ips(old, new, &at, found);
        keep_families(old, new, &at, found);
    }
    let balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    let class = get(new, "loadBalancerClass");
    if balanced(old) && balanced(new) && get(old, "loadBalancerClass") != class {
        found.invalid(&at.field("loadBalancerClass"), class.clone(), FIXED);
    }
    let checked = |spec: &Value| balanced(spec) && text(spec, "externalTrafficPolicy") == "Local";
    let port = |spec: &Value| int(spec, "healthCheckNodePort");
    if checked(old) && checked(new) && port(old) != port(new) {
        found.forbidden(&at.field("healthCheckNodePort"), "field is immutable");
    }
}

fn keep_ips(old: &Value, new: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if is_headless(old) && is_headless(new) {
        return;
    }
    let (old_ips, new_ips, list) =
        (items(old, "clusterIPs"), items(new, "clusterIPs"), at.field("clusterIPs"));
    let ips = || new_ips.to_vec();
    if old_ips.len() == new_ips.len() {
        for index in (0..old_ips.len()).filter(|index| old_ips[*index] != new_ips[*index]) {
            found.invalid(&list.index(index), ips(), FIXED);
        }
        return;
    }
    match (old_ips.first(), new_ips.first()) {
        (Some(_), None) => found.invalid(&list.index(0), ips(), "primary clusterIP can not be unset"),
        (Some(old), Some(new)) if old != new => found.invalid(&list.index(0), ips(), FIXED),
        _ => {}
    }
    if old_ips.len() > new_ips.len() && new_ips.len() == 1 {
        single_stack(new, "clusterIP", at, found);
    }
}

fn keep_families(old: &Value, new: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if is_headless(old) || is_headless(new) {
        return;
    }
    let (olds, news) = (items(old, "ipFamilies"), items(new, "ipFamilies"));
    let list = at.field("ipFamilies");
    let first = list.index(0);
    if olds.len() == news.len() {
        for _ in olds.iter().zip(news).filter(|(old, new)| old != new) {
            found.invalid(&first, news.to_vec(), FIXED);
        }
        return;
    }
    if olds.len() > news.len() && items(new, "clusterIPs").is_empty() {
        found.invalid(&first, news.to_vec(), "primary ipFamily can not be unset");
    }
    if let (Some(old), Some(kept)) = (olds.first(), news.first())
        && old != kept
    {
        found.invalid(&first, items(new, "clusterIPs").to_vec(), FIXED);
    }
    if olds.len() > news.len() && news.len() == 1 {
        single_stack(new, "ipFamily", at, found);
    }
}

fn single_stack(spec: &Value, field: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !has(spec, "ipFamilyPolicy") || text(spec, "ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {field}");
        found.invalid(&at.field("ipFamilyPolicy"), get(spec, "ipFamilyPolicy").clone(), detail);
    }
}
