//! Parses YAML to the tree that a JSON body would have given.
//!
//! Kubernetes reads YAML 1.1 as Go programs do: `yes` and `on` are true, `0777` is octal, dates are strings, and values
//! without an equivalent in JSON (not-a-number, lists as keys) are errors. Only the first document is parsed. Aliases
//! are copied, and the copies have a limit: otherwise a few lines of YAML could need more memory than the machine has.

mod write;

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Number, Value};

use crate::codec::MAX_DEPTH;
use crate::codec::typed::StrictDecodingError;
use api::meta::go;

pub use write::write;

/// The maximum size of all anchors and alias copies: a few times the largest accepted body (3 MiB).
const MAX_COPIED_BYTES: usize = 8 * 1024 * 1024;

/// The size of a node besides its text: about what it occupies in memory.
const NODE_BYTES: usize = 32;

/// A document, and its duplicate keys.
#[derive(Debug)]
pub(crate) struct YamlDocument {
    pub(crate) value: Value,
    repeated: Vec<(usize, String)>,
}

impl YamlDocument {
    /// Returns all duplicate keys as one strict decoding error, as Kubernetes does.
    pub(crate) fn duplicates(&self) -> Vec<StrictDecodingError> {
        if self.repeated.is_empty() {
            return Vec::new();
        }
        let lines =
            self.repeated.iter().map(|(line, key)| format!("\n  line {line}: key {key} already set in map"));
        vec![StrictDecodingError::Yaml(format!("yaml: unmarshal errors:{}", lines.collect::<String>()))]
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum YamlError {
    #[error("yaml: line {line}: {message}")]
    Syntax { line: usize, message: String },
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    #[error("yaml: line {0}: exceeded max depth of {MAX_DEPTH}")]
    Depth(usize),
    #[error("yaml: line {0}: anchor value contains itself")]
    Cycle(usize),
    #[error("yaml: line {line}: unsupported map key: {key}")]
    YamlKey { line: usize, key: String },
    #[error("yaml: line {0}: map merge requires map or sequence of maps as the value")]
    Merge(usize),
    #[error("json: unsupported value: {0}")]
    Number(String),
}

pub(crate) fn parse(text: &str) -> Result<YamlDocument, YamlError> {
    let mut reader = YamlReader {
        parser: Parser::new_from_str(text),
        unended: unended(text),
        anchors: HashMap::new(),
        copied_bytes: 0,
        repeated: Vec::new(),
    };
    let value = loop {
        match reader.next()? {
            (Event::StreamEnd, _) => break Value::Null,
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (event, span) => break reader.node(event, span, 0)?.value,
        }
    };
    Ok(YamlDocument { value, repeated: reader.repeated })
}

/// Returns the length of the text in characters if its last line is neither blank nor ends in a line break.
fn unended(text: &str) -> Option<usize> {
    let last = text.rsplit('\n').next().unwrap_or_default();
    (!last.trim_start_matches(' ').is_empty()).then(|| text.chars().count())
}

struct YamlReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// The end of a text without a final line break. A block scalar that ends there has none either, but the parser
    /// adds one.
    unended: Option<usize>,
    anchors: HashMap<usize, YamlNode>,
    copied_bytes: usize,
    repeated: Vec<(usize, String)>,
}

#[derive(Clone)]
struct YamlNode {
    value: Value,
    /// The size that a copy counts as.
    bytes: usize,
    /// The nesting of lists and maps in the node.
    height: usize,
}

impl<'t> YamlReader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), YamlError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                Err(YamlError::Syntax { line: error.marker().line(), message: error.info().to_owned() })
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// Parses the node that begins with `event`, at depth `depth`.
    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<YamlNode, YamlError> {
        let line = span.start.line();
        let (anchor, node) = match event {
            Event::Alias(id) => return self.alias(id, line, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let bytes = NODE_BYTES + text.len();
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let text = match is_block && self.unended.is_some_and(|end| span.end.index() >= end) {
                    true => text.strip_suffix('\n').unwrap_or(&text),
                    false => &text,
                };
                let value = scalar(text, style, tag.as_deref())?;
                (anchor, YamlNode { value, bytes, height: 0 })
            }
            Event::SequenceStart(anchor, _) => (anchor, self.sequence(line, depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.mapping(line, depth)?),
            _ => {
                return Err(YamlError::Syntax {
                    line,
                    message: "did not find expected node content".to_owned(),
                });
            }
        };
        if anchor != 0 {
            self.pay(node.bytes)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Returns a copy of an anchored node. An anchor is known once its node is complete, so a node cannot contain
    /// itself.
    fn alias(&mut self, id: usize, line: usize, depth: usize) -> Result<YamlNode, YamlError> {
        let node = self.anchors.get(&id).ok_or(YamlError::Cycle(line))?;
        let (bytes, height) = (node.bytes, node.height);
        self.pay(bytes)?;
        if depth + height > MAX_DEPTH {
            return Err(YamlError::Depth(line));
        }
        Ok(self.anchors[&id].clone())
    }

    fn pay(&mut self, bytes: usize) -> Result<(), YamlError> {
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        match self.copied_bytes > MAX_COPIED_BYTES {
            true => Err(YamlError::Aliases),
            false => Ok(()),
        }
    }

    fn sequence(&mut self, line: usize, depth: usize) -> Result<YamlNode, YamlError> {
        if depth >= MAX_DEPTH {
            return Err(YamlError::Depth(line));
        }
        let (mut items, mut bytes, mut height) = (Vec::new(), NODE_BYTES, 0);
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(YamlNode { value: Value::Array(items), bytes, height: height + 1 });
            }
            let item = self.node(event, span, depth + 1)?;
            (bytes, height) = (bytes + item.bytes, height.max(item.height));
            items.push(item.value);
        }
    }

    fn mapping(&mut self, line: usize, depth: usize) -> Result<YamlNode, YamlError> {
        if depth >= MAX_DEPTH {
            return Err(YamlError::Depth(line));
        }
        let (mut fields, mut bytes, mut height) = (Map::new(), NODE_BYTES, 0);
        let mut inherited = Map::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.key(event, span, depth)?;
            let (event, span) = self.next()?;
            let line = span.start.line();
            let node = self.node(event, span, depth + 1)?;
            (bytes, height) = (bytes + node.bytes + NODE_BYTES + key.text.len(), height.max(node.height));
            if key.merges {
                inherit(&mut inherited, node.value).ok_or(YamlError::Merge(line))?;
            } else if fields.insert(key.text, node.value).is_some() {
                self.repeated.push((line, key.quoted));
            }
        }
        for (key, value) in inherited {
            fields.entry(key).or_insert(value);
        }
        Ok(YamlNode { value: Value::Object(fields), bytes, height: height + 1 })
    }

    fn key(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<YamlKey, YamlError> {
        let line = span.start.line();
        let merges = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
        let value = self.node(event, span, depth + 1)?.value;
        match value {
            Value::String(text) => Ok(YamlKey { quoted: go::quote(&text), text, merges }),
            Value::Bool(_) | Value::Number(_) => {
                Ok(YamlKey { text: value.to_string(), quoted: value.to_string(), merges: false })
            }
            other => Err(YamlError::YamlKey { line, key: other.to_string() }),
        }
    }
}

struct YamlKey {
    text: String,
    /// The key as Go formats it.
    quoted: String,
    /// Whether the key is `<<`: the value's fields are inherited.
    merges: bool,
}

/// Adds the fields that `<<` inherits; the first mapping with a field wins.
fn inherit(inherited: &mut Map<String, Value>, value: Value) -> Option<()> {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                inherited.entry(key).or_insert(value);
            }
        }
        Value::Array(maps) => {
            for map in maps {
                map.is_object().then(|| inherit(inherited, map))??;
            }
        }
        _ => return None,
    }
    Some(())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, YamlError> {
    let is_text = match tag {
        None => style != ScalarStyle::Plain,
        Some(tag) => !tag.is_yaml_core_schema() || matches!(tag.suffix.as_str(), "str" | "binary"),
    };
    match is_text {
        true => Ok(text.into()),
        false => plain(text),
    }
}

/// Parses an unquoted scalar.
fn plain(text: &str) -> Result<Value, YamlError> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(true.into());
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(false.into());
        }
        ".nan" | ".NaN" | ".NAN" => return Err(YamlError::Number("NaN".to_owned())),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Err(YamlError::Number("+Inf".to_owned()));
        }
        "-.inf" | "-.Inf" | "-.INF" => return Err(YamlError::Number("-Inf".to_owned())),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return Ok(text.into());
    }
    let digits = text.replace('_', "");
    Ok(integer(&digits).or_else(|| float(&digits)).map_or_else(|| text.into(), Value::Number))
}

/// Parses an integer by Go's rules for a base that follows from the prefix.
fn integer(text: &str) -> Option<Number> {
    let (sign, magnitude) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let (radix, digits) = match magnitude.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, &magnitude[2..]),
        Some("0o") => (8, &magnitude[2..]),
        Some("0b") => (2, &magnitude[2..]),
        Some(start) if start.starts_with('0') => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    match i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        Ok(number) => Some(number.into()),
        // JSON has such numbers; Go reads them as floats.
        Err(_) if sign.is_empty() => {
            u64::from_str_radix(digits, radix).ok().and_then(|number| Number::from_f64(number as f64))
        }
        Err(_) => None,
    }
}

fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = is_digits(integer) && is_digits(fraction) && !(integer.is_empty() && fraction.is_empty());
    let is_exponent = exponent.is_none_or(|digits| is_digits(digits) && !digits.is_empty());
    if !(is_number && is_exponent) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    // Go writes a whole float without a point, so a reader sees an integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.fract() == 0.0 && number.abs() <= EXACT {
        true => Some((number as i64).into()),
        false => Number::from_f64(number),
    }
}

#[cfg(test)]
mod tests;
