//! The path of a field during validation, and the list of errors.
//!
//! A path is a chain of borrowed elements on the stack: descending allocates nothing, and only an error formats the
//! path.

use std::fmt;

use serde_json::Value;

use api::meta::field::{ErrorType, FieldError};

/// `spec.containers[0].name`, linked from its last element to its first.
#[derive(Clone, Copy)]
pub(super) struct FieldPath<'a> {
    above: Option<&'a FieldPath<'a>>,
    step: PathElement<'a>,
}

#[derive(Clone, Copy)]
enum PathElement<'a> {
    /// The object itself.
    Top,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> FieldPath<'a> {
    pub(super) const TOP: FieldPath<'static> = FieldPath { above: None, step: PathElement::Top };

    /// Appends a field; a name with dots stands for several.
    pub(super) fn field(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath { above: Some(self), step: PathElement::Field(name) }
    }

    pub(super) fn index(&'a self, index: usize) -> FieldPath<'a> {
        FieldPath { above: Some(self), step: PathElement::Index(index) }
    }

    /// Appends a key of a map.
    pub(super) fn key(&'a self, key: &'a str) -> FieldPath<'a> {
        FieldPath { above: Some(self), step: PathElement::Key(key) }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_parent = match self.above {
            None => false,
            Some(above) => {
                above.fmt(f)?;
                !matches!(above.step, PathElement::Top)
            }
        };
        match self.step {
            PathElement::Top => Ok(()),
            PathElement::Field(name) if has_parent => write!(f, ".{name}"),
            PathElement::Field(name) => f.write_str(name),
            PathElement::Index(index) => write!(f, "[{index}]"),
            PathElement::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// The errors in the order of their discovery.
#[derive(Default)]
pub(super) struct FieldErrors {
    pub(super) errors: Vec<FieldError>,
}

impl FieldErrors {
    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// Reports whether there is an error for this value or inside it.
    pub(super) fn has_errors_under(&self, at: &FieldPath<'_>) -> bool {
        if self.errors.is_empty() {
            return false;
        }
        let at = at.to_string();
        let inside = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.errors.iter().any(|error| error.field.strip_prefix(&at).is_some_and(inside))
    }

    pub(super) fn required(&mut self, at: &FieldPath<'_>, detail: &str) {
        self.errors.push(FieldError::required(at.to_string(), detail));
    }

    pub(super) fn forbidden(&mut self, at: &FieldPath<'_>, detail: impl Into<String>) {
        self.errors.push(FieldError::forbidden(at.to_string(), detail));
    }

    pub(super) fn invalid(&mut self, at: &FieldPath<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.errors.push(FieldError::invalid(at.to_string(), value, detail));
    }

    /// Adds an error that does not repeat the invalid value.
    pub(super) fn invalid_unshown(&mut self, at: &FieldPath<'_>, detail: &str) {
        let (field, detail) = (at.to_string(), detail.to_owned());
        self.errors.push(FieldError { field, fault: ErrorType::Invalid, value: None, detail });
    }

    /// Adds an error with a value formatted as in Kubernetes' own code, with names that differ from the JSON.
    pub(super) fn error_with_text(
        &mut self,
        at: &FieldPath<'_>,
        fault: ErrorType,
        value: &str,
        detail: &str,
    ) {
        let separator = if detail.is_empty() { "" } else { ": " };
        let detail = format!("{value}{separator}{detail}");
        self.errors.push(FieldError { field: at.to_string(), fault, value: None, detail });
    }

    pub(super) fn duplicate(&mut self, at: &FieldPath<'_>, value: impl Into<Value>) {
        self.errors.push(FieldError::duplicate(at.to_string(), value));
    }

    pub(super) fn not_found(&mut self, at: &FieldPath<'_>, value: impl Into<Value>) {
        self.errors.push(FieldError::not_found(at.to_string(), value));
    }

    pub(super) fn not_supported(&mut self, at: &FieldPath<'_>, value: impl Into<Value>, supported: &[&str]) {
        self.errors.push(FieldError::not_supported(at.to_string(), value, supported));
    }

    pub(super) fn too_long(&mut self, at: &FieldPath<'_>, max_bytes: usize) {
        self.errors.push(FieldError::too_long(at.to_string(), max_bytes));
    }

    pub(super) fn too_many(&mut self, at: &FieldPath<'_>, found: usize, max: usize) {
        self.errors.push(FieldError::too_many(at.to_string(), found, max));
    }

    /// Adds all errors of one text.
    pub(super) fn faults(&mut self, at: &FieldPath<'_>, text: &str, faults: Vec<String>) {
        for fault in faults {
            self.invalid(at, text, fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_kubernetes_writes_it() {
        let spec = FieldPath::TOP.field("spec");
        let containers = spec.field("containers");
        let first = containers.index(0);
        let limits = first.field("resources.limits");
        assert_eq!(limits.key("cpu").to_string(), "spec.containers[0].resources.limits[cpu]");
        assert_eq!(FieldPath::TOP.to_string(), "");
    }
}
