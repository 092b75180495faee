//! OpenAPI v2 as protobuf, in the messages that gnostic defines. The messages are a table; the encoder traverses a
//! document and the table together. A field that the table does not contain is encoded if it is an extension (`x-…`)
//! and otherwise omitted.

use serde_json::Value;

/// A message: its JSON fields with numbers and types, and the field number of extensions.
struct GnosticMessage {
    fields: &'static [(&'static str, u32, GnosticKind)],
    extensions: Option<u32>,
}

enum GnosticKind {
    Text,
    Texts,
    Truth,
    Integer,
    Double,
    /// Any value, as YAML; JSON is YAML.
    Any,
    Anys,
    One(&'static GnosticMessage),
    Many(&'static GnosticMessage),
    /// A value wrapped in a message with only this field, which is how the proto file expresses `oneof` and lists.
    Inside(u32, &'static GnosticKind),
    /// A map: a message with a repeated field of this number that holds pairs of name and value.
    Named(u32, &'static GnosticKind),
    /// A parameter, whose message depends on its location, or a reference to one.
    Parameters,
    /// `false` or a type.
    TypeOrTruth,
    /// A map from names to lists of strings.
    Requirements,
}
use GnosticKind::*;

static DOCUMENT: GnosticMessage = GnosticMessage {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("paths", 8, Named(2, &One(&PATH_ITEM))),
        ("definitions", 9, Named(1, &One(&SCHEMA))),
        ("parameters", 10, Named(1, &Parameters)),
        ("security", 12, Requirements),
        ("securityDefinitions", 13, Named(1, &Inside(2, &One(&API_KEY)))),
    ],
    extensions: Some(16),
};

static INFO: GnosticMessage =
    GnosticMessage { fields: &[("title", 1, Text), ("version", 2, Text)], extensions: None };

static API_KEY: GnosticMessage = GnosticMessage {
    fields: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
    extensions: Some(5),
};

static PATH_ITEM: GnosticMessage = GnosticMessage {
    fields: &[
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Parameters),
    ],
    extensions: Some(10),
};

static OPERATION: GnosticMessage = GnosticMessage {
    fields: &[
        ("tags", 1, Texts),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Parameters),
        ("responses", 9, Named(1, &Inside(1, &One(&RESPONSE)))),
        ("schemes", 10, Texts),
    ],
    extensions: Some(13),
};

static RESPONSE: GnosticMessage = GnosticMessage {
    fields: &[("description", 1, Text), ("schema", 2, Inside(1, &One(&SCHEMA)))],
    extensions: Some(5),
};

static REFERENCE: GnosticMessage = GnosticMessage { fields: &[("$ref", 1, Text)], extensions: None };

static BODY_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[("name", 2, Text), ("in", 3, Text), ("required", 4, Truth), ("schema", 5, One(&SCHEMA))],
    extensions: None,
};

static QUERY_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("uniqueItems", 20, Truth),
    ],
    extensions: None,
};

static PATH_PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("required", 1, Truth),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("uniqueItems", 19, Truth),
    ],
    extensions: None,
};

static SCHEMA: GnosticMessage = GnosticMessage {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Truth),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Truth),
        ("maxLength", 11, Integer),
        ("minLength", 12, Integer),
        ("pattern", 13, Text),
        ("maxItems", 14, Integer),
        ("minItems", 15, Integer),
        ("uniqueItems", 16, Truth),
        ("maxProperties", 17, Integer),
        ("minProperties", 18, Integer),
        ("required", 19, Texts),
        ("enum", 20, Anys),
        ("additionalProperties", 21, TypeOrTruth),
        ("type", 22, Inside(1, &Text)),
        ("items", 23, Inside(1, &One(&SCHEMA))),
        ("allOf", 24, Many(&SCHEMA)),
        ("properties", 25, Named(1, &One(&SCHEMA))),
    ],
    extensions: Some(31),
};

static A_SCHEMA: GnosticKind = Inside(1, &One(&SCHEMA));
static IN_PATH: GnosticKind = Inside(4, &One(&PATH_PARAMETER));
static IN_QUERY: GnosticKind = Inside(3, &One(&QUERY_PARAMETER));

/// Encodes the whole document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document)
}

fn message(of: &GnosticMessage, json: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, number, kind) in of.fields {
        if let Some(value) = json.get(key) {
            put(&mut out, *number, kind, value);
        }
    }
    let extensions = json.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("x-"));
    if let Some(number) = of.extensions {
        for (key, value) in extensions {
            put_bytes(&mut out, number, &named(key, &Any, value));
        }
    }
    out
}

fn put(out: &mut Vec<u8>, number: u32, kind: &GnosticKind, value: &Value) {
    match kind {
        Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Texts => items(value).for_each(|item| put(out, number, &Text, item)),
        Truth => {
            put_tag(out, number, 0);
            out.push(u8::from(value == true));
        }
        Integer => {
            put_tag(out, number, 0);
            // Protobuf encodes a negative number as its two's complement.
            put_varint(out, value.as_i64().unwrap_or_default() as u64);
        }
        Double => {
            put_tag(out, number, 1);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Any => {
            let mut any = Vec::new();
            put_bytes(&mut any, 2, format!("{value}\n").as_bytes());
            put_bytes(out, number, &any);
        }
        Anys => items(value).for_each(|item| put(out, number, &Any, item)),
        One(of) => put_bytes(out, number, &message(of, value)),
        Many(of) => items(value).for_each(|item| put_bytes(out, number, &message(of, item))),
        Inside(inner, kind) => {
            let mut wrapper = Vec::new();
            put(&mut wrapper, *inner, kind, value);
            put_bytes(out, number, &wrapper);
        }
        Named(inner, kind) => {
            let mut map = Vec::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                put_bytes(&mut map, *inner, &named(name, kind, value));
            }
            put_bytes(out, number, &map);
        }
        Parameters if value.is_array() => {
            items(value).for_each(|item| put_bytes(out, number, &parameter_item(item)))
        }
        Parameters => put_bytes(out, number, &parameter(value)),
        TypeOrTruth if value.is_boolean() => put(out, number, &Inside(2, &Truth), value),
        TypeOrTruth => put(out, number, &A_SCHEMA, value),
        Requirements => items(value).for_each(|item| put(out, number, &Named(1, &Inside(1, &Texts)), item)),
    }
}

/// Encodes a pair of name and value.
fn named(name: &str, kind: &GnosticKind, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, name.as_bytes());
    put(&mut out, 2, kind, value);
    out
}

/// Encodes a parameter or a reference to one.
fn parameter_item(json: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match json.get("$ref") {
        Some(_) => put_bytes(&mut out, 2, &message(&REFERENCE, json)),
        None => put_bytes(&mut out, 1, &parameter(json)),
    }
    out
}

fn parameter(json: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match json["in"].as_str() {
        Some("body") => put(&mut out, 1, &One(&BODY_PARAMETER), json),
        Some("path") => put(&mut out, 2, &IN_PATH, json),
        _ => put(&mut out, 2, &IN_QUERY, json),
    }
    out
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, 2);
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn put_tag(out: &mut Vec<u8>, number: u32, wire: u32) {
    put_varint(out, u64::from(number << 3 | wire));
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_document_has_the_bytes_the_proto_asks_for() {
        let check = |json: Value, expected: &[u8]| assert_eq!(encode(&json), expected, "{json}");
        check(json!({ "swagger": "2.0" }), b"\x0a\x032.0");
        // definitions(9) { name "A", value { type { "string" } } }
        check(
            json!({ "definitions": { "A": { "type": "string" } } }),
            b"\x4a\x12\x0a\x10\x0a\x01A\x12\x0b\xb2\x01\x08\x0a\x06string",
        );
        // An extension is a pair of name and YAML.
        check(
            json!({ "definitions": { "A": { "x-a": 1 } } }),
            b"\x4a\x15\x0a\x13\x0a\x01A\x12\x0e\xfa\x01\x0b\x0a\x03x-a\x12\x04\x12\x021\n",
        );
        check(json!({ "security": [{ "B": [] }] }), b"\x62\x07\x0a\x05\x0a\x01B\x12\x00");
    }

    #[test]
    fn long_texts_have_long_lengths() {
        let text = "a".repeat(300);
        let bytes = encode(&json!({ "swagger": text }));
        assert_eq!(bytes[..3], [0x0a, 0xac, 0x02]);
        assert_eq!(bytes.len(), 303);
    }
}
