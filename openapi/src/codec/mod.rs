//! Decodes the bytes of a request to a value and collects strict decoding errors.
//!
//! ```text
//! JSON ─────────────────────▶ decode in document order ─┐
//! YAML ──▶ tree ────────────▶ decode in key order ──────┴─▶ Decoded { value, strict_errors } ──▶ enforce
//! ```
//!
//! The memory of a value is bounded by a constant times the size of its text: YAML aliases and nesting are limited.
//! Whole numbers never become floats. Error texts follow Kubernetes where possible.

pub mod protobuf;
pub mod typed;
pub(crate) mod unstructured;
pub mod yaml;

use serde_json::Value;
use serde_json::error::Category;

pub use self::typed::Decoded;

use crate::codec::typed::{Mismatch, StrictDecodingError};
use crate::schema::{FieldSchema, ObjectSchema, Schema, Shape};
use api::meta::go;

/// The maximum nesting of lists and objects. It is the limit of `serde_json`, and ours for YAML.
pub use api::meta::pointer::MAX_DEPTH;

/// The maximum nesting of JSON in unknown fields. Their values are skipped, but Go limits them too.
const MAX_IGNORED_DEPTH: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    Json,
    Yaml,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The body is not JSON.
    #[error("{0}")]
    Json(String),
    /// The body is not YAML, or is YAML that has no equivalent in JSON.
    #[error("{0}")]
    Yaml(String),
    /// The body has no kind where one is required.
    #[error("Object 'Kind' is missing in '{0}'")]
    Nameless(String),
    /// The body is JSON, but not an object of this kind.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
}

/// Decodes a body without a schema: patches, options and bodies of unknown kind.
pub fn decode(body: &[u8], syntax: Syntax) -> Result<Decoded, DecodeError> {
    match syntax {
        Syntax::Json => {
            let text = String::from_utf8_lossy(body);
            let read = decode_all(&text, |source| typed::decode_untyped(source))?;
            Ok(read)
        }
        Syntax::Yaml => {
            let (value, strict_errors) = from_yaml(body)?;
            Ok(Decoded { value, strict_errors })
        }
    }
}

/// Parses JSON that this server wrote, such as stored objects. It does not use `Value`'s own reader: that treats an
/// object with one special key as JSON inside a string, and clients choose the keys.
pub fn parse_json(text: &[u8]) -> Result<Value, serde_json::Error> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let read = typed::decode_untyped(&mut source)?;
    source.end()?;
    Ok(read.value)
}

/// Decodes a body with a schema.
pub fn decode_as(body: &[u8], syntax: Syntax, schema: &Schema) -> Result<Decoded, DecodeError> {
    if schema.is_custom() {
        let Decoded { value, mut strict_errors } = decode(body, syntax)?;
        check_named(&value, body, syntax)?;
        let read = typed::decode_tree(value, schema)?;
        strict_errors.extend(read.strict_errors);
        return Ok(Decoded { value: read.value, strict_errors });
    }
    let (decoded, mut strict_errors) = match syntax {
        Syntax::Json => {
            let text = String::from_utf8_lossy(body);
            let read = decode_all(&text, |source| typed::decode_source(source, schema))?;
            (read?, Vec::new())
        }
        Syntax::Yaml => {
            let (tree, strict_errors) = from_yaml(body)?;
            (typed::decode_tree(tree, schema)?, strict_errors)
        }
    };
    strict_errors.extend(decoded.strict_errors);
    Ok(Decoded { value: decoded.value, strict_errors })
}

/// Checks that a custom object names its kind; a built-in one need not. The caller checks that the kind is that of the
/// request.
fn check_named(value: &Value, body: &[u8], syntax: Syntax) -> Result<(), DecodeError> {
    let odd = |name: &str| value.get(name).is_some_and(|value| !value.is_string() && !value.is_null());
    if !value.is_object() || odd("kind") || odd("apiVersion") {
        return Err(DecodeError::Json(named_kind(body, syntax).err().unwrap_or_default()));
    }
    if value["kind"].as_str().is_none_or(str::is_empty) {
        let body = match syntax {
            Syntax::Json => String::from_utf8_lossy(body).into_owned(),
            Syntax::Yaml => value.to_string(),
        };
        return Err(DecodeError::Nameless(body));
    }
    Ok(())
}

impl DecodeError {
    /// Returns the message for the client, with status 400, if `body` should be an object of this kind and version.
    pub fn message(&self, (kind, version): (&str, &str), body: &[u8], syntax: Syntax) -> String {
        let json_error = |why: &str| {
            unrecognized_message(kind, &format!("couldn't get version/kind; json parse error: {why}"), body)
        };
        match self {
            DecodeError::Json(why) => json_error(why),
            DecodeError::Yaml(why) => unrecognized_message(kind, why, body),
            DecodeError::Nameless(_) => unrecognized_message(kind, &self.to_string(), body),
            DecodeError::Mismatch(mismatch) => match named_kind(body, syntax) {
                Err(why) => json_error(&why),
                Ok((found, group_version)) => {
                    let found_version =
                        group_version.rsplit('/').next().filter(|version| !version.is_empty());
                    let found = if found.is_empty() { kind } else { found.as_str() };
                    mismatch_message(kind, (found, found_version.unwrap_or(version)), &mismatch.to_string())
                }
            },
        }
    }
}

/// Returns the kind and version of a body, decoded as Kubernetes does before everything else. Used only for error
/// texts: a decoded body has both in its value.
fn named_kind(body: &[u8], syntax: Syntax) -> Result<(String, String), String> {
    let of = |shape| std::sync::Arc::new(Schema { shape, ..Schema::default() });
    let fields = ["apiVersion", "kind"].map(|name| (name.into(), FieldSchema::of(of(Shape::String))));
    let head = ObjectSchema { fields: fields.into(), ..ObjectSchema::default() };
    let read = match decode_as(body, syntax, &of(Shape::Object(head))) {
        Ok(read) => read.value,
        Err(error) => {
            let go_struct = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            return Err(error.to_string().replace("type struct", &format!("type {go_struct}")));
        }
    };
    let text = |name: &str| read.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok((text("kind"), text("apiVersion")))
}

/// Returns the error text for a body whose kind cannot be decoded.
pub fn unrecognized_message(expected_kind: &str, why: &str, body: &[u8]) -> String {
    let excerpt = summary(body);
    format!("the object provided is unrecognized (must be of type {expected_kind}): {why} ({excerpt})")
}

/// Returns the error text for a body of a known kind that cannot be decoded.
pub fn mismatch_message(expected_kind: &str, (kind, version): (&str, &str), why: &str) -> String {
    format!("{kind} in version {} cannot be handled as a {expected_kind}: {why}", go::quote(version))
}

/// What to do about unknown and duplicate fields (`?fieldValidation=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    /// Returns none for an unknown value. Absent means `Warn`.
    pub fn parse(text: &str) -> Option<FieldValidation> {
        match text {
            "Ignore" => Some(FieldValidation::Ignore),
            "Warn" | "" => Some(FieldValidation::Warn),
            "Strict" => Some(FieldValidation::Strict),
            _ => None,
        }
    }

    /// Returns the texts of the `Warning` headers, or the reason to reject the body.
    pub fn enforce(self, strict_errors: &[StrictDecodingError]) -> Result<Vec<String>, String> {
        match self {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(strict_errors.iter().flat_map(warnings).collect()),
            FieldValidation::Strict if strict_errors.is_empty() => Ok(Vec::new()),
            FieldValidation::Strict => {
                let texts: Vec<_> = strict_errors.iter().map(StrictDecodingError::to_string).collect();
                Err(format!("strict decoding error: {}", texts.join(", ")))
            }
        }
    }
}

/// Returns one warning for each strict decoding error; YAML's combined error is split into its lines.
fn warnings(strict_error: &StrictDecodingError) -> Vec<String> {
    match strict_error {
        StrictDecodingError::Yaml(text) => text.lines().skip(1).map(|line| line.trim().to_owned()).collect(),
        other => vec![other.to_string()],
    }
}

fn from_yaml(body: &[u8]) -> Result<(Value, Vec<StrictDecodingError>), DecodeError> {
    let tree =
        yaml::parse(&String::from_utf8_lossy(body)).map_err(|error| DecodeError::Yaml(error.to_string()))?;
    let strict_errors = tree.duplicates();
    Ok((tree.value, strict_errors))
}

/// Parses the whole text; anything behind the value is an error.
fn decode_all<'t, T>(
    text: &'t str,
    read: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::StrRead<'t>>) -> serde_json::Result<T>,
) -> Result<T, DecodeError> {
    if let Some(bracket) = too_deep(text) {
        return Err(DecodeError::Json(format!(
            "invalid character {} exceeded max depth",
            go::quote_char(bracket)
        )));
    }
    let mut source = serde_json::Deserializer::from_str(text);
    let value = read(&mut source).and_then(|value| source.end().map(|()| value));
    value.map_err(|error| json_error(text, &error))
}

/// Returns the bracket that exceeds the maximum depth. Texts too short to contain it are not scanned.
fn too_deep(text: &str) -> Option<u8> {
    if text.len() <= MAX_IGNORED_DEPTH {
        return None;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    text.bytes().find(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_IGNORED_DEPTH
    })
}

/// Returns Go's text for a syntax error: the unexpected byte and what was expected instead.
fn json_error(text: &str, error: &serde_json::Error) -> DecodeError {
    if error.classify() == Category::Eof {
        return DecodeError::Json("unexpected end of JSON input".to_owned());
    }
    let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default().as_bytes();
    let column = error.column().saturating_sub(1);
    let byte = match error.column() {
        // The line break before it.
        0 => b'\n',
        _ => line.get(column).copied().unwrap_or(b'\n'),
    };
    let message = error.to_string();
    // Inside a skipped string, the error position is one byte early.
    let byte = match message.starts_with("control character") && byte >= b' ' {
        true => line.get(column + 1).copied().unwrap_or(b'\n'),
        false => byte,
    };
    let context_rule = CONTEXTS.iter().find(|(start, _)| message.starts_with(start));
    let context = match context_rule {
        Some(("expected ident", _)) => literal_context(line, column),
        Some(("invalid number", _)) => number_context(line, column).to_owned(),
        Some(("trailing comma", _)) if byte == b'}' => {
            "looking for beginning of object key string".to_owned()
        }
        Some((_, context)) => (*context).to_owned(),
        None => return DecodeError::Json(message),
    };
    DecodeError::Json(format!("invalid character {} {context}", go::quote_char(byte)))
}

/// Beginnings of `serde_json`'s error messages, and the corresponding endings of Go's.
const CONTEXTS: [(&str, &str); 12] = [
    ("expected value", "looking for beginning of value"),
    ("expected ident", "in literal"),
    ("expected `:`", "after object key"),
    ("expected `,` or `}`", "after object key:value pair"),
    ("expected `,` or `]`", "after array element"),
    ("key must be a string", "looking for beginning of object key string"),
    ("trailing comma", "looking for beginning of value"),
    ("trailing characters", "after top-level value"),
    ("invalid escape", "in string escape code"),
    ("invalid number", "in numeric literal"),
    ("control character", "in string literal"),
    ("recursion limit", "exceeded max depth"),
];

/// Returns the context of an error inside `true`, `false` or `null`: the word and its expected next letter.
fn literal_context(line: &[u8], column: usize) -> String {
    let before = &line[..column.min(line.len())];
    for word in ["true", "false", "null"] {
        for begun in (1..word.len()).rev() {
            if before.ends_with(&word.as_bytes()[..begun]) {
                return format!("in literal {word} (expecting '{}')", &word[begun..=begun]);
            }
        }
    }
    "in literal".to_owned()
}

/// Returns which part of a number ends too early.
fn number_context(line: &[u8], column: usize) -> &'static str {
    match line[..column.min(line.len())].last() {
        Some(b'.') => "after decimal point in numeric literal",
        Some(b'e' | b'E' | b'+') => "in exponent of numeric literal",
        _ => "in numeric literal",
    }
}

/// Returns the start of a body that cannot be decoded, for error texts.
fn summary(body: &[u8]) -> String {
    const EXCERPT_BYTES: usize = 30;
    let more = if body.len() > EXCERPT_BYTES { " ..." } else { "" };
    let start = &body[..body.len().min(EXCERPT_BYTES)];
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => format!("{}{more}", start.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

#[cfg(test)]
mod tests;
