//! Conditions of an object: `status.conditions`.

use serde_json::{Value, json};

use crate::objects::metadata;

/// A condition with status True or False.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) holds: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(
        kind: &'static str,
        holds: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Condition {
        Condition { kind, holds, reason, message: message.into() }
    }
}

/// Reports whether a condition of an object is True.
pub(crate) fn holds(object: &Value, kind: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Sets a condition. Keeps its position, and its transition time if the status is the same.
pub(crate) fn set(object: &mut Value, condition: &Condition) {
    let Condition { kind, holds, reason, message } = condition;
    let state = if *holds { "True" } else { "False" };
    let mut all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let existing = all.iter_mut().find(|existing| existing["type"] == *kind);
    let same = existing.as_ref().filter(|existing| existing["status"] == state);
    let since = same.map_or_else(|| metadata::now().into(), |same| same["lastTransitionTime"].clone());
    let condition = json!({
        "type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match existing {
        Some(existing) => *existing = condition,
        None => all.push(condition),
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    object["status"]["conditions"] = all.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_position_and_transition_time_while_its_status_is_unchanged() {
        let then = "2026-11-16T06:00:00Z";
        let mut object = json!({ "status": { "conditions": [
            { "type": "A", "status": "True", "lastTransitionTime": then },
            { "type": "B", "status": "True", "lastTransitionTime": then },
        ] } });
        set(&mut object, &Condition::new("A", true, "Still", "x"));
        set(&mut object, &Condition::new("B", false, "NoMore", "y"));
        set(&mut object, &Condition::new("C", false, "Never", "z"));
        let conditions: Vec<&Value> = object["status"]["conditions"].as_array().unwrap().iter().collect();
        let types: Vec<&Value> = conditions.iter().map(|condition| &condition["type"]).collect();
        assert_eq!(types, ["A", "B", "C"]);
        assert_eq!(
            (&conditions[0]["lastTransitionTime"], &conditions[0]["reason"]),
            (&json!(then), &json!("Still"))
        );
        assert_ne!(conditions[1]["lastTransitionTime"], then);
        assert!(holds(&object, "A") && !holds(&object, "B") && !holds(&object, "D"));
        let mut bare = json!({});
        set(&mut bare, &Condition::new("A", true, "r", "m"));
        assert!(holds(&bare, "A"));
    }
}
