//! Validation of the status of a pod, without its history.
//!
//! Kubernetes also rejects reports that contradict earlier ones: another QoS class, a terminated container that runs
//! again, a nominated node after the real one. Here a status is a report from a cluster of any version, in which the
//! pod may have been created again or have other limits. A rejected report would be rejected forever, so it is compared
//! neither with the report before nor with the spec.

use std::collections::HashSet;

use serde_json::Value;

use crate::validation::common;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::value::{get, int, items, text};
use api::meta::names::{dns1123_subdomain, qualified_name};
use api::meta::net;

const NOT_NEGATIVE: &str = "must be a non-negative integer";
/// Conditions whose names need no domain.
const OF_THE_SYSTEM: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const CONTAINERS: [&str; 2] = ["containerStatuses", "initContainerStatuses"];
const EPHEMERAL: &str = "ephemeralContainerStatuses";

pub(crate) fn validate_status(old: &Value, new: &Value, found: &mut FieldErrors) {
    super::validate_annotation_update(old, new, found);
    let (spec, path) = (get(new, "spec"), FieldPath::TOP.field("status"));
    let (old, new) = (get(old, "status"), get(new, "status"));
    conditions(items(new, "conditions"), &path.field("conditions"), found);
    let node = text(new, "nominatedNodeName");
    if !node.is_empty() && node != text(old, "nominatedNodeName") {
        found.faults(&path.field("nominatedNodeName"), node, dns1123_subdomain(node));
    }
    if int(new, "observedGeneration") < 0 {
        found.invalid(&path.field("observedGeneration"), int(new, "observedGeneration"), NOT_NEGATIVE);
    }
    claims(items(new, "resourceClaimStatuses"), &path.field("resourceClaimStatuses"), found);
    addresses(old, new, "podIPs", found);
    host_addresses(old, new, found);
    for list in CONTAINERS.into_iter().chain([EPHEMERAL]) {
        users(items(new, list), spec, &path.field(list), found);
    }
    for list in CONTAINERS {
        devices(items(new, list), &path.field(list), found);
    }
    for (index, status) in items(new, EPHEMERAL).iter().enumerate() {
        if !items(status, "allocatedResourcesStatus").is_empty() {
            let at = path.field(EPHEMERAL);
            let detail = "must not be specified in container status";
            found.forbidden(&at.index(index).field("allocatedResourcesStatus"), detail);
        }
    }
}

fn conditions(conditions: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, condition) in conditions.iter().enumerate() {
        let (at, kind) = (at.index(index), text(condition, "type"));
        let generation = int(condition, "observedGeneration");
        if generation < 0 {
            found.invalid(&at.field("observedGeneration"), generation, NOT_NEGATIVE);
        }
        if !OF_THE_SYSTEM.contains(&kind) {
            found.faults(&at.field("Type"), kind, qualified_name(kind));
        }
    }
}

fn claims(statuses: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let mut seen = HashSet::new();
    for (index, status) in statuses.iter().enumerate() {
        let (at, name) = (at.index(index), text(status, "name"));
        if !seen.insert(name) {
            found.duplicate(&at.field("name"), name);
        }
        if let Some(claim) = get(status, "resourceClaimName").as_str() {
            found.faults(&at.field("resourceClaimName"), claim, dns1123_subdomain(claim));
        }
    }
}

/// Checks for one address, or one of each family. Invalid addresses of the old object may stay.
fn addresses(old: &Value, new: &Value, list: &str, found: &mut FieldErrors) {
    let path = FieldPath::TOP.field("status");
    let at = path.field(list);
    let of =
        |status| -> Vec<&str> { items(status, list).iter().map(|address| text(address, "ip")).collect() };
    let (old_ips, ips) = (of(old), of(new));
    for (index, ip) in ips.iter().enumerate().filter(|(_, ip)| !old_ips.contains(ip)) {
        found.faults(&at.index(index), ip, net::ip(ip));
    }
    let families = ips.iter().map(|ip| net::is_v6(ip)).collect::<HashSet<_>>();
    if ips.len() > families.len() && ips.iter().all(|ip| net::is_ip(ip)) {
        let formatted: Vec<_> = ips.iter().map(|ip| serde_json::json!({ "IP": ip })).collect();
        found.invalid(&at, Value::from(formatted), "may specify no more than one IP for each IP family");
    }
}

fn host_addresses(old: &Value, new: &Value, found: &mut FieldErrors) {
    let Some(first) = items(new, "hostIPs").first() else { return };
    if text(first, "ip") != text(new, "hostIP") {
        let at = FieldPath::TOP.field("status.hostIPs");
        found.invalid(&at.index(0).field("ip"), text(first, "ip"), "must be equal to `hostIP`");
    }
    addresses(old, new, "hostIPs", found);
}

fn users(statuses: &[Value], spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let is_windows = text(get(spec, "os"), "name") == "windows";
    for (index, status) in statuses.iter().enumerate() {
        let linux = get(get(status, "user"), "linux");
        let item = at.index(index);
        let at = item.field("user.linux");
        if linux.is_null() {
            continue;
        }
        if is_windows {
            found.forbidden(&at, "cannot be set for a windows pod");
            continue;
        }
        for field in ["uid", "gid"] {
            common::between(&int(linux, field).into(), 0, i64::from(i32::MAX), &at.field(field), found);
        }
        let groups = at.field("supplementalGroups");
        for (index, group) in items(linux, "supplementalGroups").iter().enumerate() {
            common::between(group, 0, i64::from(i32::MAX), &groups.index(index), found);
        }
    }
}

const HEALTH: &[&str] = &["Healthy", "Unhealthy", "Unknown"];
const MAX_HEALTH_MESSAGE: usize = 1024;

/// Validates the health of a container's devices.
fn devices(statuses: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, status) in statuses.iter().enumerate() {
        let item = at.index(index);
        let list = item.field("allocatedResourcesStatus");
        for (index, resource) in items(status, "allocatedResourcesStatus").iter().enumerate() {
            let at = list.index(index);
            health(items(resource, "resources"), &at.field("resources"), found);
        }
    }
}

fn health(resources: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let mut seen = HashSet::new();
    for (index, resource) in resources.iter().enumerate() {
        let (at, id) = (at.index(index), text(resource, "resourceID"));
        if !HEALTH.contains(&text(resource, "health")) {
            found.not_supported(&at.field("health"), text(resource, "health"), HEALTH);
        }
        match get(resource, "message").as_str() {
            Some("") => found.required(&at.field("message"), "must be non-empty if specified"),
            Some(message) if message.len() > MAX_HEALTH_MESSAGE => {
                found.too_long(&at.field("message"), MAX_HEALTH_MESSAGE);
            }
            _ => {}
        }
        if !seen.insert(id) {
            found.duplicate(&at.field("resourceID"), id);
        }
    }
}
