//! Validation of pod updates: which fields may change.

use serde_json::Value;

use crate::validation::common;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::value::{get, int, items, same, text};

const MUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                       `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                       to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                       previously negative)";

pub(crate) fn validate(old: &Value, new: &Value, found: &mut FieldErrors) {
    let at = FieldPath::TOP.field("spec");
    mirror(get(old, "metadata"), get(new, "metadata"), found);
    let (old, new) = (get(old, "spec"), get(new, "spec"));
    for list in ["containers", "initContainers"] {
        if items(old, list).len() != items(new, list).len() {
            return found.forbidden(&at.field(list), "pod updates may not add or remove containers");
        }
    }
    if !deadline(old, new, &at.field("activeDeadlineSeconds"), found) {
        return;
    }
    tolerations(items(old, "tolerations"), items(new, "tolerations"), &at.field("tolerations"), found);
    let old_gates = items(old, "schedulingGates");
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        if !old_gates.iter().any(|old| text(old, "name") == text(gate, "name")) {
            let name = text(gate, "name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            found.forbidden(&at.field("schedulingGates").index(index).field("name"), detail);
        }
    }
    let mut restored = new.clone();
    restore(old, &mut restored, &at, found);
    if !same(old, &restored) {
        found.forbidden(&at, format!("{MUTABLE}\n{}", differences(old, &restored)));
    }
}

/// Marks a pod that mirrors a static pod, which a kubelet started from a file.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn mirror(old: &Value, new: &Value, found: &mut FieldErrors) {
    let at = FieldPath::TOP.field("metadata.annotations");
    let (old, new) = (get(get(old, "annotations"), MIRROR), get(get(new, "annotations"), MIRROR));
    if old.is_null() && !new.is_null() {
        found.forbidden(&at.key(MIRROR), "may not add mirror pod annotation");
    } else if old != new {
        found.forbidden(&at.key(MIRROR), "may not remove or update mirror pod annotation");
    }
}

/// Checks that the deadline only decreases. Returns false if Kubernetes stops validating here.
fn deadline(old: &Value, new: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) -> bool {
    let (old, new) = (get(old, "activeDeadlineSeconds"), get(new, "activeDeadlineSeconds"));
    match (old.as_i64(), new.as_i64()) {
        (_, Some(seconds)) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            common::between(new, 0, i64::from(i32::MAX), at, found);
            false
        }
        (Some(before), Some(after)) if before < after => {
            found.invalid(at, after, "must be less than or equal to previous value");
            false
        }
        (Some(_), None) => {
            found.invalid(at, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

/// Checks that tolerations are only added, or change their seconds.
fn tolerations(old: &[Value], new: &[Value], at: &FieldPath<'_>, found: &mut FieldErrors) {
    let untimed = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.as_object_mut().and_then(|fields| fields.remove("tolerationSeconds"));
        toleration
    };
    let kept = |old: &Value| new.iter().any(|new| same(&untimed(old), &untimed(new)));
    if !old.iter().all(kept) {
        found.forbidden(at, "existing toleration can not be modified except its tolerationSeconds");
    }
}

/// Reverts the allowed changes; any remaining difference is an error.
fn restore(old: &Value, new: &mut Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for list in ["containers", "initContainers"] {
        let olds = items(old, list);
        let news = new.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (new, old) in news.zip(olds) {
            set(new, "image", get(old, "image"));
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        set(new, field, get(old, field));
    }
    if int(old, "terminationGracePeriodSeconds") < 0 && int(new, "terminationGracePeriodSeconds") == 1 {
        set(new, "terminationGracePeriodSeconds", get(old, "terminationGracePeriodSeconds"));
    }
    // The scheduling constraints of a gated pod may become narrower.
    if !items(old, "schedulingGates").is_empty() {
        let (before, after) = (get(old, "nodeSelector"), get(new, "nodeSelector"));
        let widened = |(key, value): (&String, &Value)| get(after, key) != value;
        if before.as_object().into_iter().flatten().any(widened) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            found.invalid(&at.field("nodeSelector"), after.clone(), detail);
        }
        set(new, "nodeSelector", before);
        let affinity = get(get(old, "affinity"), "nodeAffinity").clone();
        if let Some(now) = new.get_mut("affinity").filter(|affinity| affinity.is_object()) {
            set(now, "nodeAffinity", &affinity);
        }
    }
}

fn set(object: &mut Value, field: &str, value: &Value) {
    let Some(fields) = object.as_object_mut() else { return };
    match value {
        Value::Null => drop(fields.remove(field)),
        _ => drop(fields.insert(field.to_owned(), value.clone())),
    }
}

/// Formats the differences: one line for each removed and each added value.
fn differences(old: &Value, new: &Value) -> String {
    let mut lines = String::new();
    differ(old, new, &FieldPath::TOP, &mut lines);
    lines
}

fn differ(old: &Value, new: &Value, at: &FieldPath<'_>, lines: &mut String) {
    if same(old, new) {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
                differ(get(old, key), get(new, key), &at.field(key), lines);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (old, new)) in before.iter().zip(after).enumerate() {
                differ(old, new, &at.index(index), lines);
            }
        }
        _ => {
            for (sign, value) in [('-', old), ('+', new)] {
                if !value.is_null() {
                    lines.push_str(&format!("{sign} {at}: {value}\n"));
                }
            }
        }
    }
}
