//! The result of a validation and its conversion to field errors.

use serde_json::Value;

use super::STEP_BYTES;
use api::meta::field::{ErrorType, FieldError};

/// Maximum number of errors for one object. Further ones would not be read.
pub(super) const FAULTS_MAX: usize = 1_000;
/// Maximum size of all errors for one object. One error may be as long as its value and its definition.
const BYTES_MAX: usize = 1 << 20;

/// Returns the path in Kubernetes' texts for an error without a path.
pub(super) fn without_path(prefix: &str) -> &str {
    if prefix.is_empty() { "<nil>" } else { prefix }
}

/// The result of validating one value.
#[derive(Default)]
pub(super) struct ValidationResult {
    pub(super) issues: Vec<ValidationIssue>,
    /// The approximate number of passed checks.
    pub(super) matches: u64,
    /// The approximate size of the issues.
    bytes: usize,
}

impl ValidationResult {
    pub(super) fn merge(&mut self, other: ValidationResult) {
        self.matches += other.matches;
        self.extend(other.issues);
    }

    /// Adds an issue, unless there is one with the same message.
    pub(super) fn add(&mut self, issue: ValidationIssue) {
        if !self.is_full() && !self.issues.iter().any(|other| other.message == issue.message) {
            self.bytes += issue.length();
            self.issues.push(issue);
        }
    }

    /// Reports whether the maximum number or size of errors is reached.
    pub(super) fn is_full(&self) -> bool {
        self.issues.len() >= FAULTS_MAX || self.bytes >= BYTES_MAX
    }

    /// Returns the steps that reporting the issues takes.
    pub(super) fn steps(&self) -> u64 {
        (self.issues.len() + self.bytes / STEP_BYTES) as u64
    }

    pub(super) fn extend(&mut self, issues: impl IntoIterator<Item = ValidationIssue>) {
        issues.into_iter().for_each(|issue| self.add(issue));
    }

    pub(super) fn is_valid(&self) -> bool {
        self.issues.is_empty()
    }
}

/// One validation error.
pub(super) struct ValidationIssue {
    /// The path of the value; none for an error of the whole object.
    pub(super) path: Option<String>,
    pub(super) fault: ErrorType,
    pub(super) value: Option<Value>,
    /// The complete text, which identifies the issue.
    pub(super) message: String,
    /// The text for the client, if it is not the message.
    pub(super) detail: Option<String>,
}

impl ValidationIssue {
    pub(super) fn invalid(path: &str, value: impl Into<Value>, message: String) -> ValidationIssue {
        ValidationIssue {
            path: Some(path.to_owned()),
            fault: ErrorType::Invalid,
            value: Some(value.into()),
            message,
            detail: None,
        }
    }

    /// An error of the whole object, with the path in the text.
    pub(super) fn general(message: String) -> ValidationIssue {
        ValidationIssue {
            path: None,
            fault: ErrorType::Invalid,
            value: Some("".into()),
            message,
            detail: None,
        }
    }

    pub(super) fn with(
        path: &str,
        fault: ErrorType,
        value: Option<Value>,
        message: String,
        detail: String,
    ) -> ValidationIssue {
        ValidationIssue { path: Some(path.to_owned()), fault, value, message, detail: Some(detail) }
    }

    fn length(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        length(&self.path)
            + self.message.len()
            + length(&self.detail)
            + self.value.as_ref().map_or(0, value_length)
    }

    pub(super) fn into_field_error(self, prefix: &str) -> FieldError {
        let path = self.path.as_deref().map_or("", |path| path.strip_prefix('.').unwrap_or(path));
        let field = match (prefix, path) {
            (_, "") => without_path(prefix).to_owned(),
            ("", path) => path.to_owned(),
            (prefix, path) => format!("{prefix}.{path}"),
        };
        let detail = self.detail.unwrap_or(self.message);
        FieldError { field, fault: self.fault, value: self.value, detail }
    }
}

fn value_length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 1 + value_length(item)).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| 1 + name.len() + value_length(value)).sum()
        }
        _ => 1,
    }
}
