//! Validation of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.

use serde_json::{Value, json};

use crate::validation::common::{
    NOT_NEGATIVE, at_most_all, int_or_percent, is_empty_selector, positive_int_or_percent, selects,
};
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{NonNegative, OneOf, Selector};
use crate::validation::rule::Rule::{Check, Field, Into, Skip};
use crate::validation::rule::{REQUIRED, Table};
use crate::validation::tables::plan;
use crate::validation::value::{at as path_in, get, has, int, items, same, text};
use api::meta::field::ErrorType;

const RETENTION: &[&str] = &["Retain", "Delete"];

pub(super) const RULES: Table = &[
    (
        "apps.v1.DeploymentSpec",
        &[
            Field("replicas", &[NonNegative]),
            Check(deployment_selector),
            Into("template"),
            Check(template_of_replicas),
            Check(deployment_strategy),
            Field("minReadySeconds", &[NonNegative]),
            Field("revisionHistoryLimit", &[NonNegative]),
            Field("progressDeadlineSeconds", &[NonNegative]),
            Check(progress),
        ],
    ),
    (
        "apps.v1.ReplicaSetSpec",
        &[
            Field("replicas", &[NonNegative]),
            Field("minReadySeconds", &[NonNegative]),
            Check(deployment_selector),
            Into("template"),
            Check(template_of_replicas),
        ],
    ),
    (
        "apps.v1.DaemonSetSpec",
        &[
            Field("selector", &[Selector]),
            Check(daemon_selector),
            Into("template"),
            Check(template_of_daemons),
            Field("minReadySeconds", &[NonNegative]),
            Check(daemon_strategy),
            Field("revisionHistoryLimit", &[NonNegative]),
        ],
    ),
    (
        "apps.v1.StatefulSetSpec",
        &[
            Check(management),
            Check(set_strategy),
            Skip("volumeClaimTemplates"),
            Field("replicas", &[NonNegative]),
            Field("minReadySeconds", &[NonNegative]),
            Check(ordinals),
            Check(set_selector),
            Skip("template"),
            Check(set_template),
        ],
    ),
    (
        "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[Field("whenDeleted", &[OneOf(RETENTION)]), Field("whenScaled", &[OneOf(RETENTION)])],
    ),
    ("apps.v1.ControllerRevision", &[Field("revision", &[NonNegative])]),
    (
        "core.v1.ReplicationControllerSpec",
        &[
            Field("minReadySeconds", &[NonNegative]),
            Field("selector", &[REQUIRED]),
            Field("replicas", &[NonNegative]),
            Field("template", &[REQUIRED]),
            Into("template"),
            Check(template_of_controller),
        ],
    ),
    ("apps.v1.DeploymentStatus", &[Check(counts), Check(counts_of_deployment)]),
    ("apps.v1.ReplicaSetStatus", &[Check(counts), Check(counts_of_replica_set)]),
    ("core.v1.ReplicationControllerStatus", &[Check(counts), Check(counts_of_replica_set)]),
    ("apps.v1.StatefulSetStatus", &[Check(counts), Check(counts_of_set)]),
    (
        "apps.v1.DaemonSetStatus",
        &[
            Field("currentNumberScheduled", &[NonNegative]),
            Field("numberMisscheduled", &[NonNegative]),
            Field("desiredNumberScheduled", &[NonNegative]),
            Field("numberReady", &[NonNegative]),
            Field("observedGeneration", &[NonNegative]),
            Field("updatedNumberScheduled", &[NonNegative]),
            Field("numberAvailable", &[NonNegative]),
            Field("numberUnavailable", &[NonNegative]),
            Field("collisionCount", &[NonNegative]),
        ],
    ),
];

const COUNTS: [&str; 10] = [
    "observedGeneration",
    "replicas",
    "fullyLabeledReplicas",
    "updatedReplicas",
    "readyReplicas",
    "currentReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "terminatingReplicas",
    "collisionCount",
];

fn counts(status: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for field in COUNTS.into_iter().filter(|field| int(status, field) < 0) {
        found.invalid(&at.field(field), int(status, field), NOT_NEGATIVE);
    }
}

fn counts_of_deployment(status: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    in_proportion(
        status,
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "readyReplicas",
        at,
        found,
    );
}

fn counts_of_replica_set(status: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    in_proportion(
        status,
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        "readyReplicas",
        at,
        found,
    );
}

fn counts_of_set(status: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let fields = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    in_proportion(status, &fields, "status.readyReplicas", at, found);
}

/// Checks that no count exceeds `replicas`, and that no more pods are available than ready.
fn in_proportion(status: &Value, fields: &[&str], ready: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for field in fields.iter().filter(|field| int(status, field) > int(status, "replicas")) {
        found.invalid(&at.field(field), int(status, field), "cannot be greater than status.replicas");
    }
    let available = int(status, "availableReplicas");
    if available > int(status, "readyReplicas") {
        found.invalid(&at.field("availableReplicas"), available, format!("cannot be greater than {ready}"));
    }
}

/// Checks that the selector exists, is not empty, and matches the labels of the template.
fn validate_selector(spec: &Value, kind: &str, nonsense: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (selector, selector_at) = (get(spec, "selector"), at.field("selector"));
    if selector.is_null() {
        // Without a selector, the template never matches.
        found.required(&selector_at, "");
        return not_selected(spec, at, found);
    }
    let before = found.count();
    crate::validation::common::selector(selector, &selector_at, found);
    let readable = found.count() == before;
    if is_empty_selector(selector) {
        let detail = format!("empty selector is invalid for {kind}");
        return found.invalid(&selector_at, selector.clone(), detail);
    }
    match selects_template(spec, selector).filter(|_| readable) {
        None => {
            found.error_with_text(&selector_at, ErrorType::Invalid, &formatted_selector(selector), nonsense)
        }
        Some(true) => {}
        Some(false) => not_selected(spec, at, found),
    }
}

/// Formats a selector in Kubernetes' order of fields, which is not alphabetical.
fn formatted_selector(selector: &Value) -> String {
    let fields = ["matchLabels", "matchExpressions"].into_iter().filter(|field| has(selector, field));
    let fields: Vec<_> = fields.map(|field| format!("\"{field}\":{}", get(selector, field))).collect();
    format!("{{{}}}", fields.join(","))
}

pub(super) fn selects_template(spec: &Value, selector: &Value) -> Option<bool> {
    selects(selector, path_in(spec, "template.metadata.labels"))
}

pub(super) fn not_selected(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let labels = path_in(spec, "template.metadata.labels").clone();
    found.invalid(
        &at.field("template.metadata.labels"),
        labels,
        "`selector` does not match template `labels`",
    );
}

fn deployment_selector(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    validate_selector(spec, "deployment", "invalid label selector", at, found);
}

fn set_selector(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    validate_selector(spec, "statefulset", "", at, found);
}

fn daemon_selector(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let selector = get(spec, "selector");
    if selects_template(spec, selector) == Some(false) || selector.is_null() {
        not_selected(spec, at, found);
    }
    if !selector.is_null() && is_empty_selector(selector) {
        let detail = "empty selector is invalid for daemonset";
        found.invalid(&at.field("selector"), selector.clone(), detail);
    }
}

/// Checks that pods are always restarted and have no deadline.
fn runs_forever(spec: &Value, kind: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (pod, at) = (path_in(spec, "template.spec"), at.field("template.spec"));
    let policy = text(pod, "restartPolicy");
    if policy != "Always" {
        found.not_supported(&at.field("restartPolicy"), policy, &["Always"]);
    }
    if has(pod, "activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        found.forbidden(&at.field("activeDeadlineSeconds"), detail);
    }
}

fn template_of_replicas(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    runs_forever(spec, "ReplicaSet", at, found);
}

fn template_of_daemons(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    runs_forever(spec, "DaemonSet", at, found);
}

fn template_of_controller(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !has(spec, "template") {
        return;
    }
    let selector = json!({ "matchLabels": get(spec, "selector") });
    if selects_template(spec, &selector) == Some(false) {
        not_selected(spec, at, found);
    }
    runs_forever(spec, "ReplicationController", at, found);
}

fn deployment_strategy(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (strategy, at) = (get(spec, "strategy"), at.field("strategy"));
    let (rolling, rolling_at) = (get(strategy, "rollingUpdate"), at.field("rollingUpdate"));
    match text(strategy, "type") {
        "Recreate" if !rolling.is_null() => {
            found.forbidden(&rolling_at, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" if rolling.is_null() => {
            found.required(&rolling_at, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (get(rolling, "maxUnavailable"), get(rolling, "maxSurge"));
            positive_int_or_percent(unavailable, &rolling_at.field("maxUnavailable"), found);
            positive_int_or_percent(surge, &rolling_at.field("maxSurge"), found);
            if int_or_percent(unavailable) == 0 && int_or_percent(surge) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                found.invalid(&rolling_at.field("maxUnavailable"), unavailable.clone(), detail);
            }
            at_most_all(unavailable, &rolling_at.field("maxUnavailable"), found);
        }
        _ => {
            let detail = "supported values: \"Recreate\", \"RollingUpdate\"";
            found.error_with_text(&at, ErrorType::NotSupported, &go_named(strategy), detail);
        }
    }
}

/// Formats an unknown strategy as Go does. Its rolling update parameters are not validated.
fn go_named(strategy: &Value) -> String {
    format!(
        "{{\"Type\":{},\"RollingUpdate\":{}}}",
        get(strategy, "type"),
        rolling_named(get(strategy, "rollingUpdate"))
    )
}

fn rolling_named(rolling: &Value) -> String {
    let fields = rolling.as_object().into_iter().flatten().map(|(name, value)| {
        let mut rest = name.chars();
        let first = rest.next().map(|first| first.to_ascii_uppercase()).unwrap_or_default();
        format!("\"{first}{}\":{value}", rest.as_str())
    });
    match rolling {
        Value::Null => "null".to_owned(),
        // Our fields are in alphabetical order; Kubernetes happens to have them in reverse.
        _ => format!("{{{}}}", fields.rev().collect::<Vec<_>>().join(",")),
    }
}

fn progress(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if let Some(deadline) = get(spec, "progressDeadlineSeconds").as_i64()
        && deadline <= int(spec, "minReadySeconds")
    {
        let at = at.field("progressDeadlineSeconds");
        found.invalid(&at, deadline, "must be greater than minReadySeconds");
    }
}

fn daemon_strategy(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (strategy, at) = (get(spec, "updateStrategy"), at.field("updateStrategy"));
    let (rolling, rolling_at) = (get(strategy, "rollingUpdate"), at.field("rollingUpdate"));
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => found.required(&rolling_at, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (get(rolling, "maxUnavailable"), get(rolling, "maxSurge"));
            let (unavailable_at, surge_at) =
                (rolling_at.field("maxUnavailable"), rolling_at.field("maxSurge"));
            for validate in [positive_int_or_percent, at_most_all] {
                validate(unavailable, &unavailable_at, found);
                validate(surge, &surge_at, found);
            }
            match (int_or_percent(unavailable) != 0, int_or_percent(surge) != 0) {
                (true, true) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    found.invalid(&surge_at, surge.clone(), detail);
                }
                (false, false) => found.required(&unavailable_at, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => {
            let detail = "supported values: \"RollingUpdate\", \"OnDelete\"";
            found.error_with_text(&at, ErrorType::NotSupported, &go_named(strategy), detail);
        }
    }
}

fn management(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    match text(spec, "podManagementPolicy") {
        "" => found.required(&at.field("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            found.invalid(&at.field("podManagementPolicy"), other, detail);
        }
    }
}

fn set_strategy(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (strategy, at) = (get(spec, "updateStrategy"), at.field("updateStrategy"));
    let (rolling, rolling_at) = (get(strategy, "rollingUpdate"), at.field("rollingUpdate"));
    match text(strategy, "type") {
        "" => found.required(&at, ""),
        "OnDelete" if rolling.is_null() => {}
        "OnDelete" => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            let partition = int(rolling, "partition");
            let named = format!(
                "{{\"Partition\":{partition},\"MaxUnavailable\":{}}}",
                get(rolling, "maxUnavailable")
            );
            found.error_with_text(&rolling_at, ErrorType::Invalid, &named, detail);
        }
        "RollingUpdate" => {
            if int(rolling, "partition") < 0 {
                found.invalid(&rolling_at.field("partition"), int(rolling, "partition"), NOT_NEGATIVE);
            }
            let (unavailable, at) = (get(rolling, "maxUnavailable"), rolling_at.field("maxUnavailable"));
            if !unavailable.is_null() {
                positive_int_or_percent(unavailable, &at, found);
                if int_or_percent(unavailable) == 0 {
                    found.invalid(&at, unavailable.clone(), "cannot be 0");
                }
                at_most_all(unavailable, &at, found);
            }
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            found.error_with_text(&at, ErrorType::Invalid, &go_named(strategy), detail);
        }
    }
}

fn ordinals(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let start = int(get(spec, "ordinals"), "start");
    if start < 0 {
        found.invalid(&at.field("ordinals.start"), start, NOT_NEGATIVE);
    }
}

/// Validates the pod template of a StatefulSet, whose pods get names and volumes from the set.
fn set_template(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let claims = items(spec, "volumeClaimTemplates");
    let mut template = get(spec, "template").clone();
    if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) {
        pod.remove("hostname");
        pod.remove("subdomain");
        if !claims.is_empty() {
            let name = |claim: &Value| path_in(claim, "metadata.name").clone();
            let made: Vec<Value> = claims.iter().map(name).collect();
            let pod_volumes = pod.remove("volumes");
            let pod_volumes = pod_volumes.as_ref().and_then(Value::as_array).into_iter().flatten();
            let pod_volumes = pod_volumes.filter(|volume| !made.contains(get(volume, "name"))).cloned();
            let claimed = made
                .iter()
                .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }));
            let volumes: Vec<Value> = claimed.chain(pod_volumes).collect();
            pod.insert("volumes".to_owned(), volumes.into());
        }
    }
    plan::validate("io.k8s.api.core.v1.PodTemplateSpec", &template, &at.field("template"), found);
    runs_forever(spec, "StatefulSet", at, found);
}

/// Rules for new StatefulSets only, about immutable fields.
pub(crate) fn validate_create_set(set: &Value, found: &mut FieldErrors) {
    let (spec, at) = (get(set, "spec"), FieldPath::TOP.field("spec"));
    for (index, claim) in items(spec, "volumeClaimTemplates").iter().enumerate() {
        let list = at.field("volumeClaimTemplates");
        let item = list.index(index);
        plan::validate(
            "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
            get(claim, "spec"),
            &item.field("spec"),
            found,
        );
    }
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        found.faults(&at.field("serviceName"), service, api::meta::names::dns1123_label(service));
    }
}

const SET_MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// Checks that the immutable fields of a StatefulSet do not change.
pub(crate) fn validate_update_set(old: &Value, new: &Value, found: &mut FieldErrors) {
    let fixed = |set: &Value| {
        let mut spec = get(set, "spec").clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|field, _| !SET_MUTABLE.contains(&field.as_str()));
        }
        spec
    };
    if !same(&fixed(old), &fixed(new)) {
        found.forbidden(
            &FieldPath::TOP.field("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}
