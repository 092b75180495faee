//! [`FieldError`]: a validation error of one field of an object.
//!
//! Validation returns a list of these. The API server converts the list to a Status with the reason `Invalid`.

use std::fmt;

use serde_json::Value;

use crate::meta::go;

/// An error, the field it is about, and the field's value.
#[derive(Clone, PartialEq, Debug)]
pub struct FieldError {
    /// `spec.containers[0].name`.
    pub field: String,
    pub fault: ErrorType,
    /// The invalid value; none where Kubernetes does not repeat it.
    pub value: Option<Value>,
    pub detail: String,
}

/// The types of field errors, each with the reason that the client sees in a cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    TypeInvalid,
    Internal,
}

impl ErrorType {
    /// Returns the `reason` of the cause.
    pub fn reason(self) -> &'static str {
        match self {
            ErrorType::NotFound => "FieldValueNotFound",
            ErrorType::Required => "FieldValueRequired",
            ErrorType::Duplicate => "FieldValueDuplicate",
            ErrorType::Invalid => "FieldValueInvalid",
            ErrorType::NotSupported => "FieldValueNotSupported",
            ErrorType::Forbidden => "FieldValueForbidden",
            ErrorType::TooLong => "FieldValueTooLong",
            ErrorType::TooShort => "FieldValueTooShort",
            ErrorType::TooMany => "FieldValueTooMany",
            ErrorType::TooFew => "FieldValueTooFew",
            ErrorType::TypeInvalid => "FieldValueTypeInvalid",
            ErrorType::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            ErrorType::NotFound => "Not found",
            ErrorType::Required => "Required value",
            ErrorType::Duplicate => "Duplicate value",
            ErrorType::Invalid | ErrorType::TypeInvalid => "Invalid value",
            ErrorType::NotSupported => "Unsupported value",
            ErrorType::Forbidden => "Forbidden",
            ErrorType::TooLong => "Too long",
            ErrorType::TooShort => "Too short",
            ErrorType::TooMany => "Too many",
            ErrorType::TooFew => "Too few",
            ErrorType::Internal => "Internal error",
        }
    }

    /// Reports whether the text repeats the value.
    fn includes_value(self) -> bool {
        !matches!(
            self,
            ErrorType::Required
                | ErrorType::Forbidden
                | ErrorType::TooLong
                | ErrorType::TooShort
                | ErrorType::Internal
        )
    }
}

impl FieldError {
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError { field: field.into(), fault: ErrorType::Required, value: None, detail: detail.into() }
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError { field: field.into(), fault: ErrorType::Forbidden, value: None, detail: detail.into() }
    }

    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::with_value(field, ErrorType::Invalid, value, detail)
    }

    pub fn type_invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::with_value(field, ErrorType::TypeInvalid, value, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::with_value(field, ErrorType::Duplicate, value, "")
    }

    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::with_value(field, ErrorType::NotFound, value, "")
    }

    /// Returns the error for a value outside a list of supported ones.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> FieldError {
        let quoted: Vec<_> = supported.iter().map(|value| go::quote(value)).collect();
        let detail = match quoted.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", quoted.join(", ")),
        };
        FieldError::with_value(field, ErrorType::NotSupported, value, detail)
    }

    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> FieldError {
        let detail = format!("may not be more than {}", count(max_bytes, "byte"));
        FieldError { field: field.into(), fault: ErrorType::TooLong, value: None, detail }
    }

    pub fn too_many(field: impl Into<String>, found: usize, max: usize) -> FieldError {
        let detail = format!("must have at most {}", count(max, "item"));
        FieldError::with_value(field, ErrorType::TooMany, found, detail)
    }

    pub fn too_few(field: impl Into<String>, found: usize, min: usize) -> FieldError {
        let detail = format!("must have at least {}", count(min, "item"));
        FieldError::with_value(field, ErrorType::TooFew, found, detail)
    }

    fn with_value(
        field: impl Into<String>,
        fault: ErrorType,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError { field: field.into(), fault, value: Some(value.into()), detail: detail.into() }
    }

    /// Returns the text without the field, as in a cause.
    pub fn body(&self) -> String {
        let mut text = self.fault.text().to_owned();
        if let Some(value) = self.value.as_ref().filter(|_| self.fault.includes_value()) {
            text.push_str(": ");
            text.push_str(&go::show(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Joins several errors to one text: each text once, in brackets if there are several.
pub fn summary(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    let mut seen = std::collections::HashSet::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    match texts.len() {
        1 => texts.remove(0),
        _ => format!("[{}]", texts.join(", ")),
    }
}

fn count(number: usize, unit: &str) -> String {
    match number {
        1 => format!("1 {unit}"),
        _ => format!("{number} {unit}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_error_has_the_text_of_kubernetes() {
        for (error, expected) in [
            (FieldError::required("spec.x", ""), "spec.x: Required value"),
            (FieldError::required("spec.x", "say which"), "spec.x: Required value: say which"),
            (
                FieldError::invalid("spec.n", -1, "must be greater than or equal to 0"),
                "spec.n: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                FieldError::invalid("spec.l", json!({"a": "b"}), "field is immutable"),
                "spec.l: Invalid value: {\"a\":\"b\"}: field is immutable",
            ),
            (FieldError::duplicate("spec.c[1].name", "web"), "spec.c[1].name: Duplicate value: \"web\""),
            (
                FieldError::not_supported("spec.type", "X", &["A", "B"]),
                "spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\"",
            ),
            (FieldError::forbidden("spec", "not now"), "spec: Forbidden: not now"),
            (
                FieldError::too_long("metadata.annotations", 1),
                "metadata.annotations: Too long: may not be more than 1 byte",
            ),
            (FieldError::too_many("x", 3, 2), "x: Too many: 3: must have at most 2 items"),
            (FieldError::too_few("x", 0, 1), "x: Too few: 0: must have at least 1 item"),
            (FieldError::not_found("x", "gone"), "x: Not found: \"gone\""),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_summary_contains_each_error_once() {
        let one = FieldError::required("a", "");
        let two = FieldError::required("b", "");
        assert_eq!(summary(&[one.clone(), one.clone()]), "a: Required value");
        assert_eq!(summary(&[one.clone(), two, one]), "[a: Required value, b: Required value]");
    }
}
