//! Whether a definition is one to accept.

use serde_json::Value;

use crate::field::FieldError;

/// What is wrong with a new definition.
pub fn check_create(_definition: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with the next version of a definition.
pub fn check_update(_old: &Value, _new: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with the next status of a definition.
pub fn check_status(_old: &Value, _new: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What whoever writes a definition is told.
pub fn warnings(_old: Option<&Value>, _new: &Value) -> Vec<String> {
    Vec::new()
}
