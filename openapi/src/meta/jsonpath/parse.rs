//! Parses a JSONPath.

use serde_json::Value;

use super::{FilterOperand, FilterTest, InvalidJsonPath, JsonPath, JsonPathStep};

/// Maximum nesting of filters and unions.
const DEPTH_MAX: usize = 16;

pub(super) fn path(text: &str) -> Result<JsonPath, InvalidJsonPath> {
    nested(text, 0)
}

fn nested(text: &str, depth: usize) -> Result<JsonPath, InvalidJsonPath> {
    if depth > DEPTH_MAX {
        return Err(InvalidJsonPath("paths are nested too deeply".to_owned()));
    }
    let mut reader = JsonPathParser { rest: text.trim(), depth };
    let mut steps = Vec::new();
    while !reader.rest.is_empty() {
        reader.step(&mut steps)?;
    }
    Ok(JsonPath { steps })
}

struct JsonPathParser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> JsonPathParser<'t> {
    fn step(&mut self, steps: &mut Vec<JsonPathStep>) -> Result<(), InvalidJsonPath> {
        if let Some(rest) = self.rest.strip_prefix("..") {
            self.rest = rest;
            steps.push(JsonPathStep::Deep);
            if !self.rest.is_empty() && !self.rest.starts_with(['.', '[']) {
                steps.push(self.field());
            }
            return Ok(());
        }
        let first = self.rest.chars().next().unwrap_or_default();
        match first {
            '$' => {
                self.rest = &self.rest[1..];
                steps.push(JsonPathStep::Root);
            }
            '@' => self.rest = &self.rest[1..],
            '.' => {
                self.rest = &self.rest[1..];
                if !self.rest.is_empty() && !self.rest.starts_with('[') {
                    steps.push(self.field());
                }
            }
            '[' => {
                let inner = self.bracket()?;
                steps.push(self.inside(inner)?);
            }
            _ => steps.push(self.field()),
        }
        Ok(())
    }

    /// Parses a name, in which a backslash escapes the next character.
    fn field(&mut self) -> JsonPathStep {
        let mut name = String::new();
        let mut escaped = false;
        let mut end = self.rest.len();
        for (at, c) in self.rest.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => {
                    escaped = true;
                    continue;
                }
                ' ' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => {
                    end = at;
                    break;
                }
                _ => {}
            }
            name.push(c);
        }
        // At least one character is consumed, so that the parser always advances.
        let taken = end.max(self.rest.chars().next().map_or(0, char::len_utf8));
        self.rest = &self.rest[taken..];
        if name == "*" { JsonPathStep::Every } else { JsonPathStep::Field(name) }
    }

    /// Returns the text between a bracket and its closing bracket. Brackets in quotes do not count.
    fn bracket(&mut self) -> Result<&'t str, InvalidJsonPath> {
        let unterminated = || InvalidJsonPath("unterminated array".to_owned());
        let end = closing(&self.rest[1..], '[', ']').ok_or_else(unterminated)?;
        let inner = &self.rest[1..1 + end];
        self.rest = &self.rest[end + 2..];
        Ok(inner.trim())
    }

    fn inside(&self, inner: &str) -> Result<JsonPathStep, InvalidJsonPath> {
        if let Some(filter) = inner.strip_prefix("?(") {
            let end = closing(filter, '(', ')').filter(|end| filter[end + 1..].trim().is_empty());
            let end = end.ok_or_else(|| InvalidJsonPath("unterminated filter".to_owned()))?;
            return self.filter(&filter[..end]);
        }
        let segments = outside_quotes(inner, ',');
        if segments.len() > 1 {
            let paths =
                segments.iter().map(|segment| nested(&format!("[{}]", segment.trim()), self.depth + 1));
            return Ok(JsonPathStep::Union(paths.collect::<Result<_, _>>()?));
        }
        if inner == "*" {
            return Ok(JsonPathStep::Every);
        }
        if let Some(name) = unquoted(inner) {
            return Ok(JsonPathStep::Field(name.to_owned()));
        }
        slice(inner).ok_or_else(|| InvalidJsonPath(format!("invalid array index {inner}")))
    }

    fn filter(&self, text: &str) -> Result<JsonPathStep, InvalidJsonPath> {
        const TESTS: [(&str, FilterTest); 6] = [
            ("==", FilterTest::Equal),
            ("!=", FilterTest::Unequal),
            ("<=", FilterTest::LessOrEqual),
            (">=", FilterTest::MoreOrEqual),
            ("<", FilterTest::Less),
            (">", FilterTest::More),
        ];
        let operators =
            positions_outside_quotes(text, |rest| TESTS.iter().any(|(sign, _)| rest.starts_with(sign)));
        let Some(at) = operators.first().copied() else {
            return Ok(JsonPathStep::Filter {
                left: self.operand(text)?,
                test: FilterTest::Exists,
                right: FilterOperand::Nothing,
            });
        };
        let (sign, test) = TESTS
            .into_iter()
            .find(|(sign, _)| text[at..].starts_with(sign))
            .expect("the operator was found at this position");
        let (left, right) = (self.operand(&text[..at])?, self.operand(&text[at + sign.len()..])?);
        Ok(JsonPathStep::Filter { left, test, right })
    }

    fn operand(&self, text: &str) -> Result<FilterOperand, InvalidJsonPath> {
        let text = text.trim();
        if let Some(word) = unquoted(text) {
            return Ok(FilterOperand::Literal(Value::from(word)));
        }
        match text {
            "true" => return Ok(FilterOperand::Literal(true.into())),
            "false" => return Ok(FilterOperand::Literal(false.into())),
            "" => return Err(InvalidJsonPath("a comparison needs two sides".to_owned())),
            _ => {}
        }
        match text.parse::<serde_json::Number>() {
            Ok(number) => Ok(FilterOperand::Literal(number.into())),
            Err(_) => nested(text, self.depth + 1).map(FilterOperand::Path),
        }
    }
}

fn unquoted(text: &str) -> Option<&str> {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"'))
}

/// Parses `1`, `1:`, `:3`, `1:3:2`.
fn slice(text: &str) -> Option<JsonPathStep> {
    if text.is_empty() {
        return None;
    }
    let segments: Vec<&str> = text.split(':').collect();
    let number = |segment: &str| match segment.trim() {
        "" => Some(None),
        digits => digits.parse::<i64>().ok().map(Some),
    };
    let numbers: Vec<Option<i64>> = segments.iter().map(|segment| number(segment)).collect::<Option<_>>()?;
    match numbers[..] {
        [start] => Some(JsonPathStep::Slice { start, end: None, step: 1, single: true }),
        [start, end] => Some(JsonPathStep::Slice { start, end, step: 1, single: false }),
        [start, end, step] => {
            Some(JsonPathStep::Slice { start, end, step: step.unwrap_or(1), single: false })
        }
        _ => None,
    }
}

/// Returns the position of the bracket that closes the one before the text.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_usize;
    for at in positions_outside_quotes(text, |rest| rest.starts_with([open, close])) {
        match text[at..].starts_with(open) {
            true => depth += 1,
            false if depth == 0 => return Some(at),
            false => depth -= 1,
        }
    }
    None
}

fn outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let mut segments = Vec::new();
    let mut start = 0;
    for at in positions_outside_quotes(text, |rest| rest.starts_with(separator)) {
        segments.push(&text[start..at]);
        start = at + separator.len_utf8();
    }
    segments.push(&text[start..]);
    segments
}

fn positions_outside_quotes(text: &str, is_match: impl Fn(&str) -> bool) -> Vec<usize> {
    let mut quote = None;
    let mut found = Vec::new();
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) if is_match(&text[at..]) => found.push(at),
            _ => {}
        }
    }
    found
}
