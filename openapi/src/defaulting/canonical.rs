//! Converts an object to the form in which Kubernetes returns it.
//!
//! Kubernetes decodes an object into Go structs, applies defaults, stores protobuf and encodes the structs again. So an
//! empty list is absent, a `false` with `omitempty` is omitted, and a struct that is not a pointer is present even if
//! the client omitted it. `messages.txt` has these facts for every field; no code here names a kind.
//!
//! ```text
//! object of a type:   read (drop nulls, add structs) -> rules of the type -> its fields, each likewise -> print
//! ```

use serde_json::{Map, Value};

use super::rules::{self, is_hollow, is_zero};
use crate::meta::time::{Precision, canonical};
use crate::schema::messages::{Cardinality, FieldType, Message, MessageField, MessageShape, MessageTable};
use api::meta::quantity::Quantity;

pub(super) fn canonicalize(message: &Message, fields: &mut Map<String, Value>) {
    canonicalize_fields(message, fields, |_| true);
}

/// Canonicalizes an object that was canonical before and has since changed only in the fields `changed`.
pub(super) fn canonicalize_changed(message: &Message, fields: &mut Map<String, Value>, changed: &[&str]) {
    canonicalize_fields(message, fields, |name| changed.contains(&name));
}

fn canonicalize_fields(message: &Message, fields: &mut Map<String, Value>, is_new: impl Fn(&str) -> bool) {
    read(message, fields);
    for rule in rules::of(message) {
        rule.apply(fields);
    }
    // One pass per field for both steps: the lookup of the field costs more than either.
    fields.retain(|name, value| {
        let Some(field) = message.named(name) else { return true };
        if is_new(name) {
            self::field(message, field, value);
        }
        !(field.omit && is_empty(field, value)) || is_refused(message, field, value)
    });
    print(message, fields);
}

/// Returns the canonical form of an object without any field set.
pub(super) fn empty_fields(message: &Message) -> Map<String, Value> {
    let mut fields = Map::new();
    read(message, &mut fields);
    for (name, value) in fields.iter_mut() {
        if let (
            Some(MessageField { kind: FieldType::Message(id), many: Cardinality::One, .. }),
            Value::Object(_),
        ) = (message.named(name), &*value)
        {
            *value = Value::Object(empty_fields(MessageTable::get().message(*id)));
        }
    }
    print(message, &mut fields);
    fields
}

/// Brings the fields into the form after decoding: null is absent, and structs that are not pointers are present.
fn read(message: &Message, fields: &mut Map<String, Value>) {
    fields.retain(|name, value| !value.is_null() || message.named(name).is_none());
    for field in message.always.iter().filter(|field| !field.nullable) {
        if !fields.contains_key(field.name) {
            fields.insert(field.name.to_owned(), zero(field.kind));
        }
    }
}

/// Brings the fields into their encoded form: empty values are omitted if allowed, and are null where the field is
/// required. Protobuf, in between, has no empty lists and maps.
fn print(message: &Message, fields: &mut Map<String, Value>) {
    for field in message.always.iter().filter(|field| field.nullable) {
        match fields.get_mut(field.name) {
            Some(value) if is_hollow(value) && !field.pointer => *value = Value::Null,
            Some(_) => {}
            None => {
                fields.insert(field.name.to_owned(), Value::Null);
            }
        }
    }
}

/// Lists with a default if absent that are invalid if empty. An empty one is kept for validation.
const NEVER_EMPTY: &[(&str, &str)] = &[("autoscaling/v2.HPAScalingRules", "policies")];

fn is_refused(message: &Message, field: &MessageField, value: &Value) -> bool {
    value.is_array() && NEVER_EMPTY.contains(&(message.name, field.name))
}

fn field(message: &Message, field: &MessageField, value: &mut Value) {
    match (field.many, &mut *value) {
        (Cardinality::One, _) => one(field.kind, value),
        (Cardinality::List, Value::Array(items)) => items.iter_mut().for_each(|item| one(field.kind, item)),
        (Cardinality::Map, Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| one(field.kind, entry));
            if is_quantity(field.kind) && message.name.starts_with("core/v1.") {
                entries.values_mut().for_each(round);
            }
        }
        _ => {}
    }
}

fn one(kind: FieldType, value: &mut Value) {
    if value.is_null() {
        *value = zero(kind);
    }
    match kind {
        FieldType::Double => whole(value),
        FieldType::Bytes => without_line_ends(value),
        FieldType::Message(id) => self::message(MessageTable::get().message(id), value),
        _ => {}
    }
}

fn message(message: &Message, value: &mut Value) {
    match (message.shape, &mut *value) {
        (MessageShape::Object, Value::Object(fields)) => canonicalize(message, fields),
        (MessageShape::List, Value::Array(items)) => {
            items.iter_mut().for_each(|item| one(message.fields[0].kind, item));
        }
        (MessageShape::Union, _) => variant(message, value),
        (MessageShape::Time, Value::String(text)) => *value = moment(text, Precision::Seconds),
        (MessageShape::MicroTime, Value::String(text)) => *value = moment(text, Precision::Micros),
        (MessageShape::Quantity, _) => amount(value, Quantity::clone),
        _ => {}
    }
}

/// Canonicalizes a union by the type that the value has.
fn variant(message: &Message, value: &mut Value) {
    for field in message.fields.iter().filter(|field| matches!(field.kind, FieldType::Message(_))) {
        match (field.many, &mut *value) {
            (Cardinality::One, Value::Object(_)) => one(field.kind, value),
            (Cardinality::List, Value::Array(items)) => {
                items.iter_mut().for_each(|item| one(field.kind, item))
            }
            _ => {}
        }
    }
}

fn zero(kind: FieldType) -> Value {
    match kind {
        FieldType::Bool => Value::Bool(false),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => Value::from(0),
        FieldType::String | FieldType::Bytes => Value::from(""),
        FieldType::Message(id) => match MessageTable::get().message(id).shape {
            MessageShape::Object => Value::Object(Map::new()),
            MessageShape::List => Value::Array(Vec::new()),
            MessageShape::Union | MessageShape::Raw | MessageShape::Time | MessageShape::MicroTime => {
                Value::Null
            }
            MessageShape::Quantity => Value::from("0"),
            MessageShape::IntOrString => Value::from(0),
        },
    }
}

fn is_empty(field: &MessageField, value: &Value) -> bool {
    value.is_null() || !field.pointer && is_zero(value)
}

fn is_quantity(kind: FieldType) -> bool {
    matches!(kind, FieldType::Message(id) if MessageTable::get().message(id).shape == MessageShape::Quantity)
}

/// Rounds up to thousandths, as Kubernetes does for the resources of containers, claims and quotas.
fn round(value: &mut Value) {
    amount(value, Quantity::to_milli);
}

fn amount(value: &mut Value, change: fn(&Quantity) -> Quantity) {
    let text = match &*value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Ok(quantity) = text.parse::<Quantity>() {
        *value = Value::from(change(&quantity).to_string());
    }
}

/// Canonicalizes a time. The zero time becomes null.
fn moment(text: &str, precision: Precision) -> Value {
    match canonical(text, precision) {
        Ok(text) if is_zero_time(&text) => Value::Null,
        Ok(text) => Value::from(text),
        Err(_) => Value::from(text),
    }
}

fn is_zero_time(text: &str) -> bool {
    let fraction = text.strip_prefix("0001-01-01T00:00:00").and_then(|rest| rest.strip_suffix('Z'));
    fraction.is_some_and(|fraction| fraction.chars().all(|c| c == '.' || c == '0'))
}

/// Converts a whole float to an integer: JSON has `1` where Rust would write `1.0`.
fn whole(value: &mut Value) {
    if let Some(double) = value.as_f64().filter(|_| value.is_f64()) {
        let whole = double as i64;
        if whole as f64 == double && whole != i64::MAX {
            *value = Value::from(whole);
        }
    }
}

/// Removes line breaks, which base64 in a request may contain.
fn without_line_ends(value: &mut Value) {
    if let Value::String(text) = value
        && text.contains(['\r', '\n'])
    {
        text.retain(|c| c != '\r' && c != '\n');
    }
}
