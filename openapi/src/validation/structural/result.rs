//! What came of a check, and how it is told.

use serde_json::Value;

use super::STEP_BYTES;
use crate::meta::field::{ErrorType, FieldError};

/// Faults told of one object. The rest would not be read.
pub(super) const FAULTS_MAX: usize = 1_000;
/// Bytes of faults told of one object. One fault may be as long as its value and its definition are.
const BYTES_MAX: usize = 1 << 20;

/// How Kubernetes writes the path of what has none.
pub(super) fn without_path(prefix: &str) -> &str {
    if prefix.is_empty() { "<nil>" } else { prefix }
}

/// What came of one value.
#[derive(Default)]
pub(super) struct ValidationResult {
    pub(super) issues: Vec<ValidationIssue>,
    /// How many checks were made and passed, roughly.
    pub(super) matches: u64,
    /// How long the issues are, roughly.
    bytes: usize,
}

impl ValidationResult {
    pub(super) fn merge(&mut self, other: ValidationResult) {
        self.matches += other.matches;
        self.extend(other.issues);
    }

    /// Said once is enough.
    pub(super) fn add(&mut self, issue: ValidationIssue) {
        if !self.is_full() && !self.issues.iter().any(|known| known.message == issue.message) {
            self.bytes += issue.length();
            self.issues.push(issue);
        }
    }

    /// Whether nothing more would be told.
    pub(super) fn is_full(&self) -> bool {
        self.issues.len() >= FAULTS_MAX || self.bytes >= BYTES_MAX
    }

    /// What it takes to tell the issues.
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

/// One thing that is wrong.
pub(super) struct ValidationIssue {
    /// Where it is; none for what is said about the object as a whole.
    pub(super) path: Option<String>,
    pub(super) fault: ErrorType,
    pub(super) value: Option<Value>,
    /// All of what is wrong, by which issues are told apart.
    pub(super) message: String,
    /// What a client is told, where that is not the message.
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

    /// Said about the object as a whole, with the path in the text.
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

    pub(super) fn told(self, prefix: &str) -> FieldError {
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
