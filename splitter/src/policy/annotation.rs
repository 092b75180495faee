//! The value of the annotation `holon.dev/placement`, which moves a workload.
//!
//! ```text
//!   west                           a physical cluster, by name
//!   east,west                      several
//!   region=eu                      all with this label
//!   region in (eu,us),env!=dev     all that match every term; a bare word among such terms: the label exists
//!   gpu=*                          the label exists, with any value
//!   *                              all
//! ```
//!
//! The error for an invalid value has a correction.

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

/// A term of the value, between commas, and its first column.
#[derive(Clone, Copy)]
struct SelectorTerm<'a> {
    text: &'a str,
    column: usize,
}

impl SelectorTerm<'_> {
    fn error(&self, message: impl Into<String>) -> AnnotationError {
        AnnotationError { column: self.column, message: message.into() }
    }
}

/// Which physical clusters a value names.
pub fn parse(text: &str) -> Result<ClusterSelector, AnnotationError> {
    let whole = SelectorTerm { text: text.trim(), column: 1 };
    if text.len() > MAX_BYTES {
        return Err(whole.error(format!("{} bytes, at most {MAX_BYTES} are allowed", text.len())));
    }
    match whole.text {
        "" => Err(whole.error(
            "empty; write the name of a physical cluster (west), several (east,west), labels (region=eu) or *, or remove the annotation",
        )),
        "*" => Ok(ClusterSelector::default()),
        _ => selector(&split_terms(text)?),
    }
}

fn selector(terms: &[SelectorTerm]) -> Result<ClusterSelector, AnnotationError> {
    if let Some(star) = terms.iter().find(|term| term.text == "*") {
        return Err(star.error("* already means every physical cluster; write it alone"));
    }
    if terms.iter().all(|term| term.text.bytes().all(is_word)) {
        return Ok(ClusterSelector { names: names(terms)?, ..ClusterSelector::default() });
    }
    let match_expressions = terms.iter().map(requirement).collect::<Result<_, _>>()?;
    let labels = LabelSelector { match_expressions, ..LabelSelector::default() };
    Ok(ClusterSelector { labels, ..ClusterSelector::default() })
}

/// Splits at commas, but not at those in parentheses.
fn split_terms(text: &str) -> Result<Vec<SelectorTerm<'_>>, AnnotationError> {
    let (mut found, mut start, mut open) = (Vec::new(), 0, None);
    let term = |start: usize, end: usize| {
        let slice = &text[start..end];
        let indent = slice.len() - slice.trim_start().len();
        SelectorTerm { text: slice.trim(), column: text[..start + indent].chars().count() + 1 }
    };
    for (at, letter) in text.char_indices() {
        match (letter, open) {
            ('(', Some(_)) => return Err(term(at, at).error("a second ( before the first is closed by )")),
            ('(', None) => open = Some(at),
            (')', None) => return Err(term(at, at).error("a ) without a ( before it")),
            (')', Some(_)) => open = None,
            (',', None) => {
                found.push(term(start, at));
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some(at) = open {
        return Err(term(at, at).error("this ( needs a ) after its values, as in region in (eu,us)"));
    }
    found.push(term(start, text.len()));
    match found.iter().find(|term| term.text.is_empty()) {
        Some(empty) => Err(empty.error("nothing between two commas; remove one")),
        None => Ok(found),
    }
}

fn names(terms: &[SelectorTerm]) -> Result<Vec<String>, AnnotationError> {
    let mut names: Vec<String> = Vec::new();
    for term in terms {
        let text = term.text;
        if text.len() > 253 {
            return Err(term.error("too long for the name of a physical cluster"));
        }
        if text.to_ascii_lowercase() != text {
            let lower = text.to_ascii_lowercase();
            return Err(term.error(format!("names of physical clusters are lower case; write {lower}")));
        }
        let ends = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        if !text.starts_with(ends) || !text.ends_with(ends) || text.contains('_') {
            let message = format!(
                "{text} is not the name of a physical cluster; those are letters, digits and inner dashes"
            );
            return Err(term.error(message));
        }
        if !names.iter().any(|name| name == text) {
            names.push(text.to_owned());
        }
    }
    Ok(names)
}

/// `key=value`, `key!=value`, `key in (…)`, `key notin (…)`, `key`, `!key`, `key=*`.
fn requirement(term: &SelectorTerm) -> Result<Requirement, AnnotationError> {
    let text = term.text;
    let make = |key: &str, operator, values: Vec<String>| {
        let key = key.trim().to_owned();
        check_key(term, &key)?;
        Ok(Requirement { key, operator, values })
    };
    if let Some((key, rest)) = text.split_once('(') {
        return listed(term, key.trim_end(), rest);
    }
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, Compare::NotIn, vec![label_value(term, value)?]);
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        if value.trim() == "*" {
            return make(key, Compare::Exists, Vec::new());
        }
        return make(key, Compare::In, vec![label_value(term, value)?]);
    }
    if let Some(key) = text.strip_prefix('!') {
        return make(key, Compare::DoesNotExist, Vec::new());
    }
    if let Some(key) = text.strip_suffix(" in").or_else(|| text.strip_suffix(" notin")) {
        return Err(term.error(format!("write the values in parentheses, as in {} in (eu,us)", key.trim())));
    }
    make(text, Compare::Exists, Vec::new())
}

fn listed(term: &SelectorTerm, before: &str, rest: &str) -> Result<Requirement, AnnotationError> {
    let Some((values, "")) = rest.split_once(')').map(|(values, after)| (values, after.trim())) else {
        return Err(term.error("after the ) comes a comma or nothing"));
    };
    let (key, operator) = match before.rsplit_once(char::is_whitespace) {
        Some((key, "in")) => (key.trim(), Compare::In),
        Some((key, "notin")) => (key.trim(), Compare::NotIn),
        _ => return Err(term.error("before a ( write in or notin, as in region in (eu,us)")),
    };
    check_key(term, key)?;
    let values = values.split(',').map(|value| label_value(term, value)).collect::<Result<Vec<_>, _>>()?;
    if values.iter().any(String::is_empty) {
        return Err(
            term.error("an empty value between the parentheses; write at least one, as in region in (eu,us)")
        );
    }
    Ok(Requirement { key: key.to_owned(), operator, values })
}

fn check_key(term: &SelectorTerm, key: &str) -> Result<(), AnnotationError> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let dns = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let prefix_fits =
        prefix.is_none_or(|prefix| !prefix.is_empty() && prefix.len() <= 253 && prefix.bytes().all(dns));
    match prefix_fits && !name.is_empty() && is_label(name) {
        true => Ok(()),
        false => {
            let hint = "write one such as region, or example.com/tier";
            Err(term.error(format!("{key:?} is not the name of a label; {hint}")))
        }
    }
}

fn label_value(term: &SelectorTerm, value: &str) -> Result<String, AnnotationError> {
    let value = value.trim();
    match is_label(value) {
        true => Ok(value.to_owned()),
        false => Err(term.error(format!(
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
