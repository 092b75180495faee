//! The value of the annotation `holon.dev/placement`, which moves a workload.
//!
//! ```text
//!   west                           a physical cluster, by name
//!   east,west                      several
//!   region=eu                      all with this label
//!   region in (eu,us),env!=dev     all that match every part; a bare word among such parts: the label exists
//!   gpu=*                          the label exists, with any value
//!   *                              all
//! ```
//!
//! The error for an invalid value says what to write instead.

use std::fmt;

use api::fleet::{ClusterSelector, Compare, LabelSelector, Requirement};

/// No list of clusters that a person wrote is longer.
const MAX_BYTES: usize = 4096;

/// Why a value cannot be read, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnotationError {
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for AnnotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl std::error::Error for AnnotationError {}

/// A part of the value, between commas, and where it begins.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    column: usize,
}

impl Part<'_> {
    fn wrong(&self, message: impl Into<String>) -> AnnotationError {
        AnnotationError { column: self.column, message: message.into() }
    }
}

/// Which physical clusters a value names.
pub fn parse(text: &str) -> Result<ClusterSelector, AnnotationError> {
    let whole = Part { text: text.trim(), column: 1 };
    if text.len() > MAX_BYTES {
        return Err(whole.wrong(format!("{} bytes, at most {MAX_BYTES} are allowed", text.len())));
    }
    match whole.text {
        "" => Err(whole.wrong(
            "empty; write the name of a physical cluster (west), several (east,west), labels (region=eu) or *, or remove the annotation",
        )),
        "*" => Ok(ClusterSelector::default()),
        _ => selector(&parts(text)?),
    }
}

fn selector(parts: &[Part]) -> Result<ClusterSelector, AnnotationError> {
    if let Some(star) = parts.iter().find(|part| part.text == "*") {
        return Err(star.wrong("* already means every physical cluster; write it alone"));
    }
    if parts.iter().all(|part| part.text.bytes().all(is_word)) {
        return Ok(ClusterSelector { names: names(parts)?, ..ClusterSelector::default() });
    }
    let match_expressions = parts.iter().map(requirement).collect::<Result<_, _>>()?;
    let labels = LabelSelector { match_expressions, ..LabelSelector::default() };
    Ok(ClusterSelector { labels, ..ClusterSelector::default() })
}

/// Splits at commas, but not at those in parentheses.
fn parts(text: &str) -> Result<Vec<Part<'_>>, AnnotationError> {
    let (mut found, mut start, mut open) = (Vec::new(), 0, None);
    let part = |start: usize, end: usize| {
        let piece = &text[start..end];
        let indent = piece.len() - piece.trim_start().len();
        Part { text: piece.trim(), column: text[..start + indent].chars().count() + 1 }
    };
    for (at, letter) in text.char_indices() {
        match (letter, open) {
            ('(', Some(_)) => return Err(part(at, at).wrong("a second ( before the first is closed by )")),
            ('(', None) => open = Some(at),
            (')', None) => return Err(part(at, at).wrong("a ) without a ( before it")),
            (')', Some(_)) => open = None,
            (',', None) => {
                found.push(part(start, at));
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some(at) = open {
        return Err(part(at, at).wrong("this ( needs a ) after its values, as in region in (eu,us)"));
    }
    found.push(part(start, text.len()));
    match found.iter().find(|part| part.text.is_empty()) {
        Some(empty) => Err(empty.wrong("nothing between two commas; remove one")),
        None => Ok(found),
    }
}

fn names(parts: &[Part]) -> Result<Vec<String>, AnnotationError> {
    let mut names: Vec<String> = Vec::new();
    for part in parts {
        let text = part.text;
        if text.len() > 253 {
            return Err(part.wrong("too long for the name of a physical cluster"));
        }
        if text.to_ascii_lowercase() != text {
            let lower = text.to_ascii_lowercase();
            return Err(part.wrong(format!("names of physical clusters are lower case; write {lower}")));
        }
        let ends = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        if !text.starts_with(ends) || !text.ends_with(ends) || text.contains('_') {
            let message = format!(
                "{text} is not the name of a physical cluster; those are letters, digits and inner dashes"
            );
            return Err(part.wrong(message));
        }
        if !names.iter().any(|name| name == text) {
            names.push(text.to_owned());
        }
    }
    Ok(names)
}

/// `key=value`, `key!=value`, `key in (…)`, `key notin (…)`, `key`, `!key`, `key=*`.
fn requirement(part: &Part) -> Result<Requirement, AnnotationError> {
    let text = part.text;
    let make = |key: &str, operator, values: Vec<String>| {
        let key = key.trim().to_owned();
        check_key(part, &key)?;
        Ok(Requirement { key, operator, values })
    };
    if let Some((key, rest)) = text.split_once('(') {
        return listed(part, key.trim_end(), rest);
    }
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, Compare::NotIn, vec![label_value(part, value)?]);
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        if value.trim() == "*" {
            return make(key, Compare::Exists, Vec::new());
        }
        return make(key, Compare::In, vec![label_value(part, value)?]);
    }
    if let Some(key) = text.strip_prefix('!') {
        return make(key, Compare::DoesNotExist, Vec::new());
    }
    if let Some(key) = text.strip_suffix(" in").or_else(|| text.strip_suffix(" notin")) {
        return Err(part.wrong(format!("write the values in parentheses, as in {} in (eu,us)", key.trim())));
    }
    make(text, Compare::Exists, Vec::new())
}

fn listed(part: &Part, before: &str, rest: &str) -> Result<Requirement, AnnotationError> {
    let Some((values, "")) = rest.split_once(')').map(|(values, after)| (values, after.trim())) else {
        return Err(part.wrong("after the ) comes a comma or nothing"));
    };
    let (key, operator) = match before.rsplit_once(char::is_whitespace) {
        Some((key, "in")) => (key.trim(), Compare::In),
        Some((key, "notin")) => (key.trim(), Compare::NotIn),
        _ => return Err(part.wrong("before a ( write in or notin, as in region in (eu,us)")),
    };
    check_key(part, key)?;
    let values = values.split(',').map(|value| label_value(part, value)).collect::<Result<Vec<_>, _>>()?;
    if values.iter().any(String::is_empty) {
        return Err(
            part.wrong("an empty value between the parentheses; write at least one, as in region in (eu,us)")
        );
    }
    Ok(Requirement { key: key.to_owned(), operator, values })
}

fn check_key(part: &Part, key: &str) -> Result<(), AnnotationError> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let dns = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let prefix_fits =
        prefix.is_none_or(|prefix| !prefix.is_empty() && prefix.len() <= 253 && prefix.bytes().all(dns));
    match prefix_fits && !name.is_empty() && is_label(name) {
        true => Ok(()),
        false => {
            let hint = "write one such as region, or example.com/tier";
            Err(part.wrong(format!("{key:?} is not the name of a label; {hint}")))
        }
    }
}

fn label_value(part: &Part, value: &str) -> Result<String, AnnotationError> {
    let value = value.trim();
    match is_label(value) {
        true => Ok(value.to_owned()),
        false => Err(part.wrong(format!(
            "{value:?} cannot be the value of a label; those are up to 63 letters, digits, dashes, dots and underscores"
        ))),
    }
}

/// The name or the value of a label; a value may be empty.
fn is_label(text: &str) -> bool {
    let ends = |letter: char| letter.is_ascii_alphanumeric();
    text.is_empty()
        || text.len() <= 63 && text.bytes().all(is_word) && text.starts_with(ends) && text.ends_with(ends)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}
