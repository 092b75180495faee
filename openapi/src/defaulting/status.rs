//! Prepares status updates: keeps all other fields, and sets times in the status.

use jiff::Timestamp;
use serde_json::Value;

use super::access::{Fields, inner, inner_mut, items, items_mut, number, text};
use api::meta::time;

use crate::catalog::resource_info::ResourceInfo;

type StatusFn = fn(old: &Fields, new: &mut Fields, now: &str);

/// Steps by kind. Both arguments are statuses, not objects.
const STEPS: &[(&str, StatusFn)] = &[
    ("certificatesigningrequests.certificates.k8s.io", |old, new, now| {
        keep_judgements(old, new);
        condition_times(old, new, now);
    }),
    ("persistentvolumes", phase_time),
    ("pods", |old, new, _| silent_kubelet(old, new)),
];

/// Fields that identify an object; the caller decides which of them may change.
const IDENTITY: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn prepare(resource: &ResourceInfo, old: &Fields, new: &mut Fields, now: Timestamp) {
    let is_ours = |name: &String| name == "status" || IDENTITY.contains(&name.as_str());
    new.retain(|name, _| is_ours(name));
    new.extend(
        old.iter().filter(|(name, _)| !is_ours(name)).map(|(name, value)| (name.clone(), value.clone())),
    );
    let kind = resource.qualified();
    let before = inner(old, &["status"]).cloned().unwrap_or_default();
    if let Some((_, step)) = STEPS.iter().find(|(name, _)| *name == kind)
        && let Some(status) = inner_mut(new, &["status"])
    {
        step(&before, status, &time::seconds(now));
    }
}

/// Sets the time of a volume's last phase change, unless the client sets it.
fn phase_time(old: &Fields, new: &mut Fields, now: &str) {
    const TIME: &str = "lastPhaseTransitionTime";
    let new_time = new.get(TIME).filter(|time| !time.is_null());
    let time = match text(old, "phase") == text(new, "phase") {
        true if new_time.is_none() => old.get(TIME).cloned(),
        false if new_time.is_none() || new_time == old.get(TIME) => Some(Value::from(now)),
        _ => None,
    };
    new.extend(time.map(|time| (TIME.to_owned(), time)));
}

/// Keeps fields that a kubelet omits because it is older than they are.
fn silent_kubelet(old: &Fields, new: &mut Fields) {
    if text(new, "qosClass").is_empty() {
        new.extend(old.get("qosClass").map(|pod_qos_class| ("qosClass".to_owned(), pod_qos_class.clone())));
    }
    keep_generation(Some(old), new);
    let mut before: Vec<_> = items(old, "conditions").collect();
    for condition in items_mut(new, "conditions") {
        let index = before.iter().position(|old| text(old, "type") == text(condition, "type"));
        keep_generation(index.map(|index| before.remove(index)), condition);
    }
}

fn keep_generation(old: Option<&Fields>, new: &mut Fields) {
    const GENERATION: &str = "observedGeneration";
    let before = old.map_or(0, |old| number(old, GENERATION));
    if number(new, GENERATION) == 0 && before != 0 {
        new.insert(GENERATION.to_owned(), before.into());
    }
}

pub(super) fn date_conditions(old: &Value, new: &mut Value, now: Timestamp) {
    let nothing = Fields::new();
    let before = old.get("status").and_then(Value::as_object).unwrap_or(&nothing);
    if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
        condition_times(before, status, &time::seconds(now));
    }
}

/// Keeps the Approved and Denied conditions. A signer repeats them, but not necessarily exactly. If it adds or removes
/// one, validation reports that.
fn keep_judgements(old: &Fields, new: &mut Fields) {
    for kind in ["Approved", "Denied"] {
        let of_kind = |condition: &&Fields| text(condition, "type") == kind;
        let before: Vec<Fields> = items(old, "conditions").filter(of_kind).cloned().collect();
        if items(new, "conditions").filter(of_kind).count() != before.len() {
            continue;
        }
        let after = items_mut(new, "conditions").filter(|condition| text(condition, "type") == kind);
        after.zip(before).for_each(|(after, before)| *after = before);
    }
}

fn condition_times(old: &Fields, new: &mut Fields, now: &str) {
    let is_time = |value: Option<&Value>| value.is_some_and(|time| !time.is_null());
    for condition in items_mut(new, "conditions") {
        if !is_time(condition.get("lastUpdateTime")) {
            condition.insert("lastUpdateTime".to_owned(), now.into());
        }
        if !is_time(condition.get("lastTransitionTime")) {
            let same = |old: &&Fields| {
                ["type", "status"].iter().all(|field| text(old, field) == text(condition, field))
            };
            let before = items(old, "conditions").find(same).and_then(|old| old.get("lastTransitionTime"));
            let time = before.filter(|time| !time.is_null()).cloned().unwrap_or_else(|| now.into());
            condition.insert("lastTransitionTime".to_owned(), time);
        }
    }
}
