//! Columns of RBAC, admission, quota, disruption and scaling policies.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::CellSource::*;
use super::{Columns, condition};
use crate::catalog::printer::{duration, items, selector, text};

pub(super) const COLUMNS: &[Columns] = &[
    ("clusterrolebindings.rbac.authorization.k8s.io", BINDING),
    ("rolebindings.rbac.authorization.k8s.io", BINDING),
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", &[("Webhooks", Count("/webhooks"))]),
    ("validatingwebhookconfigurations.admissionregistration.k8s.io", &[("Webhooks", Count("/webhooks"))]),
    (
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        &[("Mutations", Count("/spec/mutations")), ("ParamKind", Made(param_kind))],
    ),
    (
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        &[("Validations", Count("/spec/validations")), ("ParamKind", Made(param_kind))],
    ),
    ("mutatingadmissionpolicybindings.admissionregistration.k8s.io", POLICY_BINDING),
    ("validatingadmissionpolicybindings.admissionregistration.k8s.io", POLICY_BINDING),
    (
        "resourcequotas",
        &[("Request", Made(|quota, _| used(quota, false))), ("Limit", Made(|quota, _| used(quota, true)))],
    ),
    (
        "poddisruptionbudgets.policy",
        &[
            ("Min Available", Text("/spec/minAvailable", "N/A")),
            ("Max Unavailable", Text("/spec/maxUnavailable", "N/A")),
            ("Allowed Disruptions", Integer("/status/disruptionsAllowed")),
        ],
    ),
    (
        "priorityclasses.scheduling.k8s.io",
        &[
            ("Value", Integer("/value")),
            ("Global-Default", Truth("/globalDefault", false)),
            ("PreemptionPolicy", Text("/preemptionPolicy", "")),
        ],
    ),
    (
        "flowschemas.flowcontrol.apiserver.k8s.io",
        &[
            ("PriorityLevel", Text("/spec/priorityLevelConfiguration/name", "")),
            ("MatchingPrecedence", Integer("/spec/matchingPrecedence")),
            ("DistinguisherMethod", Text("/spec/distinguisherMethod/type", "<none>")),
            ("MissingPL", Made(missing_level)),
        ],
    ),
    (
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        &[
            ("Type", Text("/spec/type", "")),
            ("NominalConcurrencyShares", Plain("/spec/limited/nominalConcurrencyShares", "<none>")),
            ("Queues", Plain("/spec/limited/limitResponse/queuing/queues", "<none>")),
            ("HandSize", Plain("/spec/limited/limitResponse/queuing/handSize", "<none>")),
            ("QueueLengthLimit", Plain("/spec/limited/limitResponse/queuing/queueLengthLimit", "<none>")),
        ],
    ),
    (
        "certificatesigningrequests.certificates.k8s.io",
        &[
            ("SignerName", Text("/spec/signerName", "<none>")),
            ("Requestor", Text("/spec/username", "")),
            ("RequestedDuration", Made(requested_duration)),
            ("Condition", Made(signing_condition)),
        ],
    ),
];

const BINDING: &[(&str, super::CellSource)] = &[
    (
        "Role",
        Made(|binding, _| {
            format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name")).into()
        }),
    ),
    ("Users", Made(|binding, _| subjects(binding, "User"))),
    ("Groups", Made(|binding, _| subjects(binding, "Group"))),
    ("ServiceAccounts", Made(|binding, _| subjects(binding, "ServiceAccount"))),
];

const POLICY_BINDING: &[(&str, super::CellSource)] =
    &[("PolicyName", Text("/spec/policyName", "")), ("ParamRef", Made(param_ref))];

fn subjects(binding: &Value, kind: &str) -> Value {
    let named = items(binding, "/subjects").filter(|subject| subject["kind"] == kind).map(|subject| {
        let (namespace, name) = (text(subject, "/namespace"), text(subject, "/name"));
        match kind == "ServiceAccount" && !namespace.is_empty() {
            true => format!("{namespace}/{name}"),
            false => name,
        }
    });
    named.collect::<Vec<_>>().join(", ").into()
}

fn param_kind(policy: &Value, _: Timestamp) -> Value {
    match &policy["spec"]["paramKind"] {
        Value::Null => json!("<unset>"),
        kind => format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")).into(),
    }
}

fn param_ref(binding: &Value, _: Timestamp) -> Value {
    let parameters = &binding["spec"]["paramRef"];
    match (text(parameters, "/namespace"), text(parameters, "/name")) {
        (_, name) if name.is_empty() => match parameters.get("selector") {
            Some(chosen) => selector(Some(chosen)).into(),
            None => json!("<unset>"),
        },
        (namespace, name) if namespace.is_empty() => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

/// Returns `cpu: 1/2, pods: 3/10` for the resources of a quota: for limits, or for requests and counts.
fn used(quota: &Value, limits: bool) -> Value {
    let hard = quota["status"]["hard"].as_object().into_iter().flatten();
    let usages =
        hard.filter(|(resource, _)| resource.starts_with("limits.") == limits).map(|(resource, hard)| {
            let used = quota["status"]["used"][resource].as_str().unwrap_or("0");
            format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"))
        });
    usages.collect::<Vec<_>>().join(", ").into()
}

fn missing_level(schema: &Value, _: Timestamp) -> Value {
    match condition(schema, "/status/conditions", "Dangling") {
        Some(condition) => text(condition, "/status").into(),
        None => json!("?"),
    }
}

fn requested_duration(request: &Value, _: Timestamp) -> Value {
    match request["spec"]["expirationSeconds"].as_i64() {
        Some(seconds) => duration(seconds).into(),
        None => json!("<none>"),
    }
}

fn signing_condition(request: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| condition(request, "/status/conditions", kind).is_some();
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied".to_owned(),
        (false, true) => "Approved".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if has("Failed") {
        condition += ",Failed";
    }
    if !text(request, "/status/certificate").is_empty() {
        condition += ",Issued";
    }
    condition.into()
}

/// Returns an autoscaler's current and target values: `cpu: 30%/80%, 12/20 (avg) + 1 more...`
pub(super) fn autoscaler_targets(autoscaler: &Value, _: Timestamp) -> Value {
    const LISTED_MAX: usize = 2;
    let specs: Vec<&Value> = items(autoscaler, "/spec/metrics").collect();
    let statuses: Vec<&Value> = items(autoscaler, "/status/currentMetrics").collect();
    // `autoscaling/v1` has one metric, in a field of its own.
    if let Some(target) = autoscaler["spec"]["targetCPUUtilizationPercentage"].as_i64() {
        let current = &autoscaler["status"]["currentCPUUtilizationPercentage"];
        let current = current.as_i64().map_or("<unknown>".to_owned(), |current| format!("{current}%"));
        return format!("cpu: {current}/{target}%").into();
    }
    if specs.is_empty() {
        return json!("<none>");
    }
    let metrics: Vec<String> =
        specs.iter().enumerate().map(|(index, spec)| metric(spec, statuses.get(index).copied())).collect();
    match metrics.len() > LISTED_MAX {
        true => {
            format!("{} + {} more...", metrics[..LISTED_MAX].join(", "), metrics.len() - LISTED_MAX).into()
        }
        false => metrics.join(", ").into(),
    }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let source = match spec["type"].as_str() {
        Some("External") => "external",
        Some("Pods") => "pods",
        Some("Object") => "object",
        Some("Resource") => "resource",
        Some("ContainerResource") => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&spec[source]["target"], status.map(|status| &status[source]["current"]));
    let measured = |field: &str, unit: &str| match current.map(|current| text(current, field)) {
        Some(value) if !value.is_empty() => format!("{value}{unit}"),
        _ => "<unknown>".to_owned(),
    };
    let average = text(target, "/averageValue");
    let is_resource = matches!(source, "resource" | "containerResource");
    let name = if is_resource { format!("{}: ", text(&spec[source], "/name")) } else { String::new() };
    if !average.is_empty() {
        let note = if matches!(source, "external" | "object") { " (avg)" } else { "" };
        return format!("{name}{}/{average}{note}", measured("/averageValue", ""));
    }
    if !is_resource {
        return format!("{}/{}", measured("/value", ""), text(target, "/value"));
    }
    let aim = match text(target, "/averageUtilization") {
        aim if aim.is_empty() => "<auto>".to_owned(),
        aim => format!("{aim}%"),
    };
    format!("{name}{}/{aim}", measured("/averageUtilization", "%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaler_shows_its_current_and_target_metrics() {
        let check = |autoscaler: Value, expected: &str| {
            assert_eq!(autoscaler_targets(&autoscaler, Timestamp::UNIX_EPOCH), expected, "{autoscaler}");
        };
        let cpu = json!({ "type": "Resource", "resource": { "name": "cpu", "target": { "averageUtilization": 80 } } });
        let queue = json!({ "type": "External", "external": { "target": { "averageValue": "20" } } });
        check(json!({}), "<none>");
        check(json!({ "spec": { "metrics": [cpu] } }), "cpu: <unknown>/80%");
        check(
            json!({ "spec": { "metrics": [cpu] }, "status": { "currentMetrics": [
                { "resource": { "current": { "averageUtilization": 30, "averageValue": "3m" } } }] } }),
            "cpu: 30%/80%",
        );
        check(
            json!({ "spec": { "metrics": [cpu, queue, queue] } }),
            "cpu: <unknown>/80%, <unknown>/20 (avg) + 1 more...",
        );
        check(json!({ "spec": { "targetCPUUtilizationPercentage": 50 } }), "cpu: <unknown>/50%");
    }

    #[test]
    fn a_quota_has_columns_for_requests_and_limits() {
        let quota = json!({ "status": {
            "hard": { "pods": "10", "limits.cpu": "4", "requests.cpu": "2" },
            "used": { "pods": "3", "limits.cpu": "1" },
        }});
        assert_eq!(used(&quota, false), "pods: 3/10, requests.cpu: 0/2");
        assert_eq!(used(&quota, true), "limits.cpu: 1/4");
    }
}
