//! The words rules are written in.
//!
//! A table says, per type, which rules hold for its fields, in the order Kubernetes looks at them. What no word says is
//! a function of the value, its place and the list of faults.

use std::collections::HashSet;

use serde_json::Value;

use super::value::{self, get, is_empty};
use crate::validation::common;
use crate::validation::field_path::{FieldErrors, FieldPath};

/// A type and its rules. The type by the end of its name: `core.v1.Container`.
pub(super) type Table = &'static [(&'static str, &'static [Rule])];

pub(super) type ValidateFn = fn(&Value, &FieldPath<'_>, &mut FieldErrors);

/// What holds for one type.
pub(super) enum Rule {
    /// Checks of the value of one field.
    Field(&'static str, &'static [FieldRule]),
    /// Fields are looked at together.
    Whole(ValidateFn),
    /// Now the values in this field, by the rules of their own type. Fields that are not named here come last.
    Into(&'static str),
    /// The values in this field are not validated here.
    Skip(&'static str),
    /// Of these fields only one may be there. The first is looked into, the others are too many.
    One { of: &'static [&'static str], many: &'static str, none: Option<&'static str> },
}

/// What holds for one value. Where there is none, only `Required` has something to say.
#[derive(Clone, Copy)]
pub(super) enum FieldRule {
    /// Ends the checks of this value.
    Required(&'static str),
    NonNegative,
    /// At least this much, and what to say otherwise.
    AtLeast(i64, &'static str),
    AtMost(i64, &'static str),
    Between(i64, i64),
    /// Nothing, or between.
    Port,
    OneOf(&'static [&'static str]),
    /// What is wrong with a text.
    Text(fn(&str) -> Vec<String>),
    MaxBytes(usize),
    MaxItems(usize),
    NonNegativeQuantity,
    Labels,
    Selector,
    /// For each item of a list, or each value of a map.
    Each(&'static [FieldRule]),
    /// Reported at the list rather than at the item.
    EachHere(&'static [FieldRule]),
    /// No two items say the same in this field.
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
            (FieldRule::EachHere(checks), Value::Array(items)) => {
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
