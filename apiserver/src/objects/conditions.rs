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
    let found = all.iter_mut().find(|found| found["type"] == *kind);
    let same = found.as_ref().filter(|found| found["status"] == state);
    let since = same.map_or_else(|| metadata::now().into(), |same| same["lastTransitionTime"].clone());
    let said = json!({
        "type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match found {
        Some(found) => *found = said,
        None => all.push(said),
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
    fn a_condition_keeps_its_place_and_its_time_while_it_keeps_its_state() {
        let then = "2026-11-16T06:00:00Z";
        let mut object = json!({ "status": { "conditions": [
            { "type": "A", "status": "True", "lastTransitionTime": then },
            { "type": "B", "status": "True", "lastTransitionTime": then },
        ] } });
        set(&mut object, &Condition::new("A", true, "Still", "x"));
        set(&mut object, &Condition::new("B", false, "NoMore", "y"));
        set(&mut object, &Condition::new("C", false, "Never", "z"));
        let said: Vec<&Value> = object["status"]["conditions"].as_array().unwrap().iter().collect();
        let types: Vec<&Value> = said.iter().map(|condition| &condition["type"]).collect();
        assert_eq!(types, ["A", "B", "C"]);
        assert_eq!((&said[0]["lastTransitionTime"], &said[0]["reason"]), (&json!(then), &json!("Still")));
        assert_ne!(said[1]["lastTransitionTime"], then);
        assert!(holds(&object, "A") && !holds(&object, "B") && !holds(&object, "D"));
        let mut bare = json!({});
        set(&mut bare, &Condition::new("A", true, "r", "m"));
        assert!(holds(&bare, "A"));
    }
}
