//! Defaults of HorizontalPodAutoscalers that `defaults.txt` cannot express.

use serde_json::{Value, json};

use super::access::{Fields, inner, inner_mut, made};

/// The annotation of `autoscaling/v1` with the metrics for which that version has no fields.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

/// Percent.
const CPU_TARGET: u32 = 80;

/// Completes the scaling rules of each direction.
pub(super) fn scaling_rules(behavior: &mut Fields) {
    let all_at_once = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
    let a_few = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
    let mut complete = |direction: &str, rules: Value| {
        let (Some(explicit), Value::Object(rules)) = (made(behavior, direction), rules) else { return };
        for (name, value) in rules {
            let slot = explicit.entry(name).or_insert(Value::Null);
            if slot.is_null() {
                *slot = value;
            }
        }
    };
    complete(
        "scaleUp",
        json!({ "stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [a_few, all_at_once] }),
    );
    complete("scaleDown", json!({ "selectPolicy": "Max", "policies": [all_at_once] }));
}

/// Sets the CPU target of `autoscaling/v1`, unless the annotation has other metrics.
pub(super) fn cpu_target(autoscaler: &mut Fields) {
    if inner(autoscaler, &["metadata", "annotations"])
        .is_some_and(|annotations| annotations.contains_key(METRICS))
    {
        return;
    }
    if let Some(spec) = inner_mut(autoscaler, &["spec"]) {
        let target = spec.entry("targetCPUUtilizationPercentage").or_insert(Value::Null);
        if target.is_null() {
            *target = CPU_TARGET.into();
        }
    }
}
