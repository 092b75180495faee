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
//! Work is bounded: the steps one object may take are, whatever its definition.

mod node;
mod number;
mod scale;

use serde_json::Value;

use self::node::Node;
use super::{embedded, formats, lists};
use crate::field::{Fault, FieldError};
use crate::go;
use crate::resource::Resource;
use crate::rules::{Rules, Type};
use crate::schema::{ListKind, Schema, Shape};

/// Nodes visited for one object. Real objects take thousands; what takes more than this was made to take long.
const STEPS_MAX: u64 = 10_000_000;
/// Faults told of one object. The rest would not be read.
const FAULTS_MAX: usize = 1_000;

/// What is wrong with a new custom object, apart from its metadata.
pub(crate) fn check_create(row: &Resource, object: &Value) -> Vec<FieldError> {
    let Some(schema) = row.schema() else { return Vec::new() };
    let mut found = against(schema, object, None, "");
    scale::check(row, object, scale::Part::Both, &mut found);
    embedded::check(object, schema, "", false, &mut found);
    lists::check(object, schema, "", &mut found);
    found
}

/// What is wrong with the next version of a custom object.
pub(crate) fn check_update(row: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let Some(schema) = row.schema() else { return Vec::new() };
    let mut found = against(schema, new, Some(old), "");
    scale::check(row, new, scale::Part::Both, &mut found);
    embedded::check(new, schema, "", false, &mut found);
    new_repetitions(schema, old, new, &mut found);
    found
}

/// What is wrong with the next status of a custom object.
pub(crate) fn check_status(row: &Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    let Some(schema) = row.schema() else { return Vec::new() };
    let mut found = Vec::new();
    if let (Shape::Object(object), Some(status)) = (&schema.shape, new.get("status"))
        && let Some(field) = object.fields.get("status")
    {
        found = against(&field.schema, status, old.get("status"), "status");
    }
    scale::check(row, new, scale::Part::Status, &mut found);
    new_repetitions(schema, old, new, &mut found);
    found
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
    let outcome = walk.visit(Node::of(schema), value, old);
    let mut found: Vec<FieldError> = outcome.issues.into_iter().map(|issue| issue.told(prefix)).collect();
    if walk.steps > STEPS_MAX {
        let detail = "the object and its definition are too large to be checked against each other";
        found.push(FieldError::invalid(nowhere(prefix), "", detail));
    }
    found.truncate(FAULTS_MAX);
    found
}

/// How Kubernetes writes the path of what has none.
fn nowhere(prefix: &str) -> &str {
    if prefix.is_empty() { "<nil>" } else { prefix }
}

/// What came of one value.
#[derive(Default)]
struct Outcome {
    issues: Vec<Issue>,
    /// How many checks were made and passed, roughly.
    matches: u64,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        other.issues.into_iter().for_each(|issue| self.add(issue));
    }

    /// Said once is enough.
    fn add(&mut self, issue: Issue) {
        if self.issues.len() < FAULTS_MAX && !self.issues.iter().any(|known| known.message == issue.message) {
            self.issues.push(issue);
        }
    }

    fn is_valid(&self) -> bool {
        self.issues.is_empty()
    }
}

/// One thing that is wrong.
struct Issue {
    /// Where it is; none for what is said about the object as a whole.
    path: Option<String>,
    fault: Fault,
    value: Option<Value>,
    /// All of what is wrong, by which issues are told apart.
    message: String,
    /// What a client is told, where that is not the message.
    detail: Option<String>,
}

impl Issue {
    fn invalid(path: &str, value: impl Into<Value>, message: String) -> Issue {
        Issue {
            path: Some(path.to_owned()),
            fault: Fault::Invalid,
            value: Some(value.into()),
            message,
            detail: None,
        }
    }

    /// Said about the object as a whole, with the path in the text.
    fn general(message: String) -> Issue {
        Issue { path: None, fault: Fault::Invalid, value: Some("".into()), message, detail: None }
    }

    fn with(path: &str, fault: Fault, value: Option<Value>, message: String, detail: String) -> Issue {
        Issue { path: Some(path.to_owned()), fault, value, message, detail: Some(detail) }
    }

    fn told(self, prefix: &str) -> FieldError {
        let path = self.path.as_deref().map_or("", |path| path.strip_prefix('.').unwrap_or(path));
        let field = match (prefix, path) {
            (_, "") => nowhere(prefix).to_owned(),
            ("", path) => path.to_owned(),
            (prefix, path) => format!("{prefix}.{path}"),
        };
        let detail = self.detail.unwrap_or(self.message);
        FieldError { field, fault: self.fault, value: self.value, detail }
    }
}

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
            self.choices(node, value).into_iter().for_each(|issue| outcome.add(issue));
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
                self.text(node, text).into_iter().for_each(|issue| outcome.add(issue));
                outcome.matches += 1;
                if let Some(format) = node.format.filter(|format| formats::is_known(format)) {
                    self.format(format, text).into_iter().for_each(|issue| outcome.add(issue));
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
        self.choices(node, value).into_iter().for_each(|issue| outcome.add(issue));
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

    fn text(&self, node: Node<'_>, text: &str) -> Option<Issue> {
        let rules = node.rules?;
        let path = &self.path;
        let length = text.chars().count() as i64;
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
        let pattern = rules.pattern.as_ref().filter(|pattern| !pattern.is_in(text))?;
        Some(Issue::invalid(path, text, format!("{path} in body should match '{}'", pattern.as_str())))
    }

    fn format(&self, format: &str, text: &str) -> Option<Issue> {
        (!formats::is_valid(format, text)).then(|| self.wrong_type(format, text))
    }

    fn choices(&self, node: Node<'_>, value: &Value) -> Option<Issue> {
        let choices = &node.rules?.choices;
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
        let old = old.filter(|old| old.is_object() && !node.is_atomic());
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
        for name in node.required() {
            if !fields.contains_key(&**name) {
                let path = format!("{}.{name}", self.path);
                let message = format!("{path} in body is required");
                outcome.add(Issue::with(&path, Fault::Required, None, message, String::new()));
            }
        }
        if node.rules.is_some_and(|rules| rules.closed) {
            for name in fields.keys().filter(|name| !node.names(name)) {
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

    /// `anyOf`, `oneOf`, `allOf` and `not`, in this order.
    fn conditions(&mut self, rules: &Rules, value: &Value, old: Option<&Value>) -> Outcome {
        let mut outcome = Outcome::default();
        let quoted = go::quote(&self.path);
        if !rules.any_of.is_empty() {
            match self.any(&rules.any_of, value, old) {
                Ok(first) => outcome.merge(first),
                Err(best) => {
                    outcome
                        .add(Issue::general(format!("{quoted} must validate at least one schema (anyOf)")));
                    outcome.merge(best);
                }
            }
        }
        if !rules.one_of.is_empty() {
            let (valid, told) = self.one(&rules.one_of, value, old);
            if valid != 1 {
                let why = match valid {
                    0 => "Found none valid".to_owned(),
                    _ => format!("Found {valid} valid alternatives"),
                };
                let message = format!("{quoted} must validate one and only one schema (oneOf). {why}");
                outcome.add(Issue::general(message));
            }
            told.into_iter().for_each(|told| outcome.merge(told));
        }
        if !rules.all_of.is_empty() {
            let mut valid = 0;
            for condition in &rules.all_of {
                let one = self.condition(condition, value, old);
                valid += usize::from(one.is_valid());
                outcome.merge(one);
            }
            if valid != rules.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.add(Issue::general(format!("{quoted} must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &rules.not
            && self.condition(not, value, old).is_valid()
        {
            outcome.add(Issue::general(format!("{quoted} must not validate the schema (not)")));
        }
        outcome
    }

    fn condition(&mut self, rules: &Rules, value: &Value, old: Option<&Value>) -> Outcome {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Outcome::default();
        }
        self.check(Node::condition(rules), value, old)
    }

    /// The first that holds, or the failure that comes closest.
    fn any(&mut self, conditions: &[Rules], value: &Value, old: Option<&Value>) -> Result<Outcome, Outcome> {
        let mut best: Option<Outcome> = None;
        for condition in conditions {
            let one = self.condition(condition, value, old);
            if one.is_valid() {
                return Ok(one);
            }
            if best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        Err(best.unwrap_or_default())
    }

    /// How many hold; and what is told: of one that holds nothing but its matches, of none that do the closest.
    fn one(&mut self, conditions: &[Rules], value: &Value, old: Option<&Value>) -> (usize, Option<Outcome>) {
        let (mut valid, mut first, mut best) = (0, None, None::<Outcome>);
        for condition in conditions {
            let one = self.condition(condition, value, old);
            if one.is_valid() {
                valid += 1;
                best = None;
                first.get_or_insert(one);
            } else if valid == 0 && best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        (valid, if valid == 1 { first } else { best })
    }
}

/// The items of a list as they were, found by their keys. Others have no place of their own.
struct Before<'v> {
    items: std::collections::HashMap<String, &'v Value>,
    keys: &'v [std::sync::Arc<str>],
}

impl<'v> Before<'v> {
    fn of(node: Node<'v>, old: Option<&'v Value>) -> Before<'v> {
        let keys = match node.list_kind() {
            Some(ListKind::Map { keys }) => keys.as_slice(),
            _ => &[],
        };
        let old = old.and_then(Value::as_array).into_iter().flatten();
        let items = old.filter(|_| !keys.is_empty()).map(|item| (key(item, keys), item)).collect();
        Before { items, keys }
    }

    fn item(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() { None } else { self.items.get(&key(item, self.keys)).copied() }
    }
}

fn key(item: &Value, keys: &[std::sync::Arc<str>]) -> String {
    keys.iter().map(|key| item.get(&**key).unwrap_or(&Value::Null).to_string() + "\n").collect()
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
