//! Validation of numbers: the range of their type, and the bounds in a definition.

use serde_json::{Number, Value};

use super::node::SchemaNode;
use super::result::{ValidationIssue, ValidationResult};
use crate::schema::constraints::{Bound, JsonType};
use api::meta::go;

/// Validates a number in this order: type, multiples, lower bound, upper bound.
pub(super) fn validate(node: SchemaNode<'_>, number: &Number, path: &str, outcome: &mut ValidationResult) {
    let range = Range::of(node);
    let value = match number.as_i64() {
        Some(integer) => Operand::Integer(integer),
        None => Operand::Float(number.as_f64().unwrap_or_default()),
    };
    outcome.extend(range.fault(value, "Checked", path));
    let Some(rules) = node.rules else { return };
    if let Some(factor) = rules.multiple_of {
        let unfit = range.fault(Operand::Float(factor), "MultipleOf", path);
        let value = if unfit.is_some() { value.as_float() } else { value };
        outcome.extend(unfit);
        outcome.extend(multiple(value, factor, path));
    }
    for (bound, end) in [(rules.minimum, End::Lower), (rules.maximum, End::Upper)] {
        let Some(bound) = bound else { continue };
        let unfit = range.fault(Operand::Float(bound.value), end.name(), path);
        let value = if unfit.is_some() { value.as_float() } else { value };
        outcome.extend(unfit);
        outcome.extend(end.validate(value, bound, path));
    }
}

#[derive(Clone, Copy)]
enum Operand {
    Integer(i64),
    Float(f64),
}

impl Operand {
    fn as_float(self) -> Operand {
        match self {
            Operand::Integer(integer) => Operand::Float(integer as f64),
            float => float,
        }
    }

    fn value(self) -> Value {
        match self {
            Operand::Integer(integer) => integer.into(),
            Operand::Float(float) => float.into(),
        }
    }
}

/// The type and format of a node, which determine the range of numbers.
struct Range<'s> {
    kind: Option<JsonType>,
    format: Option<&'s str>,
}

impl Range<'_> {
    fn of(node: SchemaNode<'_>) -> Range<'_> {
        let kind = match node.types() {
            [kind @ (JsonType::Integer | JsonType::Number)] => Some(*kind),
            _ => None,
        };
        Range { kind, format: node.format.filter(|_| kind.is_some()) }
    }

    fn fault(&self, value: Operand, name: &str, path: &str) -> Option<ValidationIssue> {
        let fits = match (self.kind?, self.format, value) {
            (JsonType::Integer, Some("int32"), Operand::Integer(integer)) => i32::try_from(integer).is_ok(),
            (JsonType::Integer, format, Operand::Float(float)) => {
                let integer = float.fract() == 0.0 && float.abs() < 9.2e18;
                integer && (format != Some("int32") || i32::try_from(float as i64).is_ok())
            }
            (JsonType::Number, Some("float"), Operand::Float(float)) => float.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        let kind = self.kind?.as_str();
        (!fits).then(|| {
            ValidationIssue::general(match self.format {
                Some(format) => format!("{name} value must be of type {kind} with format {format} in {path}"),
                None => format!("{name} value must be of type {kind} (default format) in {path}"),
            })
        })
    }
}

fn multiple(value: Operand, factor: f64, path: &str) -> Option<ValidationIssue> {
    let (is_multiple, text) = match value {
        Operand::Integer(integer) => {
            let factor = factor as i64;
            if factor <= 0 {
                return Some(not_positive(path, factor.into(), &factor.to_string()));
            }
            (integer % factor == 0, factor.to_string())
        }
        Operand::Float(float) => {
            if factor <= 0.0 {
                return Some(not_positive(path, factor.into(), &go::float(factor)));
            }
            let times = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
            (is_integer(times), go::float(factor))
        }
    };
    (!is_multiple).then(|| {
        ValidationIssue::invalid(
            path,
            value.value(),
            format!("{path} in body should be a multiple of {text}"),
        )
    })
}

fn not_positive(path: &str, factor: Value, text: &str) -> ValidationIssue {
    ValidationIssue::invalid(
        path,
        factor,
        format!("factor MultipleOf declared for {path} must be positive: {text}"),
    )
}

/// Reports whether a float is an integer within its rounding error.
fn is_integer(float: f64) -> bool {
    const NOISE: f64 = 1e-9;
    let distance = (float - float.round()).abs();
    distance == 0.0 || distance < NOISE * float.abs().max(1.0)
}

#[derive(Clone, Copy)]
enum End {
    Lower,
    Upper,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Lower => "Minimum boundary",
            End::Upper => "Maximum boundary",
        }
    }

    fn validate(self, value: Operand, bound: Bound, path: &str) -> Option<ValidationIssue> {
        use std::cmp::Ordering::{Greater, Less};
        let (order, text) = match value {
            Operand::Integer(integer) => {
                (integer.cmp(&(bound.value as i64)), (bound.value as i64).to_string())
            }
            Operand::Float(float) => (float.partial_cmp(&bound.value)?, go::float(bound.value)),
        };
        let (outside, words) = match (self, bound.exclusive) {
            (End::Lower, false) => (order == Less, "greater than or equal to"),
            (End::Lower, true) => (order != Greater, "greater than"),
            (End::Upper, false) => (order == Greater, "less than or equal to"),
            (End::Upper, true) => (order != Less, "less than"),
        };
        outside.then(|| {
            ValidationIssue::invalid(path, value.value(), format!("{path} in body should be {words} {text}"))
        })
    }
}
