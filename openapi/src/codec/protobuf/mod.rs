//! Converts built-in kinds between `application/vnd.kubernetes.protobuf` and JSON.
//!
//! Most clients written in Go send built-in kinds this way and cannot be configured otherwise, so decoding it is
//! required. Nothing else in Holon knows protobuf: here, at the edge, it becomes a JSON value.
//!
//! ```text
//! k8s\0 { type: {apiVersion, kind}, raw: <message>, … }       an object (`envelope`)
//!                    |                  |
//!                    v                  v
//!       `schema::messages` (messages.txt) says which fields the message has, their names in JSON, and when JSON shows
//!       them; `decode` and `encode` traverse the message and the value with it
//! ```
//!
//! No code is specific to a kind. Custom kinds have no field numbers and therefore no protobuf encoding.

mod decode;
mod encode;
mod envelope;
mod leaf;
mod time;
mod wire;

use serde_json::{Map, Value};

use crate::schema::messages::{self, MessageTable};
use decode::Decoder;
use encode::Encoder;
use wire::WireWriter;

/// An object decoded from protobuf.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    pub api_version: String,
    pub kind: String,
    /// As Kubernetes would show it, apiVersion and kind included.
    pub value: Value,
}

/// An error, and the path of the field it is about.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{problem}", path_prefix(.path))]
pub struct ProtobufError {
    /// `spec.template.spec.containers`; empty if the error is about the whole object.
    pub path: String,
    pub problem: Problem,
}

/// The error type inside this module. Callers prepend fields to its path.
type Fault = ProtobufError;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    #[error("empty data")]
    Nothing,
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [{}]",
        envelope::MAGIC.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
    )]
    NotAnEnvelope,
    #[error("empty body")]
    EmptyEnvelope,
    #[error("the object has no apiVersion and kind")]
    NoType,
    #[error("kind {kind:?} in {api_version:?} has no protobuf encoding")]
    UnknownType { api_version: String, kind: String },
    #[error("the object has an unknown content encoding")]
    Encoding,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Varint,
    #[error("invalid field number")]
    FieldNumber,
    #[error("wrong wire type")]
    WireType,
    #[error("objects nest too deep")]
    TooDeep,
    #[error("too many objects for a body of this size")]
    TooMany,
    #[error("the time is outside of the years 0 to 9999")]
    Time,
    #[error("not JSON: {0}")]
    Json(String),
    #[error("expected {0}")]
    Expected(&'static str),
}

/// Reports whether objects of this kind can be decoded and encoded.
pub fn knows(api_version: &str, kind: &str) -> bool {
    MessageTable::get().kind(api_version, kind).is_some()
}

/// Decodes an object that contains its kind.
pub fn decode(bytes: &[u8]) -> Result<Decoded, ProtobufError> {
    decode_as(bytes, "", "")
}

/// Decodes an object of the kind that it contains, or of the given kind if it contains none.
pub fn decode_as(bytes: &[u8], api_version: &str, kind: &str) -> Result<Decoded, ProtobufError> {
    let opened = envelope::open(envelope::body(bytes)?)?;
    let api_version = if opened.api_version.is_empty() { api_version } else { opened.api_version };
    let kind = if opened.kind.is_empty() { kind } else { opened.kind };
    let value = Decoder::new(bytes).opened(&opened, api_version, kind, 0)?;
    Ok(Decoded { api_version: api_version.to_owned(), kind: kind.to_owned(), value })
}

/// Encodes an object that contains its kind.
pub fn encode(object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let (api_version, kind) = type_of(object)?;
    let mut encoder = Encoder::new();
    let end = envelope::begin(&mut encoder.out);
    encoder.object(message_of(api_version, kind)?, fields_of(object)?, 0)?;
    let length = encoder.out.written() - end;
    envelope::close(&mut encoder.out, length, api_version, kind);
    Ok(encoder.out.finish())
}

/// A list that is written item by item. Its total length comes first, so the lengths of all items must be known before
/// the first byte is written.
#[derive(Clone, Debug)]
pub struct List {
    api_version: String,
    kind: String,
    message: &'static messages::Message,
    /// The field number of `items`.
    number: u32,
}

impl List {
    pub fn new(api_version: &str, kind: &str) -> Result<List, ProtobufError> {
        let message = message_of(api_version, kind)?;
        let items = message.fields.iter().find(|field| field.name == "items");
        let number = items.ok_or(Problem::Expected("a kind of list"))?.number;
        Ok(List { api_version: api_version.to_owned(), kind: kind.to_owned(), message, number })
    }

    /// Returns the bytes before `items_bytes` bytes of items.
    pub fn head(&self, metadata: &Value, items_bytes: usize) -> Result<Vec<u8>, ProtobufError> {
        let mut encoder = Encoder::new();
        encoder.object(self.message, &Map::from_iter([("metadata".to_owned(), metadata.clone())]), 0)?;
        let length = encoder.out.written() + items_bytes;
        envelope::close(&mut encoder.out, length, &self.api_version, &self.kind);
        Ok(encoder.out.finish())
    }

    /// Encodes one item. The same object always results in the same bytes.
    pub fn item(&self, object: &Value) -> Result<Vec<u8>, ProtobufError> {
        let (api_version, kind) = type_of(object)?;
        let mut encoder = Encoder::new();
        encoder.object(message_of(api_version, kind)?, fields_of(object)?, 0)?;
        encoder.out.close(self.number, 0);
        Ok(encoder.out.finish())
    }

    /// Returns the bytes after the last item.
    pub fn tail(&self) -> Vec<u8> {
        let mut out = WireWriter::default();
        envelope::begin(&mut out);
        out.finish()
    }
}

fn type_of(object: &Value) -> Result<(&str, &str), Problem> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    text("apiVersion").zip(text("kind")).ok_or(Problem::NoType)
}

fn message_of(api_version: &str, kind: &str) -> Result<&'static messages::Message, Problem> {
    let found = MessageTable::get().kind(api_version, kind);
    let found = found.ok_or_else(|| Problem::unknown_type(api_version, kind))?;
    Ok(MessageTable::get().message(found.message))
}

fn fields_of(object: &Value) -> Result<&Map<String, Value>, Problem> {
    object.as_object().ok_or(Problem::Expected("an object"))
}

/// Encodes one watch event: four bytes of length, and a message with the type and the object as [`encode()`] returned
/// it.
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = WireWriter::default();
    let end = out.written();
    out.bytes_field(1, object);
    out.close(2, end);
    out.bytes_field(1, event_type.as_bytes());
    // Four bytes of length allow 4 GiB, thousands of times the maximum size of an object.
    out.raw(&u32::try_from(out.written()).unwrap_or(u32::MAX).to_be_bytes());
    out.finish()
}

fn path_prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

impl ProtobufError {
    /// Returns the message for the client, with status 400, if `bytes` should be an object of this kind and version.
    pub fn message(&self, (kind, version): (&str, &str), bytes: &[u8]) -> String {
        let why = match self.problem {
            // Kubernetes omits the path of these.
            Problem::Truncated | Problem::Varint => self.problem.to_string(),
            _ => self.to_string(),
        };
        match envelope::body(bytes).and_then(envelope::open) {
            Err(_) => crate::codec::unrecognized_message(kind, &why, bytes),
            Ok(opened) => {
                let found = if opened.kind.is_empty() { kind } else { opened.kind };
                let found_version = match opened.api_version {
                    "" => version,
                    name => name.rsplit('/').next().unwrap_or_default(),
                };
                crate::codec::mismatch_message(kind, (found, found_version), &why)
            }
        }
    }

    /// Prepends `field` to the path.
    fn within(mut self, field: &str) -> Self {
        if field != "-" {
            self.path =
                if self.path.is_empty() { field.to_owned() } else { format!("{field}.{}", self.path) };
        }
        self
    }
}

impl Problem {
    fn unknown_type(api_version: &str, kind: &str) -> Problem {
        Problem::UnknownType { api_version: api_version.to_owned(), kind: kind.to_owned() }
    }
}

impl From<Problem> for ProtobufError {
    fn from(problem: Problem) -> Self {
        ProtobufError { path: String::new(), problem }
    }
}
