//! Converts HorizontalPodAutoscalers between `autoscaling/v1` and `autoscaling/v2`.
//!
//! Version 1 has one metric: CPU utilization. Everything else of version 2 is kept in annotations of version 1, as JSON
//! texts with a layout of their own, so a client of version 1 sends back what it received.

use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The fields of a metric's annotation and their places in version 2: `(type of metric, field, pointer)`.
const TARGET_FIELDS: &[(&str, &str, &str)] = &[
    ("resource", "name", "/name"),
    ("resource", "targetAverageUtilization", "/target/averageUtilization"),
    ("resource", "targetAverageValue", "/target/averageValue"),
    ("containerResource", "name", "/name"),
    ("containerResource", "container", "/container"),
    ("containerResource", "targetAverageUtilization", "/target/averageUtilization"),
    ("containerResource", "targetAverageValue", "/target/averageValue"),
    ("pods", "metricName", "/metric/name"),
    ("pods", "selector", "/metric/selector"),
    ("pods", "targetAverageValue", "/target/averageValue"),
    ("object", "target", "/describedObject"),
    ("object", "metricName", "/metric/name"),
    ("object", "selector", "/metric/selector"),
    ("object", "targetValue", "/target/value"),
    ("object", "averageValue", "/target/averageValue"),
    ("external", "metricName", "/metric/name"),
    ("external", "metricSelector", "/metric/selector"),
    ("external", "targetValue", "/target/value"),
    ("external", "targetAverageValue", "/target/averageValue"),
];

/// The same for current values.
const MEASURED: &[(&str, &str, &str)] = &[
    ("resource", "name", "/name"),
    ("resource", "currentAverageUtilization", "/current/averageUtilization"),
    ("resource", "currentAverageValue", "/current/averageValue"),
    ("containerResource", "name", "/name"),
    ("containerResource", "container", "/container"),
    ("containerResource", "currentAverageUtilization", "/current/averageUtilization"),
    ("containerResource", "currentAverageValue", "/current/averageValue"),
    ("pods", "metricName", "/metric/name"),
    ("pods", "selector", "/metric/selector"),
    ("pods", "currentAverageValue", "/current/averageValue"),
    ("object", "target", "/describedObject"),
    ("object", "metricName", "/metric/name"),
    ("object", "selector", "/metric/selector"),
    ("object", "currentValue", "/current/value"),
    ("object", "averageValue", "/current/averageValue"),
    ("external", "metricName", "/metric/name"),
    ("external", "metricSelector", "/metric/selector"),
    ("external", "currentValue", "/current/value"),
    ("external", "currentAverageValue", "/current/averageValue"),
];

pub(super) fn to_v1(object: &mut Value) {
    let mut metrics = take(object, "/spec", "metrics").and_then(into_list).unwrap_or_default();
    if let Some(index) = metrics.iter().position(is_processor) {
        let metric = metrics.remove(index);
        object["spec"]["targetCPUUtilizationPercentage"] =
            metric["resource"]["target"]["averageUtilization"].clone();
    }
    let behavior = take(object, "/spec", "behavior").map(|behavior| recased(&behavior, upper));
    let conditions = take(object, "/status", "conditions").and_then(into_list).unwrap_or_default();
    let current = take(object, "/status", "currentMetrics").and_then(into_list).unwrap_or_default();
    if let Some(measured) = current.iter().find(|metric| metric["resource"]["name"] == "cpu") {
        let utilization = &measured["resource"]["current"]["averageUtilization"];
        if !utilization.is_null() {
            object["status"]["currentCPUUtilizationPercentage"] = utilization.clone();
        }
    }
    let flat = |metrics: Vec<Value>, words| -> Vec<Value> {
        metrics.iter().map(|metric| flattened(metric, words)).collect()
    };
    annotate(object, METRICS, flat(metrics, TARGET_FIELDS).into());
    annotate(object, CURRENT_METRICS, flat(current, MEASURED).into());
    annotate(object, CONDITIONS, conditions.into());
    annotate(object, BEHAVIOR, behavior.unwrap_or_default());
}

pub(super) fn to_v2(object: &mut Value) {
    let deep = |noted: Option<Value>, words, side| -> Vec<Value> {
        let metrics = noted.and_then(into_list).unwrap_or_default();
        metrics.iter().map(|metric| deepened(metric, words, side)).collect()
    };
    let mut metrics = deep(noted(object, METRICS), TARGET_FIELDS, "target");
    if let Some(percent) = take(object, "/spec", "targetCPUUtilizationPercentage") {
        let target = json!({ "type": "Utilization", "averageUtilization": percent });
        metrics.push(json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } }));
    }
    let mut current = deep(noted(object, CURRENT_METRICS), MEASURED, "current");
    if let Some(percent) = take(object, "/status", "currentCPUUtilizationPercentage")
        && !current.iter().any(|metric| metric["resource"]["name"] == "cpu")
    {
        let measured = json!({ "averageUtilization": percent });
        current.push(json!({ "type": "Resource", "resource": { "name": "cpu", "current": measured } }));
    }
    let behavior = noted(object, BEHAVIOR).map(|behavior| recased(&behavior, lower));
    let conditions = noted(object, CONDITIONS);
    if object["metadata"]["annotations"].as_object().is_some_and(Map::is_empty) {
        take(object, "/metadata", "annotations");
    }
    put(object, "spec", "metrics", metrics.into());
    put(object, "spec", "behavior", behavior.unwrap_or_default());
    put(object, "status", "currentMetrics", current.into());
    put(object, "status", "conditions", conditions.unwrap_or_default());
}

fn is_processor(metric: &Value) -> bool {
    let resource = &metric["resource"];
    resource["name"] == "cpu" && !resource["target"]["averageUtilization"].is_null()
}

/// Converts a metric to the flat layout of the annotation. Kubernetes writes a zero for an object metric without a
/// value.
fn flattened(metric: &Value, words: &[(&str, &str, &str)]) -> Value {
    let mut out = json!({ "type": metric["type"] });
    for (kind, word, pointer) in words {
        let Some(inner) = metric.get(*kind) else { continue };
        match inner.pointer(pointer) {
            Some(value) => out[*kind][*word] = value.clone(),
            None if matches!((*kind, *word), ("object", "targetValue" | "currentValue")) => {
                out[*kind][*word] = "0".into()
            }
            None => {}
        }
    }
    out
}

/// Converts a metric of the annotation back. The fields that are set determine whether a target is a value, an average
/// or a utilization.
fn deepened(metric: &Value, words: &[(&str, &str, &str)], side: &str) -> Value {
    let mut out = json!({ "type": metric["type"] });
    for (kind, word, pointer) in words {
        let Some(value) = metric.get(*kind).and_then(|inner| inner.get(*word)) else { continue };
        let averaged = metric[*kind].get("averageValue").is_some();
        if *kind == "object" && averaged && value == "0" && word.ends_with("Value") {
            continue;
        }
        let mut steps = pointer.split('/').skip(1);
        let (first, second) = (steps.next().unwrap_or_default(), steps.next());
        match second {
            Some(second) => out[*kind][first][second] = value.clone(),
            None => out[*kind][first] = value.clone(),
        }
    }
    if side == "target" {
        for inner in out
            .as_object_mut()
            .into_iter()
            .flatten()
            .map(|(_, value)| value)
            .filter(|value| value.is_object())
        {
            let target = &inner["target"];
            let kind = match () {
                () if target.get("averageUtilization").is_some() => "Utilization",
                () if target.get("averageValue").is_some() => "AverageValue",
                () => "Value",
            };
            inner["target"]["type"] = kind.into();
        }
    }
    out
}

/// Converts the keys of a behavior. Its annotation has Go's field names, and a null for every unset field.
fn recased(behavior: &Value, case: fn(&str) -> String) -> Value {
    let rules = ["stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance"];
    match behavior {
        Value::Object(fields) => {
            let mut out: Map<String, Value> =
                fields.iter().map(|(key, value)| (case(key), recased(value, case))).collect();
            for (key, side) in
                ["scaleUp", "scaleDown"].iter().filter_map(|key| Some((key, fields.get(*key)?)))
            {
                for rule in rules.iter().filter(|rule| side.get(**rule).is_none()) {
                    out[&case(key)][case(rule)] = Value::Null;
                }
            }
            if case("a") == "a" {
                out.retain(|_, value| !value.is_null());
            }
            Value::Object(out)
        }
        Value::Array(list) => list.iter().map(|value| recased(value, case)).collect(),
        leaf => leaf.clone(),
    }
}

fn upper(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn lower(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn into_list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

fn take(object: &mut Value, within: &str, field: &str) -> Option<Value> {
    object.pointer_mut(within)?.as_object_mut()?.remove(field).filter(|value| !value.is_null())
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn put(object: &mut Value, within: &str, field: &str, value: Value) {
    if !is_empty(&value) {
        object[within][field] = value;
    }
}

fn annotate(object: &mut Value, key: &str, value: Value) {
    if !is_empty(&value) {
        object["metadata"]["annotations"][key] = value.to_string().into();
    }
}

/// Removes an annotation and returns its value. A text that is not JSON stays: this conversion did not write it.
fn noted(object: &mut Value, key: &str) -> Option<Value> {
    let annotations = object.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    let value = serde_json::from_str(annotations.get(key)?.as_str()?).ok()?;
    annotations.remove(key);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns both versions of one autoscaler with every type of metric, as a kube-apiserver 1.36 returns them.
    fn sample_pair() -> (Value, Value) {
        let mut both: Value = serde_json::from_str(include_str!("autoscaler.json")).unwrap();
        (both["v1"].take(), both["v2"].take())
    }

    /// Parses the annotations with JSON, so that the order of fields does not matter.
    fn with_annotations_read(mut object: Value) -> Value {
        for (_, text) in object["metadata"]["annotations"].as_object_mut().unwrap() {
            if let Ok(value) = serde_json::from_str(text.as_str().unwrap()) {
                *text = value;
            }
        }
        object
    }

    #[test]
    fn autoscaler_v1_equals_that_of_kubernetes() {
        let (v1, mut v2) = sample_pair();
        to_v1(&mut v2);
        v2["apiVersion"] = "autoscaling/v1".into();
        assert_eq!(with_annotations_read(v2), with_annotations_read(v1));
    }

    /// Only the order of metrics changes, as in Kubernetes: the CPU metric of version 1 comes last.
    #[test]
    fn a_round_trip_loses_nothing() {
        let (mut v1, mut v2) = sample_pair();
        to_v2(&mut v1);
        v1["apiVersion"] = "autoscaling/v2".into();
        let metrics = v2["spec"]["metrics"].as_array_mut().unwrap();
        let index = metrics.iter().position(is_processor).unwrap();
        let processor = metrics.remove(index);
        metrics.push(processor);
        assert_eq!(v1, v2);
    }

    #[test]
    fn a_plain_autoscaler_needs_no_annotation() {
        let plain = json!({
            "metadata": { "name": "a" },
            "spec": { "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 },
            "status": { "currentReplicas": 1, "currentCPUUtilizationPercentage": 7 },
        });
        let mut converted = plain.clone();
        to_v2(&mut converted);
        assert_eq!(converted["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
        assert!(converted["metadata"].get("annotations").is_none());
        let mut back = converted;
        to_v1(&mut back);
        back["metadata"]["annotations"]
            .as_object_mut()
            .map(|annotations| annotations.remove(CURRENT_METRICS));
        assert_eq!((&back["spec"], &back["status"]), (&plain["spec"], &plain["status"]));
    }
}
