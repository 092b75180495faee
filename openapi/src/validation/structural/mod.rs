//! Validation of custom objects against their schemas, with the texts of a Kubernetes API server.
//!
//! ```text
//! node = a schema or a condition     one value against one node, with its old value if there is one
//!   type ── conditions ── text, format ── number ── items ── enum ── fields
//! ```
//!
//! An update is not rejected for old errors: errors inside a value that has not changed are ignored. If several
//! alternatives fail, Kubernetes reports the errors of the one with the most passed checks; so a [`ValidationResult`]
//! counts matches.
//!
//! The number of steps for one object is limited, whatever its definition. Comparing or reporting long values counts as
//! several steps.

mod combinators;
pub(super) mod embedded;
pub(super) mod formats;
mod lists;
mod node;
mod number;
mod old_value;
mod result;
mod scale;

use serde_json::Value;

use self::node::SchemaNode;
use self::old_value::OldValue;
use self::result::{ValidationIssue, ValidationResult, without_path};
use crate::catalog::resource_info::ResourceInfo;
use crate::defaulting::structural;
use crate::schema::constraints::JsonType;
use crate::schema::{Schema, Shape};
use api::meta::field::{ErrorType, FieldError};
use api::meta::go;

/// Maximum number of schemas and conditions visited for one object. The largest body has a few hundred thousand values;
/// an object that needs more steps than this was built to be slow, and would take a second.
const STEPS_MAX: u64 = 2_000_000;
/// Bytes compared or written in one step.
const STEP_BYTES: usize = 64;

/// Returns the errors of a new custom object, apart from its metadata.
pub(crate) fn validate_create(resource: &ResourceInfo, object: &Value) -> Vec<FieldError> {
    let Some(schema) = schema(resource) else { return Vec::new() };
    let mut found = against(schema, object, None, "");
    structural::validate(object, schema, &mut found);
    scale::validate(resource, object, scale::ScaleField::Both, &mut found);
    embedded::validate(object, schema, "", false, &mut found);
    lists::validate(object, schema, "", &mut found);
    found
}

/// Returns the errors of an updated custom object.
pub(crate) fn validate_update(resource: &ResourceInfo, old: &Value, new: &Value) -> Vec<FieldError> {
    let Some(schema) = schema(resource) else { return Vec::new() };
    let mut found = against(schema, new, Some(old), "");
    structural::validate(new, schema, &mut found);
    scale::validate(resource, new, scale::ScaleField::Both, &mut found);
    embedded::validate(new, schema, "", false, &mut found);
    new_repetitions(schema, old, new, &mut found);
    found
}

/// Returns the errors of an updated status of a custom object.
pub(crate) fn validate_status(resource: &ResourceInfo, old: &Value, new: &Value) -> Vec<FieldError> {
    let Some(schema) = schema(resource) else { return Vec::new() };
    let mut found = Vec::new();
    if let (Shape::Object(object), Some(status)) = (&schema.shape, new.get("status"))
        && let Some(field) = object.fields.get("status")
    {
        found = against(&field.schema, status, old.get("status"), "status");
    }
    structural::validate_status(new, schema, &mut found);
    scale::validate(resource, new, scale::ScaleField::Status, &mut found);
    new_repetitions(schema, old, new, &mut found);
    found
}

/// Returns the schema to validate by. Kinds of holon.dev have no definition; the API server validates them.
fn schema(resource: &ResourceInfo) -> Option<&Schema> {
    resource.schema.as_deref().filter(|_| resource.custom.is_some())
}

/// Reports duplicates in the lists of an object that had none before.
fn new_repetitions(schema: &Schema, old: &Value, new: &Value, found: &mut Vec<FieldError>) {
    let mut before = Vec::new();
    lists::validate(old, schema, "", &mut before);
    if before.is_empty() {
        lists::validate(new, schema, "", found);
    }
}

/// Returns the errors of a value, with paths below `prefix`.
pub(super) fn against(schema: &Schema, value: &Value, old: Option<&Value>, prefix: &str) -> Vec<FieldError> {
    let mut walk = StructuralValidator { path: String::new(), steps: 0 };
    let came_of = walk.visit(SchemaNode::of(schema), value, old);
    let mut found: Vec<FieldError> =
        came_of.issues.into_iter().map(|issue| issue.into_field_error(prefix)).collect();
    if walk.steps > STEPS_MAX {
        let detail = "validation exceeds its limit: the object and its schema are too large";
        found.push(FieldError::invalid(without_path(prefix), "", detail));
    }
    found.truncate(result::FAULTS_MAX);
    found
}

/// The current path, and the number of steps so far.
struct StructuralValidator {
    path: String,
    steps: u64,
}

impl StructuralValidator {
    /// Validates one value. Errors of a value that has not changed are dropped.
    fn visit(&mut self, node: SchemaNode<'_>, value: &Value, old: Option<&Value>) -> ValidationResult {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return ValidationResult::default();
        }
        let mut outcome = self.validate(node, value, old);
        self.steps += outcome.steps();
        if !outcome.is_valid() && old == Some(value) {
            outcome.issues.clear();
        }
        outcome
    }

    fn validate(&mut self, node: SchemaNode<'_>, value: &Value, old: Option<&Value>) -> ValidationResult {
        let mut outcome = ValidationResult::default();
        if value.is_null() {
            match self.null(node) {
                Some(issue) => outcome.add(issue),
                None => outcome.matches += 1,
            }
            outcome.extend(self.choices(node, value));
            return outcome;
        }
        if !node.types().is_empty() || node.format.is_some() {
            match self.kind(node, value) {
                Some(issue) => outcome.add(issue),
                None => outcome.matches += 1,
            }
            outcome.matches += 1;
        }
        if let Some(rules) = node.rules {
            outcome.merge(self.conditions(rules, value, old));
        }
        outcome.matches += 2;
        match value {
            Value::String(text) => {
                outcome.extend(self.text(node, text));
                outcome.matches += 1;
                if let Some(format) = node.format.filter(|format| formats::is_known(format)) {
                    outcome.extend(self.format(format, text));
                    outcome.matches += 1;
                }
            }
            Value::Number(number) => {
                number::validate(node, number, &self.path, &mut outcome);
                outcome.matches += 2;
            }
            Value::Array(items) => {
                outcome.merge(self.items(node, items, old));
                outcome.matches += 1;
            }
            _ => {}
        }
        outcome.extend(self.choices(node, value));
        outcome.matches += 1;
        if let Value::Object(_) = value {
            outcome.merge(self.fields(node, value, old));
            outcome.matches += 1;
        }
        outcome.matches += 1;
        outcome
    }

    fn null(&self, node: SchemaNode<'_>) -> Option<ValidationIssue> {
        let types = node.types();
        if types.is_empty() || node.nullable {
            return None;
        }
        Some(self.wrong_type(&joined(types), "null"))
    }

    /// Checks the type of a value. As in Kubernetes, the format influences which types are valid.
    fn kind(&self, node: SchemaNode<'_>, value: &Value) -> Option<ValidationIssue> {
        let types = node.types();
        let found = JsonType::of(value);
        let is_integer =
            value.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0);
        let fits = types.contains(&found)
            || found == JsonType::Number && is_integer && types.contains(&JsonType::Integer)
            || found == JsonType::Integer && types.contains(&JsonType::Number);
        let is_text_or_list = matches!(found, JsonType::String | JsonType::Array);
        if let Some(format) = node.format {
            let own_format = match found {
                JsonType::Integer => "int64",
                JsonType::Number => "float64",
                _ => "",
            };
            if !is_text_or_list && !fits && own_format != format {
                return Some(self.wrong_type(format, own_format));
            }
            let numeric = types.contains(&JsonType::Number) || types.contains(&JsonType::Integer);
            if is_text_or_list && !numeric {
                return None;
            }
        }
        (!fits).then(|| self.wrong_type(&joined(types), found.as_str()))
    }

    fn wrong_type(&self, expected: &str, found: &str) -> ValidationIssue {
        let message = format!("{} in body must be of type {expected}: {}", self.path, go::quote(found));
        ValidationIssue {
            fault: ErrorType::TypeInvalid,
            ..ValidationIssue::invalid(&self.path, found, message)
        }
    }

    fn text(&mut self, node: SchemaNode<'_>, text: &str) -> Option<ValidationIssue> {
        let rules = node.rules?;
        let length = text.chars().count() as i64;
        let path = &self.path;
        if let Some(max) = rules.max_length.filter(|max| length > *max) {
            let unit = if max == 1 { "byte" } else { "bytes" };
            let message = format!("{path} in body should be at most {max} chars long");
            let detail = format!("may not be more than {max} {unit}");
            return Some(ValidationIssue::with(path, ErrorType::TooLong, None, message, detail));
        }
        if let Some(min) = rules.min_length.filter(|min| length < *min) {
            return Some(ValidationIssue::invalid(
                path,
                text,
                format!("{path} in body should be at least {min} chars long"),
            ));
        }
        let pattern = rules.pattern.as_ref()?;
        self.steps += (text.len() / STEP_BYTES) as u64;
        if pattern.is_in(text) {
            return None;
        }
        Some(ValidationIssue::invalid(
            path,
            text,
            format!("{path} in body should match '{}'", pattern.as_str()),
        ))
    }

    fn format(&self, format: &str, text: &str) -> Option<ValidationIssue> {
        (!formats::is_valid(format, text)).then(|| self.wrong_type(format, text))
    }

    fn choices(&mut self, node: SchemaNode<'_>, value: &Value) -> Option<ValidationIssue> {
        let choices = &node.rules?.choices;
        self.steps += choices.len() as u64;
        if choices.is_empty() || choices.iter().any(|choice| is_choice(choice, value)) {
            return None;
        }
        let text_of = |choice: &Value| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        let quoted: Vec<String> = choices.iter().map(|choice| go::quote(&text_of(choice))).collect();
        let message =
            format!("{} in body should be one of {}", self.path, go::print(&Value::from(choices.clone())));
        let detail = format!("supported values: {}", quoted.join(", "));
        Some(ValidationIssue::with(&self.path, ErrorType::NotSupported, Some(value.clone()), message, detail))
    }

    fn items(&mut self, node: SchemaNode<'_>, items: &[Value], old: Option<&Value>) -> ValidationResult {
        let mut outcome = ValidationResult::default();
        if let Some(each) = node.items() {
            let before = OldValue::of(node, old);
            for (index, item) in items.iter().enumerate() {
                let length = self.path.len();
                self.path.push_str(&format!("[{index}]"));
                outcome.merge(self.visit(each, item, before.item(item)));
                self.path.truncate(length);
            }
        }
        let (count, path) = (items.len() as i64, &self.path);
        if let Some(min) = node.rules.and_then(|rules| rules.min_items).filter(|min| count < *min) {
            outcome.add(ValidationIssue::invalid(
                path,
                count,
                format!("{path} in body should have at least {min} items"),
            ));
        }
        if let Some(max) = node.rules.and_then(|rules| rules.max_items).filter(|max| count > *max) {
            let message = format!("{path} in body should have at most {max} items");
            outcome.add(ValidationIssue::with(
                path,
                ErrorType::TooMany,
                Some(count.into()),
                message,
                at_most(max),
            ));
        }
        outcome.matches += 1;
        outcome
    }

    fn fields(&mut self, node: SchemaNode<'_>, value: &Value, old: Option<&Value>) -> ValidationResult {
        let mut outcome = ValidationResult::default();
        let Value::Object(fields) = value else { return outcome };
        self.count_fields(node, fields.len() as i64, &mut outcome);
        let old = old.filter(|old| old.is_object());
        for (name, value) in fields {
            let Some(inner) = node.field(name) else { continue };
            let length = self.path.len();
            if !self.path.is_empty() || node.is_map() {
                self.path.push('.');
            }
            self.path.push_str(name);
            let is_type = length == 0 && matches!(name.as_str(), "apiVersion" | "kind");
            let before = old.and_then(|old| old.get(name)).filter(|_| !is_type);
            outcome.merge(self.visit(inner, value, before));
            self.path.truncate(length);
        }
        self.steps += (node.required().len() / STEP_BYTES) as u64;
        for name in node.required() {
            if !fields.contains_key(&**name) && !outcome.is_full() {
                let path = format!("{}.{name}", self.path);
                let message = format!("{path} in body is required");
                outcome.add(ValidationIssue::with(&path, ErrorType::Required, None, message, String::new()));
            }
        }
        if node.rules.is_some_and(|rules| rules.closed) {
            for name in fields.keys().filter(|name| !node.names(name)) {
                if outcome.is_full() {
                    break;
                }
                let message = format!("{}.{name} in body is a forbidden property", self.path);
                outcome.add(ValidationIssue::invalid(&self.path, name.as_str(), message));
            }
        }
        outcome
    }

    fn count_fields(&self, node: SchemaNode<'_>, count: i64, outcome: &mut ValidationResult) {
        let path = &self.path;
        let Some(rules) = node.rules else { return };
        if let Some(min) = rules.min_properties.filter(|min| count < *min) {
            outcome.add(ValidationIssue::invalid(
                path,
                count,
                format!("{path} in body should have at least {min} properties"),
            ));
        }
        if let Some(max) = rules.max_properties.filter(|max| count > *max) {
            let message = format!("{path} in body should have at most {max} properties");
            outcome.add(ValidationIssue::with(
                path,
                ErrorType::TooMany,
                Some(count.into()),
                message,
                at_most(max),
            ));
        }
    }
}

/// Reports whether a value equals an enum value. Like Go, converts a number to the type of the enum value first.
fn is_choice(choice: &Value, value: &Value) -> bool {
    match (choice.as_f64(), value.as_f64()) {
        (Some(choice_number), Some(number)) if choice.is_i64() => choice_number == number.trunc(),
        (Some(choice_number), Some(number)) => choice_number == number,
        _ => choice == value,
    }
}

fn joined(types: &[JsonType]) -> String {
    types.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(",")
}

fn at_most(max: i64) -> String {
    format!("must have at most {max} item{}", if max == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::schema::Origin;
    use crate::schema::parse;

    fn found(schema: Value, value: Value) -> Vec<FieldError> {
        let schema = parse::schema(&schema, Origin::Custom, &mut |_| Arc::new(Schema::default()));
        against(&schema, &value, None, "")
    }

    #[test]
    fn many_choices_for_many_items_are_too_much() {
        let choices: Vec<String> = (0..20_000).map(|index| format!("c{index}")).collect();
        let schema = json!({ "type": "array", "items": { "type": "string", "enum": choices } });
        assert_eq!(found(schema.clone(), json!(vec!["c19999"; 50])), []);
        let found = found(schema, json!(vec!["c19999"; 100_000]));
        assert!(found.last().is_some_and(|last| last.detail.contains("too large")));
    }

    /// Each error contains an enum value of ten kilobytes twice.
    #[test]
    fn the_total_length_of_errors_is_bounded() {
        let item = json!({ "type": "string", "enum": ["c".repeat(10_000)] });
        let found = found(json!({ "type": "array", "items": item }), json!(vec!["x"; 500]));
        let length: usize = found.iter().map(|error| error.to_string().len()).sum();
        assert!((1..2 << 20).contains(&length), "{length}");
    }
}
