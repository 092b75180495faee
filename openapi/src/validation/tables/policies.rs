//! Validation of PodDisruptionBudgets.

use serde_json::Value;

use crate::validation::common::{at_most_all, positive_int_or_percent};
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule::FieldRule::{Code, NonNegative, OneOf, Selector};
use crate::validation::rule::Rule::{Check, Field};
use crate::validation::rule::Table;
use crate::validation::value::{get, has, text};
use api::meta::field::ErrorType;

pub(super) const RULES: Table = &[
    (
        "policy.v1.PodDisruptionBudgetSpec",
        &[
            Check(one_of_two_bounds),
            Field("minAvailable", &[Code(positive_int_or_percent), Code(at_most_all)]),
            Field("maxUnavailable", &[Code(positive_int_or_percent), Code(at_most_all)]),
            Field("selector", &[Selector]),
            Field("unhealthyPodEvictionPolicy", &[OneOf(&["AlwaysAllow", "IfHealthyBudget"])]),
        ],
    ),
    (
        "policy.v1.PodDisruptionBudgetStatus",
        &[
            Field("disruptionsAllowed", &[NonNegative]),
            Field("currentHealthy", &[NonNegative]),
            Field("desiredHealthy", &[NonNegative]),
            Field("expectedPods", &[NonNegative]),
        ],
    ),
];

fn one_of_two_bounds(spec: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        let policy = match text(spec, "unhealthyPodEvictionPolicy") {
            "" => "null".to_owned(),
            policy => format!("{policy:?}"),
        };
        let formatted = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{policy}}}",
            get(spec, "minAvailable"),
            get(spec, "selector"),
            get(spec, "maxUnavailable"),
        );
        found.error_with_text(
            at,
            ErrorType::Invalid,
            &formatted,
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
}
