//! From JSON to protobuf, byte for byte what Kubernetes would write.
//!
//! Fields the table does not know are left out, as they would be in Kubernetes. Everything is written last
//! first; see [`Writer`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::wire::Writer;
use super::{Fault, Problem, leaf};
use crate::schema::messages::{Field, Many, Message, Shape, Table, Type};

/// As deep as `serde_json` reads; a value made in memory may be deeper.
const DEPTH_LIMIT: usize = 128;

#[derive(Debug)]
pub(super) struct Encoder {
    table: &'static Table,
    pub(super) out: Writer,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Encoder { table: Table::get(), out: Writer::default() }
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

    fn field(&mut self, field: &Field, object: &Map<String, Value>, depth: usize) -> Result<(), Fault> {
        if let Type::Message(id) = field.kind
            && field.inline
        {
            let end = self.out.written();
            self.object(self.table.message(id), object, depth)?;
            self.out.close(field.number, end);
            return Ok(());
        }
        match (field.many, object.get(field.name)) {
            (_, None | Some(Value::Null)) if field.nullable => Ok(()),
            (Many::One, value) => self.value(field.number, field.kind, value.unwrap_or(&Value::Null), depth),
            (Many::List, Some(Value::Array(list))) => {
                list.iter().rev().try_for_each(|value| self.value(field.number, field.kind, value, depth))
            }
            (Many::Map, Some(Value::Object(map))) => self.map(field, map, depth),
            (Many::List, _) => Err(Problem::Expected("a list").into()),
            (Many::Map, _) => Err(Problem::Expected("an object").into()),
        }
    }

    fn map(&mut self, field: &Field, map: &Map<String, Value>, depth: usize) -> Result<(), Fault> {
        let mut entries: Vec<_> = map.iter().collect();
        // They are sorted already, unless someone in the build asked `serde_json` to keep the order of the
        // text.
        entries.sort_by_key(|(key, _)| *key);
        for (key, value) in entries.into_iter().rev() {
            let end = self.out.written();
            if field.kind != Type::Bytes || !value.is_null() {
                self.value(2, field.kind, value, depth).map_err(|fault| fault.within(key))?;
            }
            self.out.bytes_field(1, key.as_bytes());
            self.out.close(field.number, end);
        }
        Ok(())
    }

    /// One value as field `number`. `null` is the zero of any type.
    fn value(&mut self, number: u32, kind: Type, value: &Value, depth: usize) -> Result<(), Fault> {
        match (kind, value) {
            (Type::Message(id), _) => {
                let end = self.out.written();
                self.message(self.table.message(id), value, depth + 1)?;
                self.out.close(number, end);
            }
            (Type::String | Type::Bytes, Value::Null) => self.out.bytes_field(number, b""),
            (Type::String, Value::String(text)) => self.out.bytes_field(number, text.as_bytes()),
            (Type::Bytes, Value::String(text)) => {
                let bytes = STANDARD.decode(text).map_err(|_| Problem::Expected("bytes in base64"))?;
                self.out.bytes_field(number, &bytes);
            }
            (Type::Double, Value::Null) => self.out.double_field(number, 0.0),
            (Type::Double, Value::Number(double)) => {
                self.out.double_field(number, double.as_f64().ok_or(Problem::Expected("a number"))?);
            }
            (Type::Bool | Type::Int32 | Type::Int64, Value::Null) => self.out.varint_field(number, 0),
            (Type::Bool, Value::Bool(set)) => self.out.varint_field(number, u64::from(*set)),
            (Type::Int32, _) => self.out.varint_field(number, leaf::int32(value)? as u64),
            (Type::Int64, _) => {
                let integer = value.as_i64().ok_or(Problem::Expected("a number of 64 bits"))?;
                self.out.varint_field(number, integer as u64);
            }
            (Type::Bool, _) => return Err(Problem::Expected("true or false").into()),
            (Type::Double, _) => return Err(Problem::Expected("a number").into()),
            (Type::String | Type::Bytes, _) => return Err(Problem::Expected("a string").into()),
        }
        Ok(())
    }

    fn message(&mut self, message: &Message, value: &Value, depth: usize) -> Result<(), Fault> {
        match message.shape {
            Shape::Object => match value {
                Value::Null => self.object(message, &Map::new(), depth)?,
                Value::Object(object) => self.object(message, object, depth)?,
                _ => return Err(Problem::Expected("an object").into()),
            },
            Shape::List => self.only(message, Many::List, value, depth)?,
            Shape::Union => self.union(message, value, depth)?,
            Shape::Raw => self.raw(value)?,
            Shape::Time => leaf::write_time(&mut self.out, value)?,
            Shape::MicroTime => leaf::write_micro_time(&mut self.out, value)?,
            Shape::Quantity => leaf::write_quantity(&mut self.out, value)?,
            Shape::IntOrString => leaf::write_int_or_string(&mut self.out, value)?,
        }
        Ok(())
    }

    /// Writes a list or an object into the one field of `message` that holds such.
    fn only(&mut self, message: &Message, many: Many, value: &Value, depth: usize) -> Result<(), Fault> {
        let Some(field) = message.fields.iter().find(|field| field.many == many && field.kind != Type::Bool)
        else {
            return Err(Problem::Expected("a value of another type").into());
        };
        match (many, value) {
            (_, Value::Null) => Ok(()),
            (Many::List, Value::Array(list)) => {
                list.iter().rev().try_for_each(|value| self.value(field.number, field.kind, value, depth))
            }
            (Many::One, value) => self.value(field.number, field.kind, value, depth),
            _ => Err(Problem::Expected("a list").into()),
        }
    }

    /// A union with a boolean in it writes that too: a schema for more properties means that there may be
    /// more.
    fn union(&mut self, message: &Message, value: &Value, depth: usize) -> Result<(), Fault> {
        match value {
            Value::Array(_) => self.only(message, Many::List, value, depth)?,
            Value::Object(_) => self.only(message, Many::One, value, depth)?,
            Value::Null | Value::Bool(_) => {}
            _ => return Err(Problem::Expected("a schema").into()),
        }
        if let Some(field) = message.fields.iter().find(|field| field.kind == Type::Bool) {
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
