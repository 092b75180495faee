//! Verifies an applied object against its schema: known fields, right types, and unique keys of items.
//!
//! Other bodies are decoded into the structs of their kind, which ignores some errors. In an applied object every field
//! gets an owner, so every field must be valid.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::path_element::PathElement;
use super::schema_type::{Fields, Items, SchemaAtom, SchemaType};
use crate::schema::{Schema, Shape};
use api::meta::go;

/// Maximum number of errors in the message, as for any body.
const FAULTS_MAX: usize = 100;
/// Maximum size of the message, exceeded by one error at most. Each error repeats its path, whose length the client
/// chooses.
const FAULTS_BYTES_MAX: usize = 64 << 10;

/// Returns the errors of an object in Kubernetes' words; none if it is valid.
pub(super) fn fault(value: &Value, kind: SchemaType<'_>) -> Option<String> {
    let mut faults = Faults::default();
    visit(value, kind, None, &mut faults);
    match faults.messages.len() {
        0 | 1 => faults.messages.pop(),
        _ => Some(format!("errors:\n  {}", faults.messages.join("\n  "))),
    }
}

/// The errors found so far.
#[derive(Default)]
struct Faults {
    messages: Vec<String>,
    bytes: usize,
}

impl Faults {
    /// Reports whether the message is full.
    fn is_full(&self) -> bool {
        self.messages.len() >= FAULTS_MAX || self.bytes >= FAULTS_BYTES_MAX
    }

    fn report(&mut self, path: Option<&PathBreadcrumb<'_>>, wrong: &str) {
        if !self.is_full() {
            let fault = path.map_or_else(|| wrong.to_owned(), |path| format!("{path}: {wrong}"));
            self.bytes += fault.len();
            self.messages.push(fault);
        }
    }
}

/// The path to a value, formatted only for an error.
struct PathBreadcrumb<'w> {
    up: Option<&'w PathBreadcrumb<'w>>,
    element: &'w PathElement<'w>,
}

impl fmt::Display for PathBreadcrumb<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.up.map_or(Ok(()), |up| up.fmt(f))?;
        self.element.fmt(f)
    }
}

fn visit(value: &Value, kind: SchemaType<'_>, path: Option<&PathBreadcrumb<'_>>, faults: &mut Faults) {
    if faults.is_full() {
        return;
    }
    let wrong = match (kind.atom(value), value) {
        (SchemaAtom::Map(fields), Value::Object(object)) => {
            for (name, value) in object {
                field(fields, name, value, path, faults);
            }
            None
        }
        (SchemaAtom::List(items), Value::Array(list)) => return each(items, list, path, faults),
        (_, Value::Null) => None,
        (SchemaAtom::Map(_), _) => Some(format!("expected map, got &{{{}}}", go::print(value))),
        (SchemaAtom::List(_), _) => Some(format!("expected list, got &{{{}}}", go::print(value))),
        (SchemaAtom::Scalar, _) => scalar(value, kind),
    };
    if let Some(wrong) = wrong {
        faults.report(path, &wrong);
    }
}

fn field(
    fields: Fields<'_>,
    name: &str,
    value: &Value,
    up: Option<&PathBreadcrumb<'_>>,
    faults: &mut Faults,
) {
    let path = PathBreadcrumb { up, element: &PathElement::Field(name) };
    match fields.field(name) {
        Some((kind, _)) => visit(value, kind, Some(&path), faults),
        None => faults.report(Some(&path), "field not declared in schema"),
    }
}

fn each(items: Items<'_>, list: &[Value], up: Option<&PathBreadcrumb<'_>>, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (index, item) in list.iter().enumerate() {
        if faults.is_full() {
            return;
        }
        let element = match items.atomic() {
            true => PathElement::Index(index as i64),
            false => match items.element(item) {
                Ok(element) => element,
                Err(why) => return faults.report(up, &format!("element {index}: {why}")),
            },
        };
        visit(item, items.items, Some(&PathBreadcrumb { up, element: &element }), faults);
        if items.atomic() {
            continue;
        }
        if seen.contains(&element) {
            faults.report(up, &format!("duplicate entries for key {element}"));
        }
        seen.insert(element);
    }
}

fn scalar(value: &Value, kind: SchemaType<'_>) -> Option<String> {
    let SchemaType::Typed { schema: Schema { shape, format, .. }, .. } = kind else { return None };
    let plain = format.as_deref().is_none_or(|format| format == "byte");
    match (shape, value) {
        (Shape::Integer | Shape::Number, Value::Number(_)) | (Shape::Boolean, Value::Bool(_)) => None,
        (Shape::String, Value::String(_)) => None,
        (Shape::Integer | Shape::Number, _) => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        (Shape::Boolean, _) => Some(format!("expected boolean, got &{{{}}}", go::print(value))),
        (Shape::String, _) if plain => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)))
        }
        (_, Value::Object(_) | Value::Array(_)) => {
            Some(format!("expected any scalar, got &{{{}}}", go::print(value)))
        }
        _ => None,
    }
}

/// Formats with `%T`.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Formats with `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", go::quote(name), go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        scalar => go::show(scalar),
    }
}
