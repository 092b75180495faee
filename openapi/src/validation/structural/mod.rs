//! Whether a custom object fulfils its schema, in the words of a Kubernetes API server.
//!
//! ```text
//! node = a schema or a condition     one value against one node, with the value it was before, if that is known
//!   type ── conditions ── text, format ── number ── items ── enum ── fields
//! ```
//!
//! What has not changed is not held against an update: a fault below a value that was there before, in the same place,
//! is forgiven. Which faults are told where several alternatives fail is decided as upstream does, by counting what did
//! match; so an [`Outcome`] counts.
//!
//! Work is bounded: the steps one object may take are, whatever its definition. What takes long to compare, or to tell
//! of, takes several.

mod before;
mod conditions;
pub(super) mod embedded;
pub(super) mod formats;
mod lists;
mod node;
mod number;
mod outcome;
mod scale;

use serde_json::Value;

use self::before::Before;
use self::node::Node;
use self::outcome::{Issue, Outcome, nowhere};
use crate::catalog::resource_info::Resource;
use crate::defaulting::structural;
use crate::meta::field::{Fault, FieldError};
use crate::meta::go;
use crate::schema::constraints::Type;
use crate::schema::{Schema, Shape};

/// Schemas and conditions looked at for one object. The largest body has a few hundred thousand values in it; what takes
/// more than this was made to take long, and would take a second.
const STEPS_MAX: u64 = 2_000_000;
/// Bytes looked at, or written, in one step.
const STEP_BYTES: usize = 64;

/// What is wrong with a new custom object, apart from its metadata.
pub(crate) fn check_create(row: &Resource, object: &Value) -> Vec<FieldError> {
    let Some(schema) = schema(row) else { return Vec::new() };
    let mut found = against(schema, object, None, "");
    structural::check(object, schema, &mut found);
    scale::check(row, object, scale::Part::Both, &mut found);
    embedded::check(object, schema, "", false, &mut found);
    lists::check(object, schema, "", &mut found);
    found
}

/// What is wrong with the next version of a custom object.
pub(crate) fn check_update(row: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let Some(schema) = schema(row) else { return Vec::new() };
    let mut found = against(schema, new, Some(old), "");
    structural::check(new, schema, &mut found);
    scale::check(row, new, scale::Part::Both, &mut found);
    embedded::check(new, schema, "", false, &mut found);
    new_repetitions(schema, old, new, &mut found);
    found
}

/// What is wrong with the next status of a custom object.
pub(crate) fn check_status(row: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let Some(schema) = schema(row) else { return Vec::new() };
    let mut found = Vec::new();
    if let (Shape::Object(object), Some(status)) = (&schema.shape, new.get("status"))
        && let Some(field) = object.fields.get("status")
    {
        found = against(&field.schema, status, old.get("status"), "status");
    }
    structural::check_status(new, schema, &mut found);
    scale::check(row, new, scale::Part::Status, &mut found);
    new_repetitions(schema, old, new, &mut found);
    found
}

/// Our own kinds have no definition, and are checked by whoever has them.
fn schema(row: &Resource) -> Option<&Schema> {
    row.schema.as_deref().filter(|_| row.custom.is_some())
}

/// Lists that had no repetitions may not get any.
fn new_repetitions(schema: &Schema, old: &Value, new: &Value, found: &mut Vec<FieldError>) {
    let mut before = Vec::new();
    lists::check(old, schema, "", &mut before);
    if before.is_empty() {
        lists::check(new, schema, "", found);
    }
}

/// All that is wrong with a value, and where: below `prefix`.
pub(super) fn against(schema: &Schema, value: &Value, old: Option<&Value>, prefix: &str) -> Vec<FieldError> {
    let mut walk = Walk { path: String::new(), steps: 0 };
    let came_of = walk.visit(Node::of(schema), value, old);
    let mut found: Vec<FieldError> = came_of.issues.into_iter().map(|issue| issue.told(prefix)).collect();
    if walk.steps > STEPS_MAX {
        let detail = "the object and its definition are too large to be checked against each other";
        found.push(FieldError::invalid(nowhere(prefix), "", detail));
    }
    found.truncate(outcome::FAULTS_MAX);
    found
}

/// Where the walk is, and how far it has come.
struct Walk {
    path: String,
    steps: u64,
}

impl Walk {
    /// One value. What is wrong with it is forgiven if it was so before.
    fn visit(&mut self, node: Node<'_>, value: &Value, old: Option<&Value>) -> Outcome {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Outcome::default();
        }
        let mut outcome = self.check(node, value, old);
        self.steps += outcome.steps();
        if !outcome.is_valid() && old == Some(value) {
            outcome.issues.clear();
        }
        outcome
    }

    fn check(&mut self, node: Node<'_>, value: &Value, old: Option<&Value>) -> Outcome {
        let mut outcome = Outcome::default();
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
                number::check(node, number, &self.path, &mut outcome);
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

    fn null(&self, node: Node<'_>) -> Option<Issue> {
        let types = node.types();
        if types.is_empty() || node.nullable {
            return None;
        }
        Some(self.wrong_type(&joined(types), "null"))
    }

    /// Formats have a say in what type a value has; that is how Kubernetes has it.
    fn kind(&self, node: Node<'_>, value: &Value) -> Option<Issue> {
        let types = node.types();
        let found = Type::of(value);
        let whole =
            value.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0);
        let fits = types.contains(&found)
            || found == Type::Number && whole && types.contains(&Type::Integer)
            || found == Type::Integer && types.contains(&Type::Number);
        let is_text_or_list = matches!(found, Type::String | Type::Array);
        if let Some(format) = node.format {
            let own = match found {
                Type::Integer => "int64",
                Type::Number => "float64",
                _ => "",
            };
            if !is_text_or_list && !fits && own != format {
                return Some(self.wrong_type(format, own));
            }
            let numeric = types.contains(&Type::Number) || types.contains(&Type::Integer);
            if is_text_or_list && !numeric {
                return None;
            }
        }
        (!fits).then(|| self.wrong_type(&joined(types), found.as_str()))
    }

    fn wrong_type(&self, wanted: &str, found: &str) -> Issue {
        let message = format!("{} in body must be of type {wanted}: {}", self.path, go::quote(found));
        Issue { fault: Fault::TypeInvalid, ..Issue::invalid(&self.path, found, message) }
    }

    fn text(&mut self, node: Node<'_>, text: &str) -> Option<Issue> {
        let rules = node.rules?;
        let length = text.chars().count() as i64;
        let path = &self.path;
        if let Some(max) = rules.max_length.filter(|max| length > *max) {
            let unit = if max == 1 { "byte" } else { "bytes" };
            let message = format!("{path} in body should be at most {max} chars long");
            let detail = format!("may not be more than {max} {unit}");
            return Some(Issue::with(path, Fault::TooLong, None, message, detail));
        }
        if let Some(min) = rules.min_length.filter(|min| length < *min) {
            return Some(Issue::invalid(
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
        Some(Issue::invalid(path, text, format!("{path} in body should match '{}'", pattern.as_str())))
    }

    fn format(&self, format: &str, text: &str) -> Option<Issue> {
        (!formats::is_valid(format, text)).then(|| self.wrong_type(format, text))
    }

    fn choices(&mut self, node: Node<'_>, value: &Value) -> Option<Issue> {
        let choices = &node.rules?.choices;
        self.steps += choices.len() as u64;
        if choices.is_empty() || choices.iter().any(|choice| is_choice(choice, value)) {
            return None;
        }
        let shown = |choice: &Value| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        let quoted: Vec<String> = choices.iter().map(|choice| go::quote(&shown(choice))).collect();
        let message =
            format!("{} in body should be one of {}", self.path, go::print(&Value::from(choices.clone())));
        let detail = format!("supported values: {}", quoted.join(", "));
        Some(Issue::with(&self.path, Fault::NotSupported, Some(value.clone()), message, detail))
    }

    fn items(&mut self, node: Node<'_>, items: &[Value], old: Option<&Value>) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(each) = node.items() {
            let before = Before::of(node, old);
            for (index, item) in items.iter().enumerate() {
                let here = self.path.len();
                self.path.push_str(&format!("[{index}]"));
                outcome.merge(self.visit(each, item, before.item(item)));
                self.path.truncate(here);
            }
        }
        let (count, path) = (items.len() as i64, &self.path);
        if let Some(min) = node.rules.and_then(|rules| rules.min_items).filter(|min| count < *min) {
            outcome.add(Issue::invalid(
                path,
                count,
                format!("{path} in body should have at least {min} items"),
            ));
        }
        if let Some(max) = node.rules.and_then(|rules| rules.max_items).filter(|max| count > *max) {
            let message = format!("{path} in body should have at most {max} items");
            outcome.add(Issue::with(path, Fault::TooMany, Some(count.into()), message, at_most(max)));
        }
        outcome.matches += 1;
        outcome
    }

    fn fields(&mut self, node: Node<'_>, value: &Value, old: Option<&Value>) -> Outcome {
        let mut outcome = Outcome::default();
        let Value::Object(fields) = value else { return outcome };
        self.count_fields(node, fields.len() as i64, &mut outcome);
        let old = old.filter(|old| old.is_object());
        for (name, value) in fields {
            let Some(inner) = node.field(name) else { continue };
            let here = self.path.len();
            if !self.path.is_empty() || node.is_map() {
                self.path.push('.');
            }
            self.path.push_str(name);
            let is_type = here == 0 && matches!(name.as_str(), "apiVersion" | "kind");
            let before = old.and_then(|old| old.get(name)).filter(|_| !is_type);
            outcome.merge(self.visit(inner, value, before));
            self.path.truncate(here);
        }
        self.steps += (node.required().len() / STEP_BYTES) as u64;
        for name in node.required() {
            if !fields.contains_key(&**name) && !outcome.is_full() {
                let path = format!("{}.{name}", self.path);
                let message = format!("{path} in body is required");
                outcome.add(Issue::with(&path, Fault::Required, None, message, String::new()));
            }
        }
        if node.rules.is_some_and(|rules| rules.closed) {
            for name in fields.keys().filter(|name| !node.names(name)) {
                if outcome.is_full() {
                    break;
                }
                let message = format!("{}.{name} in body is a forbidden property", self.path);
                outcome.add(Issue::invalid(&self.path, name.as_str(), message));
            }
        }
        outcome
    }

    fn count_fields(&self, node: Node<'_>, count: i64, outcome: &mut Outcome) {
        let path = &self.path;
        let Some(rules) = node.rules else { return };
        if let Some(min) = rules.min_properties.filter(|min| count < *min) {
            outcome.add(Issue::invalid(
                path,
                count,
                format!("{path} in body should have at least {min} properties"),
            ));
        }
        if let Some(max) = rules.max_properties.filter(|max| count > *max) {
            let message = format!("{path} in body should have at most {max} properties");
            outcome.add(Issue::with(path, Fault::TooMany, Some(count.into()), message, at_most(max)));
        }
    }
}

/// Go converts a number to the type of the choice before it compares.
fn is_choice(choice: &Value, value: &Value) -> bool {
    match (choice.as_f64(), value.as_f64()) {
        (Some(choice_number), Some(number)) if choice.is_i64() => choice_number == number.trunc(),
        (Some(choice_number), Some(number)) => choice_number == number,
        _ => choice == value,
    }
}

fn joined(types: &[Type]) -> String {
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

    /// Each names a choice of ten kilobytes, twice.
    #[test]
    fn what_is_told_is_not_much_longer_than_it_may_be() {
        let item = json!({ "type": "string", "enum": ["c".repeat(10_000)] });
        let found = found(json!({ "type": "array", "items": item }), json!(vec!["x"; 500]));
        let told: usize = found.iter().map(|error| error.to_string().len()).sum();
        assert!((1..2 << 20).contains(&told), "{told}");
    }
}
