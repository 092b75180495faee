//! Decodes values without a schema.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{StrictDecodingError, TypedDecoder};

/// Decodes a value without a schema. Integers that do not fit a signed 64-bit number become floats, as in Go.
pub(super) struct Untyped<'a, 's> {
    pub(super) decoder: &'a mut TypedDecoder<'s>,
    /// Whether duplicate fields are strict decoding errors.
    pub(super) report: bool,
}

impl<'de> DeserializeSeed<'de> for Untyped<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Untyped<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let length = self.decoder.enter_index(list.len());
            let next = access.next_element_seed(Untyped { decoder: self.decoder, report: self.report })?;
            self.decoder.path.truncate(length);
            match next {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if self.report && fields.contains_key(&key) {
                self.decoder.find(StrictDecodingError::DuplicateField, &key);
            }
            let length = self.decoder.enter_key(&key);
            let value = access.next_value_seed(Untyped { decoder: self.decoder, report: self.report })?;
            self.decoder.path.truncate(length);
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}
