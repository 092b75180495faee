//! The elements of the rule tables.
//!
//! A table lists, per type, the rules for its fields, in the order in which Kubernetes checks them. A rule that no
//! element expresses is a function of the value, its path and the list of errors.

use std::collections::HashSet;

use serde_json::Value;

use super::value::{self, get, is_empty};
use crate::validation::common;
use crate::validation::field_path::{FieldErrors, FieldPath};

/// Types and their rules. A type is given by the end of its name: `core.v1.Container`.
pub(super) type Table = &'static [(&'static str, &'static [Rule])];

pub(super) type ValidateFn = fn(&Value, &FieldPath<'_>, &mut FieldErrors);

/// A rule of a type.
pub(super) enum Rule {
    /// Checks for the value of one field.
    Field(&'static str, &'static [FieldRule]),
    /// A check of several fields together.
    Check(ValidateFn),
    /// Validates the values in this field by the rules of their own type. Fields without this rule come last.
    Into(&'static str),
    /// The values in this field are not validated.
    Skip(&'static str),
    /// At most one of these fields may be set. The first one that is set is validated, the others are errors.
    One { of: &'static [&'static str], many: &'static str, none: Option<&'static str> },
}

/// A check of one value. For an absent value, only `Required` reports an error.
#[derive(Clone, Copy)]
pub(super) enum FieldRule {
    /// Ends the checks of this value if it is empty.
    Required(&'static str),
    NonNegative,
    /// A minimum, and the text of the error.
    AtLeast(i64, &'static str),
    AtMost(i64, &'static str),
    Between(i64, i64),
    /// Zero, or a valid port number.
    Port,
    OneOf(&'static [&'static str]),
    /// A check of a text.
    Text(fn(&str) -> Vec<String>),
    MaxBytes(usize),
    MaxItems(usize),
    NonNegativeQuantity,
    Labels,
    Selector,
    /// Checks for each item of a list or each value of a map.
    Each(&'static [FieldRule]),
    /// Like `Each`, but errors are reported at the list instead of the item.
    EachAtList(&'static [FieldRule]),
    /// No two items have the same value in this field.
    Unique(&'static str),
    Code(ValidateFn),
}

pub(super) const REQUIRED: FieldRule = FieldRule::Required("");
pub(super) const PROTOCOLS: FieldRule = FieldRule::OneOf(&["SCTP", "TCP", "UDP"]);

/// Applies checks to one value.
pub(super) fn apply(rules: &[FieldRule], value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for rule in rules {
        if let FieldRule::Required(detail) = rule {
            if is_empty(value) {
                return found.required(at, detail);
            }
            continue;
        }
        match value {
            Value::Null => return,
            Value::String(text) if text.is_empty() => return,
            _ => rule.apply(value, at, found),
        }
    }
}

impl FieldRule {
    fn apply(&self, value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
        match (self, value) {
            (FieldRule::NonNegative, Value::Number(_)) => common::non_negative(value, at, found),
            (FieldRule::AtLeast(min, detail), _) if value.as_i64().is_some_and(|number| number < *min) => {
                found.invalid(at, value.clone(), *detail);
            }
            (FieldRule::AtMost(max, detail), _) if value.as_i64().is_some_and(|number| number > *max) => {
                found.invalid(at, value.clone(), *detail);
            }
            (FieldRule::Between(min, max), Value::Number(_)) => common::between(value, *min, *max, at, found),
            (FieldRule::Port, Value::Number(number)) if number.as_i64() != Some(0) => {
                common::between(value, 1, 65535, at, found);
            }
            (FieldRule::Text(rule), Value::String(text)) => found.faults(at, text, rule(text)),
            (FieldRule::OneOf(words), Value::String(word)) if !words.contains(&word.as_str()) => {
                found.not_supported(at, word.as_str(), words);
            }
            (FieldRule::MaxBytes(max), Value::String(text)) if text.len() > *max => found.too_long(at, *max),
            (FieldRule::MaxItems(max), Value::Array(items)) if items.len() > *max => {
                found.too_many(at, items.len(), *max);
            }
            (FieldRule::NonNegativeQuantity, _) => common::non_negative_quantity(value, at, found),
            (FieldRule::Labels, _) => common::labels(value, at, found),
            (FieldRule::Selector, _) => common::selector(value, at, found),
            (FieldRule::Each(checks), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    apply(checks, item, &at.index(index), found);
                }
            }
            (FieldRule::Each(checks), Value::Object(entries)) => {
                for (key, value) in entries {
                    apply(checks, value, &at.key(key), found);
                }
            }
            (FieldRule::EachAtList(checks), Value::Array(items)) => {
                for item in items {
                    apply(checks, item, at, found);
                }
            }
            (FieldRule::Unique(field), Value::Array(items)) => unique(items, field, at, found),
            (FieldRule::Code(code), _) => code(value, at, found),
            _ => {}
        }
    }
}

fn unique(items: &[Value], field: &str, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if items.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let text = value::text(item, field);
        if !text.is_empty() && !seen.insert(text) {
            found.duplicate(&at.index(index).field(field), get(item, field).clone());
        }
    }
}
