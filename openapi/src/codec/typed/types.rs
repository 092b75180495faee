//! Go's names for the types of a schema, and the types that decode themselves.

use serde_json::{Map, Value};

use crate::meta::time::Precision;
use crate::schema::{Schema, Shape};

/// Types that decode themselves, whatever their shape.
#[derive(PartialEq, Eq)]
pub(super) enum SelfDecoding {
    Quantity,
    Time(Precision),
}

pub(super) fn self_decoding(schema: &Schema) -> Option<SelfDecoding> {
    match (schema.format.as_deref(), schema.name.as_deref()) {
        (Some("quantity"), _) | (_, Some("io.k8s.apimachinery.pkg.api.resource.Quantity")) => {
            Some(SelfDecoding::Quantity)
        }
        (Some("date-time"), Some("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime")) => {
            Some(SelfDecoding::Time(Precision::Micros))
        }
        (Some("date-time"), _) => Some(SelfDecoding::Time(Precision::Seconds)),
        _ => None,
    }
}

/// Returns `PodSpec` for `io.k8s.api.core.v1.PodSpec`.
pub(crate) fn struct_name(schema: &Schema) -> &str {
    let name = schema.name.as_deref().unwrap_or_default();
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

pub(super) fn go_type(schema: &Schema) -> String {
    let named = |otherwise: &str| match &schema.name {
        // The last two parts are a package and a type.
        Some(name) => {
            name.rsplitn(3, '.').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(".")
        }
        None => otherwise.to_owned(),
    };
    match &schema.shape {
        Shape::Any => "interface {}".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Integer => schema.format.as_deref().unwrap_or("int64").to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::String if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        Shape::String => "string".to_owned(),
        Shape::IntOrString => "int32".to_owned(),
        Shape::Object(_) => named("struct"),
        Shape::Map(map) => format!("map[string]{}", go_type(&map.values)),
        Shape::List(list) => format!("[]{}", go_type(&list.items)),
    }
}

/// Describes the value found instead, as Go's JSON decoder does: with the number itself if the field is numeric.
pub(super) fn describe_found(found: &Value, expected: &Schema) -> String {
    match (found, &expected.shape) {
        (Value::Number(number), Shape::Integer | Shape::IntOrString) => format!("number {number}"),
        _ => json_type_name(found).to_owned(),
    }
}

/// Returns the error of a conversion. Go allows the conversion of a whole number to a string, which is an error here.
pub(super) fn conversion_error(found: &Value, expected: &Schema) -> String {
    let (kind, expected_type) = (go_kind(found), go_type(expected));
    if matches!(expected.shape, Shape::IntOrString)
        || matches!(self_decoding(expected), Some(SelfDecoding::Time(_)))
    {
        let found = describe_found(found, expected);
        return format!("json: cannot unmarshal {found} into Go value of type {expected_type}");
    }
    match (&expected.shape, found) {
        (Shape::Map(_), _) => format!("cannot restore map from {kind}"),
        (Shape::List(_), _) => format!("cannot restore slice from {kind}"),
        (Shape::Object(_), _) => format!("cannot restore struct from: {kind}"),
        (Shape::String, Value::Number(_)) if kind == "int64" => {
            format!("cannot convert {kind} to {expected_type}")
        }
        (Shape::Integer, Value::Number(_)) => format!("cannot convert {kind} to {expected_type}"),
        _ => format!("unrecognized type: {expected_type}"),
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => json_type_name(other),
    }
}

/// Returns the JSON type of a value.
pub(crate) fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Replaces a null in a list or map by the zero value of its type.
pub(super) fn null_to_zero(value: Value, schema: &Schema) -> Value {
    match (&schema.shape, value) {
        (Shape::Any | Shape::Map(_) | Shape::List(_), value) => value,
        (_, Value::Null) if self_decoding(schema) == Some(SelfDecoding::Quantity) => "0".into(),
        (_, Value::Null) if matches!(self_decoding(schema), Some(SelfDecoding::Time(_))) => Value::Null,
        (Shape::Boolean, Value::Null) => false.into(),
        (Shape::Integer | Shape::Number | Shape::IntOrString, Value::Null) => 0.into(),
        (Shape::String, Value::Null) => "".into(),
        (Shape::Object(_), Value::Null) => Value::Object(Map::new()),
        (_, value) => value,
    }
}
