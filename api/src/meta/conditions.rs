//! Conditions of a status.

use serde_json::Value;

/// Returns the condition of this type in `status.conditions`.
pub fn find<'a>(object: &'a Value, condition_type: &str) -> Option<&'a Value> {
    find_in(&object["status"], condition_type)
}

/// Returns the condition of this type in the `conditions` of a status.
pub fn find_in<'a>(status: &'a Value, condition_type: &str) -> Option<&'a Value> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == condition_type)
}

/// Reports whether the object has a condition of this type with status `True`.
pub fn is_true(object: &Value, condition_type: &str) -> bool {
    find(object, condition_type).is_some_and(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_is_found_by_its_type() {
        let ready = json!({ "type": "Ready", "status": "True" });
        let object = json!({ "status": { "conditions": [{ "type": "Failed", "status": "False" }, ready] } });
        assert_eq!(find(&object, "Ready"), Some(&ready));
        assert_eq!(find(&object, "Complete"), None);
        assert_eq!(["Ready", "Failed", "Complete"].map(|name| is_true(&object, name)), [true, false, false]);
        assert!(!is_true(&json!({}), "Ready"));
    }
}
