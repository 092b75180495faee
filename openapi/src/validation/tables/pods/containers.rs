//! Validation of containers: ports, environment, probes and hooks.

use serde_json::Value;

use crate::validation::common::{config_key, env_name, header_name, no_backsteps, port, port_name};
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::resources;
use crate::validation::rule::FieldRule::{Between, Code, NonNegative, OneOf, Port, Required, Text, Unique};
use crate::validation::rule::Rule::{Check, Field, Into, One, Skip};
use crate::validation::rule::{PROTOCOLS, REQUIRED, Rule, Table};
use crate::validation::value::{get, has, int, items, quantity, text};
use api::meta::names::{dns1123_label, dns1123_subdomain, qualified_name};

use super::mounts;

const HANDLERS: &str = "may not specify more than 1 handler type";
const NO_HANDLER: &str = "must specify a handler type";
pub(in crate::validation) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];

/// Rules for all three kinds of containers. Rules that depend on the rest of the pod are in `spec`.
const CONTAINER: &[Rule] = &[
    Field("name", &[REQUIRED, Text(dns1123_label)]),
    Field("image", &[REQUIRED]),
    Field("terminationMessagePolicy", &[REQUIRED, OneOf(&["File", "FallbackToLogsOnError"])]),
    Into("ports"),
    Field("ports", &[Unique("name")]),
    Into("env"),
    Field("envFrom", &[Code(env_from)]),
    Check(mounts::validate),
    Field("imagePullPolicy", &[REQUIRED, OneOf(PULL_POLICIES)]),
    Skip("resources"),
    Field("resources", &[Code(resources::container_requirements)]),
    Into("securityContext"),
    Into("lifecycle"),
    Into("livenessProbe"),
    Into("readinessProbe"),
    Into("startupProbe"),
    Check(thresholds),
];

pub(in crate::validation) const RULES: Table = &[
    ("core.v1.Container", CONTAINER),
    ("core.v1.EphemeralContainer", CONTAINER),
    (
        "core.v1.ContainerPort",
        &[
            Field("name", &[Text(port_name)]),
            Field("containerPort", &[REQUIRED, Between(1, 65535)]),
            Field("hostPort", &[Port]),
            Field("protocol", &[REQUIRED, PROTOCOLS]),
        ],
    ),
    ("core.v1.EnvVar", &[Field("name", &[REQUIRED, Text(env_name)]), Check(value_from)]),
    ("core.v1.ConfigMapKeySelector", &[Check(reference_name), Field("key", &[REQUIRED, Text(config_key)])]),
    ("core.v1.SecretKeySelector", &[Check(reference_name), Field("key", &[REQUIRED, Text(config_key)])]),
    (
        "core.v1.FileKeySelector",
        &[
            Field("key", &[REQUIRED, Text(env_name)]),
            Field("volumeName", &[REQUIRED, Text(dns1123_label)]),
            Field("path", &[REQUIRED, Text(no_backsteps)]),
        ],
    ),
    (
        "core.v1.Probe",
        &[
            One { of: &["exec", "httpGet", "tcpSocket", "grpc"], many: HANDLERS, none: Some(NO_HANDLER) },
            Field("initialDelaySeconds", &[NonNegative]),
            Field("timeoutSeconds", &[NonNegative]),
            Field("periodSeconds", &[NonNegative]),
            Field("successThreshold", &[NonNegative]),
            Field("failureThreshold", &[NonNegative]),
        ],
    ),
    (
        "core.v1.LifecycleHandler",
        &[One { of: &["exec", "httpGet", "tcpSocket", "sleep"], many: HANDLERS, none: Some(NO_HANDLER) }],
    ),
    ("core.v1.ExecAction", &[Field("command", &[REQUIRED])]),
    (
        "core.v1.HTTPGetAction",
        &[
            Field("path", &[REQUIRED]),
            Check(handler_port),
            Field("scheme", &[OneOf(&["HTTP", "HTTPS"])]),
            Field("httpHeaders", &[Code(headers)]),
        ],
    ),
    ("core.v1.TCPSocketAction", &[Check(handler_port)]),
    ("core.v1.GRPCAction", &[Check(handler_port)]),
    (
        "core.v1.ContainerRestartRule",
        &[
            Field("action", &[OneOf(&["Restart", "RestartAllContainers"])]),
            Field("exitCodes", &[Required("must be specified")]),
        ],
    ),
    ("core.v1.ContainerRestartRuleOnExitCodes", &[Field("operator", &[OneOf(&["In", "NotIn"])])]),
];

fn handler_port(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    port(get(value, "port"), &at.field("port"), found);
}

fn headers(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for header in value.as_array().into_iter().flatten() {
        let name = text(header, "name");
        found.faults(at, name, header_name(name));
    }
}

/// Checks that only a readiness probe has a success threshold above one, and only the others have a grace period.
fn thresholds(container: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let (probe, at) = (get(container, name), at.field(name));
        if probe.is_null() {
            continue;
        }
        let (grace, grace_at) =
            (get(probe, "terminationGracePeriodSeconds"), at.field("terminationGracePeriodSeconds"));
        if grace.as_i64().is_some_and(|grace| grace <= 0) {
            found.invalid(&grace_at, grace.clone(), "must be greater than 0");
        }
        let successes = int(probe, "successThreshold");
        match name {
            "readinessProbe" if !grace.is_null() => {
                found.invalid(&grace_at, grace.clone(), "must not be set for readinessProbes");
            }
            "readinessProbe" => {}
            _ if successes != 1 => found.invalid(&at.field("successThreshold"), successes, "must be 1"),
            _ => {}
        }
    }
}

/// Validates the name of a referenced ConfigMap or Secret. An empty name is an invalid one, not a missing one.
fn reference_name(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let name = text(value, "name");
    found.faults(&at.field("name"), name, dns1123_subdomain(name));
}

fn env_from(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for (index, source) in value.as_array().into_iter().flatten().enumerate() {
        let item = at.index(index);
        let prefix = text(source, "prefix");
        found.faults(&item.field("prefix"), prefix, env_name(prefix));
        let refs = ["configMapRef", "secretRef"].into_iter().filter(|name| has(source, name));
        let mut count = 0;
        for field in refs {
            count += 1;
            let (name, at) = (text(get(source, field), "name"), item.field(field));
            match name {
                "" => found.required(&at.field("name"), ""),
                _ => found.faults(&at.field("name"), name, dns1123_subdomain(name)),
            }
        }
        match count {
            0 => found.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => found.invalid(at, "", "may not have more than one field specified at a time"),
        }
    }
}

/// Fields of the pod that an environment variable can use.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn value_from(variable: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (source, at) = (get(variable, "valueFrom"), at.field("valueFrom"));
    if source.is_null() {
        return;
    }
    if has(source, "fieldRef") {
        field_ref(get(source, "fieldRef"), ENV_FIELDS, &at.field("fieldRef"), found);
    }
    if has(source, "resourceFieldRef") {
        resource_ref(get(source, "resourceFieldRef"), false, &at.field("resourceFieldRef"), found);
    }
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    match sources.iter().filter(|name| has(source, name)).count() {
        0 => found.invalid(
            &at,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        _ if !text(variable, "value").is_empty() => {
            found.invalid(&at, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => found.invalid(&at, "", "may not have more than one field specified at a time"),
    }
}

/// Validates a reference to a field of the pod: one of `allowed`, or a label or annotation.
pub(in crate::validation) fn field_ref(
    value: &Value,
    allowed: &[&str],
    at: &FieldPath<'_>,
    found: &mut FieldErrors,
) {
    for field in ["apiVersion", "fieldPath"] {
        if text(value, field).is_empty() {
            return found.required(&at.field(field), "");
        }
    }
    let path = text(value, "fieldPath");
    let subscript = path.strip_suffix("']").and_then(|path| path.split_once("['"));
    match subscript {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            found.faults(at, &key, qualified_name(&key));
        }
        Some(("metadata.labels", key)) => found.faults(at, key, qualified_name(key)),
        Some((other, _)) => {
            let fault =
                format!("error converting fieldPath: field label does not support subscript: {other}");
            found.invalid(&at.field("fieldPath"), path, fault);
        }
        None if allowed.contains(&path) => {}
        None if KNOWN_FIELDS.contains(&path) => found.not_supported(&at.field("fieldPath"), path, allowed),
        None => {
            let fault = format!("error converting fieldPath: field label not supported: {path}");
            found.invalid(&at.field("fieldPath"), path, fault);
        }
    }
}

/// Fields of the pod that some reference can use.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Validates a reference to a resource of a container, in a variable or in a file.
pub(in crate::validation) fn resource_ref(
    value: &Value,
    in_file: bool,
    at: &FieldPath<'_>,
    found: &mut FieldErrors,
) {
    let resource = text(value, "resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|start| resource.starts_with(start));
    if in_file && text(value, "containerName").is_empty() {
        found.required(&at.field("containerName"), "");
    } else if resource.is_empty() {
        found.required(&at.field("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !huge {
        found.not_supported(&at.field("resource"), resource, RESOURCE_FIELDS);
    }
    divisor(resource, get(value, "divisor"), &at.field("divisor"), found);
}

fn divisor(resource: &str, value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let divisor = quantity(value);
    if divisor.is_zero() {
        return;
    }
    let sizes = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let (allowed, and, units) = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => ("1m, 1", "1m and 1", "cpu"),
        "memory" => (sizes, sizes, "memory"),
        "ephemeral-storage" => (sizes, sizes, "local ephemeral storage"),
        name if name.starts_with("hugepages-") => (sizes, sizes, "hugepages"),
        _ => return,
    };
    let divisor = divisor.to_string();
    if !allowed.split(", ").any(|allowed| allowed == divisor) {
        let detail = format!("only divisor's values {and} are supported with the {units} resource");
        found.invalid(at, resource, detail);
    }
}

/// Checks that no two containers of a pod use the same host port.
pub(in crate::validation) fn host_ports(containers: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let mut seen: Vec<(&str, &str, i64)> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let container_at = at.index(index);
        for (index, port) in items(container, "ports").iter().enumerate() {
            let taken = (text(port, "protocol"), text(port, "hostIP"), int(port, "hostPort"));
            if taken.2 == 0 {
                continue;
            }
            if seen.contains(&taken) {
                let at = container_at.field("ports");
                let (protocol, ip, number) = taken;
                found.duplicate(&at.index(index).field("hostPort"), format!("{protocol}/{ip}/{number}"));
            }
            seen.push(taken);
        }
    }
}
