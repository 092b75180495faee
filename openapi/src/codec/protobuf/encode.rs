//! Encodes JSON as protobuf, byte for byte as Kubernetes would write it.
//!
//! Fields that the table does not contain are omitted, as in Kubernetes. The output is written from its end to its
//! beginning; see [`WireWriter`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::wire::WireWriter;
use super::{Fault, Problem, leaf};
use crate::schema::messages::{Cardinality, FieldType, Message, MessageField, MessageShape, MessageTable};

/// The maximum depth that `serde_json` reads; a value built in memory may be deeper.
const DEPTH_LIMIT: usize = 128;

#[derive(Debug)]
pub(super) struct Encoder {
    table: &'static MessageTable,
    pub(super) out: WireWriter,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Encoder { table: MessageTable::get(), out: WireWriter::default() }
    }

    pub(super) fn object(
        &mut self,
        message: &Message,
        object: &Map<String, Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        if depth >= DEPTH_LIMIT {
            return Err(Problem::TooDeep.into());
        }
        for field in message.fields.iter().rev() {
            self.field(field, object, depth).map_err(|fault| fault.within(field.name))?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &MessageField,
        object: &Map<String, Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        if let FieldType::Message(id) = field.kind
            && field.inline
        {
            let end = self.out.written();
            self.object(self.table.message(id), object, depth)?;
            self.out.close(field.number, end);
            return Ok(());
        }
        match (field.many, object.get(field.name)) {
            (_, None | Some(Value::Null)) if field.nullable => Ok(()),
            (Cardinality::One, value) => {
                self.value(field.number, field.kind, value.unwrap_or(&Value::Null), depth)
            }
            (Cardinality::List, Some(Value::Array(list))) => {
                list.iter().rev().try_for_each(|value| self.value(field.number, field.kind, value, depth))
            }
            (Cardinality::Map, Some(Value::Object(map))) => self.map(field, map, depth),
            (Cardinality::List, _) => Err(Problem::Expected("a list").into()),
            (Cardinality::Map, _) => Err(Problem::Expected("an object").into()),
        }
    }

    fn map(&mut self, field: &MessageField, map: &Map<String, Value>, depth: usize) -> Result<(), Fault> {
        let mut entries: Vec<_> = map.iter().collect();
        // Already sorted, unless a feature of `serde_json` in this build preserves the order of the text.
        entries.sort_by_key(|(key, _)| *key);
        for (key, value) in entries.into_iter().rev() {
            let end = self.out.written();
            if field.kind != FieldType::Bytes || !value.is_null() {
                self.value(2, field.kind, value, depth).map_err(|fault| fault.within(key))?;
            }
            self.out.bytes_field(1, key.as_bytes());
            self.out.close(field.number, end);
        }
        Ok(())
    }

    /// Writes one value as field `number`. `null` is the zero value of any type.
    fn value(&mut self, number: u32, kind: FieldType, value: &Value, depth: usize) -> Result<(), Fault> {
        match (kind, value) {
            (FieldType::Message(id), _) => {
                let end = self.out.written();
                self.message(self.table.message(id), value, depth + 1)?;
                self.out.close(number, end);
            }
            (FieldType::String | FieldType::Bytes, Value::Null) => self.out.bytes_field(number, b""),
            (FieldType::String, Value::String(text)) => self.out.bytes_field(number, text.as_bytes()),
            (FieldType::Bytes, Value::String(text)) => {
                let bytes = STANDARD.decode(text).map_err(|_| Problem::Expected("bytes in base64"))?;
                self.out.bytes_field(number, &bytes);
            }
            (FieldType::Double, Value::Null) => self.out.double_field(number, 0.0),
            (FieldType::Double, Value::Number(double)) => {
                self.out.double_field(number, double.as_f64().ok_or(Problem::Expected("a number"))?);
            }
            (FieldType::Bool | FieldType::Int32 | FieldType::Int64, Value::Null) => {
                self.out.varint_field(number, 0)
            }
            (FieldType::Bool, Value::Bool(set)) => self.out.varint_field(number, u64::from(*set)),
            (FieldType::Int32, _) => self.out.varint_field(number, leaf::int32(value)? as u64),
            (FieldType::Int64, _) => {
                let integer = value.as_i64().ok_or(Problem::Expected("a number of 64 bits"))?;
                self.out.varint_field(number, integer as u64);
            }
            (FieldType::Bool, _) => return Err(Problem::Expected("true or false").into()),
            (FieldType::Double, _) => return Err(Problem::Expected("a number").into()),
            (FieldType::String | FieldType::Bytes, _) => return Err(Problem::Expected("a string").into()),
        }
        Ok(())
    }

    fn message(&mut self, message: &Message, value: &Value, depth: usize) -> Result<(), Fault> {
        match message.shape {
            MessageShape::Object => match value {
                Value::Null => self.object(message, &Map::new(), depth)?,
                Value::Object(object) => self.object(message, object, depth)?,
                _ => return Err(Problem::Expected("an object").into()),
            },
            MessageShape::List => self.only(message, Cardinality::List, value, depth)?,
            MessageShape::Union => self.union(message, value, depth)?,
            MessageShape::Raw => self.raw(value)?,
            MessageShape::Time => leaf::write_time(&mut self.out, value)?,
            MessageShape::MicroTime => leaf::write_micro_time(&mut self.out, value)?,
            MessageShape::Quantity => leaf::write_quantity(&mut self.out, value)?,
            MessageShape::IntOrString => leaf::write_int_or_string(&mut self.out, value)?,
        }
        Ok(())
    }

    /// Writes a list or an object into the only field of `message` with that cardinality.
    fn only(
        &mut self,
        message: &Message,
        many: Cardinality,
        value: &Value,
        depth: usize,
    ) -> Result<(), Fault> {
        let Some(field) =
            message.fields.iter().find(|field| field.many == many && field.kind != FieldType::Bool)
        else {
            return Err(Problem::Expected("a value of another type").into());
        };
        match (many, value) {
            (_, Value::Null) => Ok(()),
            (Cardinality::List, Value::Array(list)) => {
                list.iter().rev().try_for_each(|value| self.value(field.number, field.kind, value, depth))
            }
            (Cardinality::One, value) => self.value(field.number, field.kind, value, depth),
            _ => Err(Problem::Expected("a list").into()),
        }
    }

    /// Writes a value of a union type. If the union has a boolean, it is written too: a schema for additional
    /// properties implies that they are allowed.
    fn union(&mut self, message: &Message, value: &Value, depth: usize) -> Result<(), Fault> {
        match value {
            Value::Array(_) => self.only(message, Cardinality::List, value, depth)?,
            Value::Object(_) => self.only(message, Cardinality::One, value, depth)?,
            Value::Null | Value::Bool(_) => {}
            _ => return Err(Problem::Expected("a schema").into()),
        }
        if let Some(field) = message.fields.iter().find(|field| field.kind == FieldType::Bool) {
            let allowed = value.as_bool().unwrap_or(!value.is_null());
            self.out.varint_field(field.number, u64::from(allowed));
        }
        Ok(())
    }

    fn raw(&mut self, value: &Value) -> Result<(), Problem> {
        if !value.is_null() {
            let json = serde_json::to_vec(value).map_err(|error| Problem::Json(error.to_string()))?;
            self.out.bytes_field(1, &json);
        }
        Ok(())
    }
}
