//! Decodes protobuf to JSON.
//!
//! The result is what Kubernetes itself would show for the same bytes, down to which fields are `null`, zero or absent.
//! The client need not be a Kubernetes client, so fields that such a client always writes may be missing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::wire::{Wire, WireReader};
use super::{Fault, Problem, envelope, leaf};
use crate::codec;
use crate::schema::messages::{Cardinality, FieldType, Message, MessageField, MessageShape, MessageTable};

/// The maximum nesting of objects and lists in a result. `serde_json` reads 128 levels; the rest is for the list or
/// watch event that contains the object in a response.
const DEPTH_LIMIT: usize = 100;

/// Returns the maximum number of objects in a result. An object costs a map of hundreds of bytes, and two bytes of
/// protobuf can create one. In JSON the shortest object with its key takes eight bytes, so this allows a body no more
/// objects than JSON of the same size has, plus those that short bodies imply.
fn object_limit(body: &[u8]) -> usize {
    20_000 + body.len() / 8
}

#[derive(Debug)]
pub(super) struct Decoder {
    table: &'static MessageTable,
    objects_left: usize,
}

impl Decoder {
    pub(super) fn new(body: &[u8]) -> Self {
        Decoder { table: MessageTable::get(), objects_left: object_limit(body) }
    }

    pub(super) fn object(
        &mut self,
        message: &Message,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Map<String, Value>, Fault> {
        self.count_object(depth)?;
        let mut object = Map::new();
        self.fields_into(message, bytes, &mut object, depth)?;
        self.complete(message, &mut object, depth)?;
        Ok(object)
    }

    fn count_object(&mut self, depth: usize) -> Result<(), Problem> {
        if depth >= DEPTH_LIMIT {
            return Err(Problem::TooDeep);
        }
        self.objects_left = self.objects_left.checked_sub(1).ok_or(Problem::TooMany)?;
        Ok(())
    }

    fn fields_into(
        &mut self,
        message: &Message,
        bytes: &[u8],
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        let mut reader = WireReader::new(bytes);
        while let Some((number, wire)) = reader.field()? {
            // A field newer than our table is skipped, as protobuf requires.
            let Some(field) = message.field(number) else { continue };
            self.field_into(field, wire, object, depth + 1).map_err(|fault| fault.within(field.name))?;
        }
        Ok(())
    }

    /// Adds fields that JSON shows although the client omitted them.
    fn complete(
        &mut self,
        message: &Message,
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        for field in &message.always {
            if !object.contains_key(field.name) {
                let value = if field.nullable { Value::Null } else { self.zero(field.kind, depth + 1)? };
                object.insert(field.name.to_owned(), value);
            }
        }
        Ok(())
    }

    fn field_into(
        &mut self,
        field: &MessageField,
        wire: Wire<'_>,
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        match field.many {
            Cardinality::One => self.one_into(field, wire, object, depth),
            // An empty packed list is no list.
            Cardinality::List if packed(field.kind, wire).is_some_and(<[u8]>::is_empty) => Ok(()),
            Cardinality::List => {
                let Value::Array(list) = slot(object, field.name, || Value::Array(Vec::new())) else {
                    return Ok(());
                };
                self.push(field.kind, wire, list, depth + 1)
            }
            Cardinality::Map => {
                if !object.contains_key(field.name) {
                    self.count_object(depth)?;
                }
                let Value::Object(map) = slot(object, field.name, || Value::Object(Map::new())) else {
                    return Ok(());
                };
                let (key, value) = self.entry(field.kind, wire.bytes()?, depth + 1)?;
                map.insert(key, value);
                Ok(())
            }
        }
    }

    fn one_into(
        &mut self,
        field: &MessageField,
        wire: Wire<'_>,
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        if let FieldType::Message(id) = field.kind {
            let message = self.table.message(id);
            if field.inline {
                return self.fields_into(message, wire.bytes()?, object, depth - 1);
            }
            // A message sent in parts is merged from its parts.
            if message.shape == MessageShape::Object
                && let Some(Value::Object(begun)) = object.get_mut(field.name)
            {
                return self.fields_into(message, wire.bytes()?, begun, depth);
            }
        }
        let value = self.value(field.kind, wire, depth)?;
        // A pointer to a zero value stays. `null`, the form of zero times, goes: every reader takes it for an absent
        // field.
        if field.omit && (value.is_null() || !field.pointer && is_empty(&value)) {
            object.remove(field.name);
        } else {
            object.insert(field.name.to_owned(), value);
        }
        Ok(())
    }

    fn push(
        &mut self,
        kind: FieldType,
        wire: Wire<'_>,
        list: &mut Vec<Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        if let Some(packed) = packed(kind, wire) {
            let mut reader = WireReader::new(packed);
            while let Some(number) = reader.packed_varint()? {
                list.push(self.value(kind, Wire::Varint(number), depth)?);
            }
            return Ok(());
        }
        list.push(self.value(kind, wire, depth)?);
        Ok(())
    }

    fn entry(&mut self, kind: FieldType, bytes: &[u8], depth: usize) -> Result<(String, Value), Fault> {
        let mut reader = WireReader::new(bytes);
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, wire)) = reader.field()? {
            match number {
                1 => key = text(wire)?,
                2 => value = Some(wire),
                _ => {}
            }
        }
        let value = match value {
            Some(wire) => self.value(kind, wire, depth),
            None => self.zero(kind, depth),
        };
        value.map(|value| (key, value))
    }

    fn value(&mut self, kind: FieldType, wire: Wire<'_>, depth: usize) -> Result<Value, Fault> {
        Ok(match kind {
            FieldType::Bool => Value::Bool(wire.varint()? != 0),
            FieldType::Int32 => Value::from(wire.varint()? as i32),
            FieldType::Int64 => Value::from(wire.varint()? as i64),
            FieldType::Double => number(wire.double()?)?,
            FieldType::String => Value::String(text(wire)?),
            FieldType::Bytes => Value::String(STANDARD.encode(wire.bytes()?)),
            FieldType::Message(id) => self.message(self.table.message(id), wire.bytes()?, depth)?,
        })
    }

    fn zero(&mut self, kind: FieldType, depth: usize) -> Result<Value, Fault> {
        match kind {
            FieldType::Double => Ok(Value::from(0)),
            FieldType::Bool | FieldType::Int32 | FieldType::Int64 => self.value(kind, Wire::Varint(0), depth),
            FieldType::String | FieldType::Bytes | FieldType::Message(_) => {
                self.value(kind, Wire::Bytes(&[]), depth)
            }
        }
    }

    fn message(&mut self, message: &Message, bytes: &[u8], depth: usize) -> Result<Value, Fault> {
        Ok(match message.shape {
            MessageShape::Object => Value::Object(self.object(message, bytes, depth)?),
            MessageShape::List => self.list(message, bytes, depth)?,
            MessageShape::Union => self.union(message, bytes, depth)?,
            MessageShape::Raw => self.raw(bytes, depth)?,
            MessageShape::Time => leaf::read_time(bytes)?,
            MessageShape::MicroTime => leaf::read_micro_time(bytes)?,
            MessageShape::Quantity => leaf::read_quantity(bytes)?,
            MessageShape::IntOrString => leaf::read_int_or_string(bytes)?,
        })
    }

    fn list(&mut self, message: &Message, bytes: &[u8], depth: usize) -> Result<Value, Fault> {
        let mut fields = Map::new();
        self.fields_into(message, bytes, &mut fields, depth)?;
        Ok(fields.into_iter().next().map_or_else(|| Value::Array(Vec::new()), |(_, list)| list))
    }

    fn union(&mut self, message: &Message, bytes: &[u8], depth: usize) -> Result<Value, Fault> {
        let mut set = Map::new();
        // This counts as a level, although JSON has none here; real schemas never nest that deep.
        self.fields_into(message, bytes, &mut set, depth)?;
        let mut values: Vec<_> = set.into_iter().map(|(_, value)| value).collect();
        // A schema overrides a boolean; a list overrides a schema.
        values.sort_by_key(|value| match value {
            Value::Array(_) => 2,
            Value::Object(_) => 1,
            _ => 0,
        });
        let unset = if message.fields.iter().any(|field| field.kind == FieldType::Bool) {
            Value::Bool(false)
        } else {
            Value::Null
        };
        Ok(values.pop().unwrap_or(unset))
    }

    /// Decodes JSON in bytes. In a field for an object of any kind, the bytes may also be an envelope.
    fn raw(&mut self, bytes: &[u8], depth: usize) -> Result<Value, Fault> {
        let mut reader = WireReader::new(bytes);
        let mut raw = &[][..];
        while let Some((number, wire)) = reader.field()? {
            if number == 1 {
                raw = wire.bytes()?;
            }
        }
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if let Some(body) = raw.strip_prefix(envelope::MAGIC) {
            let opened = envelope::open(body)?;
            return self.opened(&opened, opened.api_version, opened.kind, depth);
        }
        let value: Value = codec::parse_json(raw).map_err(|error| Problem::Json(error.to_string()))?;
        if depth + levels(&value) > DEPTH_LIMIT {
            return Err(Problem::TooDeep.into());
        }
        Ok(value)
    }

    /// Decodes the content of an envelope. The kind is the envelope's own or the one that the field implies.
    pub(super) fn opened(
        &mut self,
        opened: &envelope::OpenedEnvelope<'_>,
        api_version: &str,
        kind: &str,
        depth: usize,
    ) -> Result<Value, Fault> {
        if api_version.is_empty() || kind.is_empty() {
            return Err(Problem::NoType.into());
        }
        let found =
            self.table.kind(api_version, kind).ok_or_else(|| Problem::unknown_type(api_version, kind))?;
        let mut object = self.object(self.table.message(found.message), opened.raw, depth)?;
        if !found.bare {
            object.insert("apiVersion".to_owned(), Value::from(api_version));
            object.insert("kind".to_owned(), Value::from(kind));
        }
        Ok(Value::Object(object))
    }
}

/// Returns the bytes of a packed list: all its numbers in one field. Kubernetes never writes these, other clients may.
fn packed(kind: FieldType, wire: Wire<'_>) -> Option<&[u8]> {
    match (kind, wire) {
        (FieldType::Bool | FieldType::Int32 | FieldType::Int64, Wire::Bytes(packed)) => Some(packed),
        _ => None,
    }
}

fn slot<'a>(object: &'a mut Map<String, Value>, name: &str, new: fn() -> Value) -> &'a mut Value {
    if !object.contains_key(name) {
        object.insert(name.to_owned(), new());
    }
    &mut object[name]
}

/// Returns bytes as text. Invalid UTF-8 becomes replacement characters, as in the JSON of Kubernetes: an Event whose
/// message was cut in the middle of a character is still an Event.
fn text(wire: Wire<'_>) -> Result<String, Problem> {
    Ok(String::from_utf8_lossy(wire.bytes()?).into_owned())
}

/// Returns a number as JSON. A whole number is written as one: `1` where Rust would write `1.0`.
fn number(double: f64) -> Result<Value, Problem> {
    let integer = double as i64;
    if integer as f64 == double && integer != i64::MAX {
        return Ok(Value::from(integer));
    }
    Number::from_f64(double).map(Value::Number).ok_or(Problem::Expected("a finite number"))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(_) => false,
    }
}

fn levels(value: &Value) -> usize {
    let inner_depth = match value {
        Value::Array(list) => list.iter().map(levels).max(),
        Value::Object(object) => object.values().map(levels).max(),
        _ => return 0,
    };
    1 + inner_depth.unwrap_or(0)
}
