//! Decodes a value as Kubernetes decodes it into the Go structs of a built-in kind.
//!
//! ```text
//! text or tree ──▶ decode by the schema ──▶ value without unknown fields
//!                                       ├─▶ strict decoding errors: unknown and duplicate fields, in order met
//!                                       └─▶ or the first value of a wrong type, in Go's words
//! ```
//!
//! The same code decodes JSON text, in the order of the document, and trees made from YAML, protobuf or patches, in
//! alphabetical order. Nulls are removed, quantities and times become canonical. Objects of custom kinds are always
//! decoded as trees: see [`crate::crd`].

mod types;
mod untyped;

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use self::types::{SelfDecoding, conversion_error, describe_found, go_type, null_to_zero, self_decoding};
pub(crate) use self::types::{json_type_name, struct_name};
use self::untyped::Untyped;
use crate::codec::unstructured;
use crate::meta::time;
use crate::schema::{ObjectSchema, Schema, Shape};
use api::meta::go;
use api::meta::quantity::{Quantity, QuantityError};

/// The maximum number of strict decoding errors for one body, as in Kubernetes.
const MAX_STRICT_ERRORS: usize = 100;

/// An anomaly of a body that is a warning or an error, depending on `fieldValidation`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StrictDecodingError {
    /// A field that the kind does not have: `spec.containers[0].foo`.
    UnknownField(String),
    /// A field that occurs twice; the last value counts.
    DuplicateField(String),
    /// Duplicate fields in YAML, all in one text.
    Yaml(String),
    /// An error in an operation of a JSON patch, not in the object.
    JsonPatch(Box<StrictDecodingError>),
}

impl fmt::Display for StrictDecodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrictDecodingError::UnknownField(path) => write!(f, "unknown field {}", go::quote(path)),
            StrictDecodingError::DuplicateField(path) => write!(f, "duplicate field {}", go::quote(path)),
            StrictDecodingError::Yaml(text) => f.write_str(text),
            StrictDecodingError::JsonPatch(strict_error) => write!(f, "json patch {strict_error}"),
        }
    }
}

/// A decoded value and its strict decoding errors.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    pub value: Value,
    pub strict_errors: Vec<StrictDecodingError>,
}

/// A value of the wrong type for its field, in Go's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

/// Decodes a tree with a schema.
pub fn decode_tree(tree: Value, schema: &Schema) -> Result<Decoded, Mismatch> {
    if schema.is_custom() {
        return unstructured::decode_unstructured(tree, schema);
    }
    decode_source(tree, schema).expect("a tree has no syntax errors, and is decoded completely")
}

/// Decodes the result of a strategic merge patch. Kubernetes converts it instead of decoding it, with other error
/// texts.
pub fn convert_tree(tree: Value, schema: &Schema) -> Result<Decoded, Mismatch> {
    let mut decoder = TypedDecoder { converts: true, ..TypedDecoder::default() };
    let read = Typed { decoder: &mut decoder, schema }.deserialize(tree);
    let value = read.expect("a tree has no syntax errors, and is decoded completely");
    decoder.finish(value)
}

/// Decodes any source with a schema. The outer error is the source's.
pub(crate) fn decode_source<'de, D: Deserializer<'de>>(
    source: D,
    schema: &Schema,
) -> Result<Result<Decoded, Mismatch>, D::Error> {
    let mut decoder = TypedDecoder::default();
    let value = Typed { decoder: &mut decoder, schema }.deserialize(source)?;
    Ok(decoder.finish(value))
}

/// Decodes any source without a schema, and reports duplicate fields at any depth.
pub(crate) fn decode_untyped<'de, D: Deserializer<'de>>(source: D) -> Result<Decoded, D::Error> {
    let mut decoder = TypedDecoder::default();
    let value = Untyped { decoder: &mut decoder, report: true }.deserialize(source)?;
    Ok(Decoded { value, strict_errors: decoder.strict_errors })
}

/// The state of a decoding: the current path and the errors so far.
#[derive(Default)]
struct TypedDecoder<'s> {
    path: String,
    /// The struct fields on the current path, and the struct of the last one.
    fields: Vec<&'s str>,
    owner: Option<&'s Schema>,
    strict_errors: Vec<StrictDecodingError>,
    fault: Option<TypeFault>,
    converts: bool,
}

/// An error about a type. Go continues after a wrong type and reports the first in the end; an error from a type that
/// decodes itself ends the decoding.
enum TypeFault {
    First(String),
    Final(String),
}

impl<'s> TypedDecoder<'s> {
    fn finish(self, value: Value) -> Result<Decoded, Mismatch> {
        match self.fault {
            None => Ok(Decoded { value, strict_errors: self.strict_errors }),
            Some(TypeFault::First(text) | TypeFault::Final(text)) => Err(Mismatch(text)),
        }
    }

    fn find(&mut self, make: fn(String) -> StrictDecodingError, key: &str) {
        let path = match self.path.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.path),
        };
        let strict_error = make(path);
        if self.strict_errors.len() < MAX_STRICT_ERRORS && !self.strict_errors.contains(&strict_error) {
            self.strict_errors.push(strict_error);
        }
    }

    /// Appends a key to the path and returns the previous length, with which the caller removes it again.
    fn enter_key(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    fn enter_index(&mut self, index: usize) -> usize {
        let length = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        length
    }

    fn fail(&mut self, text: String) {
        self.fault.get_or_insert(TypeFault::First(text));
    }

    fn fail_for_good(&mut self, text: String) {
        if !matches!(self.fault, Some(TypeFault::Final(_))) {
            self.fault = Some(TypeFault::Final(text));
        }
    }

    /// Returns Go's error for `found` (`string`, `number 1.5`) in a field of type `expected`.
    fn sentence(&self, found: &str, expected: &str) -> String {
        match self.owner {
            None => format!("json: cannot unmarshal {found} into Go value of type {expected}"),
            Some(owner) => {
                let (owner, fields) = (struct_name(owner), self.fields.join("."));
                format!(
                    "json: cannot unmarshal {found} into Go struct field {owner}.{fields} of type {expected}"
                )
            }
        }
    }

    /// Records a value of another type than the schema's. The value becomes `null`.
    fn mismatch(&mut self, found: &Value, schema: &Schema) -> Value {
        let text = match self.converts {
            true => conversion_error(found, schema),
            false => self.sentence(&describe_found(found, schema), &go_type(schema)),
        };
        match (&schema.shape, self_decoding(schema)) {
            (_, Some(SelfDecoding::Quantity)) => self.fail_for_good(QuantityError::Format.to_string()),
            (Shape::IntOrString, _) | (_, Some(SelfDecoding::Time(_))) => self.fail_for_good(text),
            _ => self.fail(text),
        }
        Value::Null
    }

    /// Decodes a value that is neither a list nor an object.
    fn scalar(&mut self, schema: &Schema, value: Value) -> Value {
        if self_decoding(schema) == Some(SelfDecoding::Quantity) {
            return self.quantity(&value);
        }
        match (&schema.shape, &value) {
            (_, Value::Null) | (Shape::Any, _) | (Shape::Boolean, Value::Bool(_)) => value,
            (Shape::Number, Value::Number(_)) | (Shape::IntOrString, Value::String(_)) => value,
            (Shape::String, Value::String(text)) => {
                if let Some(SelfDecoding::Time(precision)) = self_decoding(schema) {
                    return self.self_decoded(time::canonical(text, precision));
                }
                if schema.format.as_deref() == Some("byte")
                    && let Some(offset) = go::base64_fault(text)
                {
                    let converting = if self.converts { "error decoding from json: " } else { "" };
                    self.fail(format!("{converting}illegal base64 data at input byte {offset}"));
                }
                value
            }
            (Shape::Integer | Shape::IntOrString, Value::Number(number)) => {
                let narrow =
                    matches!(schema.shape, Shape::IntOrString) || schema.format.as_deref() == Some("int32");
                // A conversion accepts 1.0 as an integer; `IntOrString` decodes itself and does not.
                let integer = number.as_f64().filter(|number| self.converts && number.fract() == 0.0);
                let integer =
                    integer.filter(|_| matches!(schema.shape, Shape::Integer)).map(|integer| integer as i64);
                let number = number.as_i64().or(integer);
                match number.filter(|number| !narrow || i32::try_from(*number).is_ok()) {
                    Some(number) => number.into(),
                    None => self.mismatch(&value, schema),
                }
            }
            _ => self.mismatch(&value, schema),
        }
    }

    fn quantity(&mut self, value: &Value) -> Value {
        let text = match value {
            Value::Null => return Value::Null,
            Value::String(text) => text.trim().to_owned(),
            other => other.to_string(),
        };
        self.self_decoded(
            text.parse::<Quantity>().map(|quantity| quantity.to_string()).map_err(|error| error.to_string()),
        )
    }

    /// Returns the text from a type that decodes itself, or records its error.
    fn self_decoded(&mut self, read: Result<String, String>) -> Value {
        match read {
            Ok(text) => Value::String(text),
            Err(error) => {
                self.fail_for_good(error);
                Value::Null
            }
        }
    }

    fn object<'de, A: MapAccess<'de>>(
        &mut self,
        schema: &'s Schema,
        object: &'s ObjectSchema,
        mut access: A,
    ) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let Some((name, field)) = object.fields.get_key_value(key.as_str()) else {
                if object.preserve_unknown {
                    let value = access.next_value_seed(Untyped { decoder: self, report: false })?;
                    fields.insert(key, value);
                } else {
                    self.find(StrictDecodingError::UnknownField, &key);
                    access.next_value::<IgnoredAny>()?;
                }
                continue;
            };
            if fields.contains_key(&key) {
                self.find(StrictDecodingError::DuplicateField, &key);
            }
            let length = self.enter_key(&key);
            let owner = self.owner.replace(schema);
            self.fields.push(name);
            let value = access.next_value_seed(Typed { decoder: self, schema: &field.schema })?;
            self.fields.pop();
            self.owner = owner;
            self.path.truncate(length);
            fields.insert(key, value);
        }
        // Nulls are removed only now, so that a field that occurs as null and again with a value is a duplicate.
        if !object.preserve_unknown {
            fields.retain(|_, value| !value.is_null());
        }
        Ok(Value::Object(fields))
    }

    fn map<'de, A: MapAccess<'de>>(&mut self, values: &'s Schema, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if fields.contains_key(&key) {
                self.find(StrictDecodingError::DuplicateField, &key);
            }
            let length = self.enter_key(&key);
            let value = access.next_value_seed(Typed { decoder: self, schema: values })?;
            self.path.truncate(length);
            fields.insert(key, null_to_zero(value, values));
        }
        Ok(Value::Object(fields))
    }

    fn list<'de, A: SeqAccess<'de>>(&mut self, items: &'s Schema, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let length = self.enter_index(list.len());
            let next = access.next_element_seed(Typed { decoder: self, schema: items })?;
            self.path.truncate(length);
            match next {
                Some(value) => list.push(null_to_zero(value, items)),
                None => return Ok(Value::Array(list)),
            }
        }
    }
}

/// Decodes a value with a schema.
struct Typed<'a, 's> {
    decoder: &'a mut TypedDecoder<'s>,
    schema: &'s Schema,
}

impl<'de> DeserializeSeed<'de> for Typed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        match self.schema.shape {
            Shape::Any => Untyped { decoder: self.decoder, report: false }.deserialize(source),
            _ => source.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Typed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(self.decoder.scalar(self.schema, value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.decoder.scalar(self.schema, value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.decoder.scalar(self.schema, value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.decoder.scalar(self.schema, value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(self.decoder.scalar(self.schema, value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(self.decoder.scalar(self.schema, value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        if let Shape::List(list) = &self.schema.shape {
            return self.decoder.list(&list.items, access);
        }
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.decoder.mismatch(&Value::Array(Vec::new()), self.schema))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        match &self.schema.shape {
            Shape::Object(object) => return self.decoder.object(self.schema, object, access),
            Shape::Map(map) => return self.decoder.map(&map.values, access),
            _ => {}
        }
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.decoder.mismatch(&Value::Object(Map::new()), self.schema))
    }
}

#[cfg(test)]
mod tests;
