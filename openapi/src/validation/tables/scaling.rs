//! Validation of HorizontalPodAutoscalers.

use serde_json::Value;

use crate::validation::common::POSITIVE;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::resources;
use crate::validation::rule::FieldRule::{
    AtLeast, AtMost, Code, NonNegative, NonNegativeQuantity, OneOf, Required, Text,
};
use crate::validation::rule::Rule::{Check, Field, Into, Skip};
use crate::validation::rule::{FieldRule, REQUIRED, Rule, Table};
use crate::validation::value::{get, has, int, items, quantity, text};
use api::meta::names::{dns1123_label, path_segment};

const SOURCES: &[(&str, &str)] = &[
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
const SOURCE_TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
const METRIC: FieldRule = Required("must specify a metric name");
const TARGET: FieldRule = Required("must specify a resource name");

const SPEC: &[Rule] = &[
    Field("minReplicas", &[AtLeast(1, "must be greater than or equal to 1")]),
    Field(
        "maxReplicas",
        &[Required("must be set and greater than 0"), AtLeast(1, "must be greater than or equal to 1")],
    ),
    Check(bounds),
    Into("scaleTargetRef"),
];

const REFERENCE: &[Rule] =
    &[Field("kind", &[REQUIRED, Text(path_segment)]), Field("name", &[REQUIRED, Text(path_segment)])];

pub(super) const RULES: Table = &[
    (
        "autoscaling.v2.HorizontalPodAutoscalerSpec",
        &[
            Field("minReplicas", &[AtLeast(1, "must be greater than or equal to 1")]),
            Field(
                "maxReplicas",
                &[
                    Required("must be set and greater than 0"),
                    AtLeast(1, "must be greater than or equal to 1"),
                ],
            ),
            Check(bounds),
            Into("scaleTargetRef"),
            Into("metrics"),
            Check(to_zero),
        ],
    ),
    ("autoscaling.v1.HorizontalPodAutoscalerSpec", SPEC),
    ("autoscaling.v2.CrossVersionObjectReference", REFERENCE),
    ("autoscaling.v1.CrossVersionObjectReference", REFERENCE),
    ("autoscaling.v2.MetricSpec", &[Check(metric)]),
    ("autoscaling.v2.MetricIdentifier", &[Field("name", &[METRIC, Text(path_segment)])]),
    ("autoscaling.v2.MetricTarget", &[Check(target)]),
    ("autoscaling.v2.ResourceMetricSource", &[Field("name", &[TARGET]), Into("target"), Check(utilization)]),
    (
        "autoscaling.v2.ContainerResourceMetricSource",
        &[
            Field("name", &[TARGET, Code(container_resource)]),
            Field("container", &[Required("must specify a container"), Text(dns1123_label)]),
            Into("target"),
            Check(utilization),
        ],
    ),
    ("autoscaling.v2.PodsMetricSource", &[Into("metric"), Into("target"), Check(pods_target)]),
    (
        "autoscaling.v2.ObjectMetricSource",
        &[Into("describedObject"), Into("metric"), Into("target"), Check(object_target)],
    ),
    ("autoscaling.v2.ExternalMetricSource", &[Into("metric"), Into("target"), Check(external_target)]),
    ("autoscaling.v2.HorizontalPodAutoscalerBehavior", &[Into("scaleUp"), Into("scaleDown")]),
    (
        "autoscaling.v2.HPAScalingRules",
        &[
            Field(
                "stabilizationWindowSeconds",
                &[
                    AtLeast(0, "must be greater than or equal to zero"),
                    AtMost(3600, "must be less than or equal to 3600"),
                ],
            ),
            Field("selectPolicy", &[OneOf(&["Disabled", "Max", "Min"])]),
            Field("policies", &[Required("must specify at least one Policy")]),
            Into("policies"),
            Field("tolerance", &[NonNegativeQuantity]),
        ],
    ),
    (
        "autoscaling.v2.HPAScalingPolicy",
        &[
            Field("type", &[OneOf(&["Percent", "Pods"])]),
            Field("value", &[AtLeast(1, POSITIVE)]),
            Field(
                "periodSeconds",
                &[AtLeast(1, POSITIVE), AtMost(1800, "must be less than or equal to 1800")],
            ),
        ],
    ),
    (
        "autoscaling.v2.HorizontalPodAutoscalerStatus",
        &[
            Skip("currentMetrics"),
            Field("currentReplicas", &[NonNegative]),
            Field("desiredReplicas", &[NonNegative]),
        ],
    ),
    ("autoscaling.v1.ScaleSpec", &[Field("replicas", &[NonNegative])]),
];

fn bounds(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let max = int(spec, "maxReplicas");
    if get(spec, "minReplicas").as_i64().is_some_and(|min| max < min) {
        let detail = "must be greater than or equal to `minReplicas`";
        found.invalid(&at.field("maxReplicas"), max, detail);
    }
}

/// Checks that an autoscaler that can scale to zero has a metric that does not come from its pods.
fn to_zero(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let outside = |metric: &Value| ["Object", "External"].contains(&text(metric, "type"));
    if get(spec, "minReplicas").as_i64() == Some(0) && !items(spec, "metrics").iter().any(outside) {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        found.forbidden(&at.field("metrics"), detail);
    }
}

/// Checks that a metric has exactly the source that its type names.
fn metric(metric: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let kind = text(metric, "type");
    if kind.is_empty() {
        found.required(&at.field("type"), "must specify a metric source type");
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    match expected {
        // Like Kubernetes, reports this twice.
        None => {
            for _ in 0..2 {
                found.not_supported(&at.field("type"), kind, SOURCE_TYPES);
            }
        }
        Some(field) if !has(metric, field) => {
            found.required(&at.field(field), "must populate information for the given metric source");
        }
        Some(_) => {}
    }
    let present: Vec<_> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| has(metric, field)).collect();
    if present.len() > 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            found.forbidden(&at.field(field), "must populate the given metric source only");
        }
    }
}

fn target(target: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let kind = text(target, "type");
    if kind.is_empty() {
        found.required(&at.field("type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        found.invalid(&at.field("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = quantity(get(target, field));
        if has(target, field) && (amount.is_zero() || amount.is_negative()) {
            found.invalid(&at.field(field), amount.to_string(), "must be positive");
        }
    }
    let utilization = get(target, "averageUtilization");
    if utilization.as_i64().is_some_and(|percent| percent < 1) {
        found.invalid(&at.field("averageUtilization"), utilization.clone(), "must be greater than 0");
    }
}

fn utilization(source: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (target, at) = (get(source, "target"), at.field("target"));
    match (has(target, "averageUtilization"), has(target, "averageValue")) {
        (false, false) => found.required(
            &at.field("averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        (true, true) => found.forbidden(
            &at.field("averageValue"),
            "may not set both a target raw value and a target utilization",
        ),
        _ => {}
    }
}

fn container_resource(value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    resources::container_name(value.as_str().unwrap_or_default(), at, found);
}

fn pods_target(source: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !has(get(source, "target"), "averageValue") {
        found.required(&at.field("target.averageValue"), "must specify a positive target averageValue");
    }
}

fn object_target(source: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let target = get(source, "target");
    if !has(target, "value") && !has(target, "averageValue") {
        let detail = "must set either a target value or averageValue";
        found.required(&at.field("target.averageValue"), detail);
    }
}

fn external_target(source: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let target = get(source, "target");
    match (has(target, "value"), has(target, "averageValue")) {
        (false, false) => found.required(
            &at.field("target.averageValue"),
            "must set either a target value for metric or a per-pod target",
        ),
        (true, true) => found.forbidden(
            &at.field("target.value"),
            "may not set both a target value for metric and a per-pod target",
        ),
        _ => {}
    }
}
