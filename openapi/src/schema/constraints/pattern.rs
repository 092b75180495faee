//! Regular expressions with the syntax of Go.
//!
//! Go's and Rust's regular expressions are related: both run in time linear in the text, and nearly every expression
//! means the same in both. An expression that differs is rewritten:
//!
//! | in Go | in Rust |
//! |---|---|
//! | `\d`, `\s`, `\w`, `\b` match ASCII only | match Unicode by default |
//! | `[a[b]`, `[a&&b]` are lists of characters | are nested sets and intersections |
//! | `\Q…\E` quotes a text | does not exist |
//! | `\z`, `\pN`, `(?P<name>…)` | the same |
//!
//! A few bytes of an expression can compile to megabytes, so its cost is bounded before it is compiled.

use std::fmt;
use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};

/// Maximum size of one compiled expression. `^.{1,1000}$`, the longest repetition Go allows, is below it.
const COMPILED_BYTES_MAX: usize = 4 << 20;
/// Maximum length of an expression. Longer ones are not written by hand.
const SOURCE_BYTES_MAX: usize = 4 << 10;
/// Go's maximum repeat count.
const REPEAT_MAX: u32 = 1000;
/// Maximum nesting of groups, as in Go.
const NEST_MAX: u32 = 1000;

/// A regular expression of a definition. It is compiled on first use.
#[derive(Clone)]
pub struct Pattern {
    source: Arc<str>,
    compiled: Arc<OnceLock<Option<Regex>>>,
}

/// Why a text is not a regular expression, in Go's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct InvalidPattern(String);

impl Pattern {
    pub fn new(source: &str) -> Pattern {
        Pattern { source: source.into(), compiled: Arc::default() }
    }

    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Reports whether a text contains a match. An expression that cannot be compiled matches nothing.
    pub fn is_in(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compile(&self.source).ok());
        compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }

    /// Estimates the cost of compiling an expression without compiling it, or returns why it is invalid.
    pub fn cost(source: &str) -> Result<u64, InvalidPattern> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(InvalidPattern(format!("expression is longer than {SOURCE_BYTES_MAX} bytes")));
        }
        let rewritten = rewrite(source)?;
        let parsed = regex_syntax::ParserBuilder::new().nest_limit(NEST_MAX).build().parse(&rewritten);
        let hir = parsed.map_err(|error| InvalidPattern(words(source, &error)))?;
        Ok(cost(&hir))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

fn compile(source: &str) -> Result<Regex, InvalidPattern> {
    let rewritten = rewrite(source)?;
    let built = RegexBuilder::new(&rewritten).size_limit(COMPILED_BYTES_MAX).nest_limit(NEST_MAX).build();
    built.map_err(|_| InvalidPattern(format!("expression too large: `{source}`")))
}

/// Returns the approximate number of states of the expression.
fn cost(hir: &regex_syntax::hir::Hir) -> u64 {
    use regex_syntax::hir::HirKind;
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => 2 * class.ranges().len() as u64,
        HirKind::Class(regex_syntax::hir::Class::Bytes(class)) => class.ranges().len() as u64,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min + 1).max(1);
            cost(&repetition.sub).saturating_mul(u64::from(times))
        }
        HirKind::Capture(capture) => cost(&capture.sub),
        HirKind::Concat(children) | HirKind::Alternation(children) => {
            children.iter().fold(1, |sum, child| sum.saturating_add(cost(child)))
        }
    }
}

/// Rewrites an expression for Rust.
fn rewrite(source: &str) -> Result<String, InvalidPattern> {
    let mut rewriter = Rewriter {
        rest: source,
        out: String::with_capacity(source.len() + 16),
        repeated: None,
        no_names: false,
    };
    loop {
        let before = rewriter.rest;
        let Some(c) = rewriter.next() else { return Ok(rewriter.out) };
        let repeats = match c {
            '\\' => rewriter.escape(CharClassPosition::Outside).map(|()| false)?,
            '[' => rewriter.class().map(|()| false)?,
            '(' if rewriter.rest.starts_with('?') => rewriter.group().map(|()| false)?,
            '{' => rewriter.count()?,
            '*' | '+' | '?' => {
                rewriter.out.push(c);
                true
            }
            _ => {
                rewriter.out.push(c);
                false
            }
        };
        match repeats {
            true => rewriter.repeat(before)?,
            false => rewriter.repeated = None,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum CharClassPosition {
    Outside,
    Class,
}

struct Rewriter<'s> {
    rest: &'s str,
    out: String,
    /// The input from the start of the preceding repetition on, if that repetition ends right here.
    repeated: Option<&'s str>,
    /// Whether the rest contains no `:]`, so that it need not be searched again.
    no_names: bool,
}

impl<'s> Rewriter<'s> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Rewrites the character after a backslash.
    fn escape(&mut self, position: CharClassPosition) -> Result<(), InvalidPattern> {
        let Some(c) = self.next() else {
            return Err(InvalidPattern("trailing backslash at end of expression: ``".to_owned()));
        };
        let ascii = match c {
            'd' => "0-9",
            's' => r"\t\n\f\r ",
            'w' => "0-9A-Za-z_",
            'D' => r"\x00-/:-\x{10FFFF}",
            'S' => r"\x00-\x08\x0B\x0E-\x1F!-\x{10FFFF}",
            'W' => r"\x00-/:-@\[-\^`\{-\x{10FFFF}",
            'Q' if position == CharClassPosition::Outside => return self.quoted(),
            'b' if position == CharClassPosition::Outside => {
                self.out.push_str(r"(?-u:\b)");
                return Ok(());
            }
            'C' => return Err(InvalidPattern(r"invalid escape sequence: `\C`".to_owned())),
            _ => {
                self.out.push('\\');
                self.out.push(c);
                return Ok(());
            }
        };
        match position {
            CharClassPosition::Outside => self.out.push_str(&format!("[{ascii}]")),
            CharClassPosition::Class => self.out.push_str(ascii),
        }
        Ok(())
    }

    /// Quotes the text up to `\E` or the end.
    fn quoted(&mut self) -> Result<(), InvalidPattern> {
        let (text, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
        self.out.push_str(&regex::escape(text));
        self.rest = rest;
        Ok(())
    }

    /// Rewrites a character class, in which only `]`, `-`, `\` and `[:name:]` are special.
    fn class(&mut self) -> Result<(), InvalidPattern> {
        let start = self.rest;
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let Some(c) = self.next() else {
                return Err(InvalidPattern(format!("missing closing ]: `[{start}`")));
            };
            match c {
                ']' if !first => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if self.named() => {}
                '\\' => self.escape(CharClassPosition::Class)?,
                '[' | ']' | '&' | '~' => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                // In Rust, two dashes are a difference of sets.
                '-' if self.rest.starts_with('-') => self.out.push_str(r"\-"),
                _ => self.out.push(c),
            }
            first = false;
        }
    }

    /// Copies `[:name:]` in a character class. Returns whether there was one.
    fn named(&mut self) -> bool {
        if self.no_names || !self.rest.starts_with(':') {
            return false;
        }
        let Some(at) = self.rest.find(":]") else {
            self.no_names = true;
            return false;
        };
        let (name, rest) = self.rest.split_at(at + 2);
        self.out.push('[');
        self.out.push_str(name);
        self.rest = rest;
        true
    }

    /// Checks that `(?` is followed by something Go supports.
    fn group(&mut self) -> Result<(), InvalidPattern> {
        let flags = |text: &str| {
            let end = text.find([':', ')'])?;
            text[..end].chars().all(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-')).then_some(())
        };
        let after = &self.rest[1..];
        let is_named = after.starts_with("P<")
            || after.starts_with('<') && !after.starts_with("<=") && !after.starts_with("<!");
        if is_named || flags(after).is_some() {
            self.out.push('(');
            return Ok(());
        }
        let excerpt: String = after.chars().take(if after.starts_with('<') { 2 } else { 1 }).collect();
        Err(InvalidPattern(format!("invalid or unsupported Perl syntax: `(?{excerpt}`")))
    }

    /// Copies a repetition operator, lazy or not. It must not repeat another repetition.
    fn repeat(&mut self, before: &'s str) -> Result<(), InvalidPattern> {
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
            self.out.push('?');
        }
        match self.repeated.replace(before) {
            None => Ok(()),
            Some(first) => {
                let both = &first[..first.len() - self.rest.len()];
                Err(InvalidPattern(format!("invalid nested repetition operator: `{both}`")))
            }
        }
    }

    /// Copies a repeat count of at most 1000, or escapes a brace that is not one. Returns whether it was a repeat
    /// count.
    fn count(&mut self) -> Result<bool, InvalidPattern> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != ',');
        let inner = end.filter(|end| self.rest[*end..].starts_with('}')).map_or("", |end| &self.rest[..end]);
        let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (min, max) = inner.split_once(',').unwrap_or((inner, inner));
        if !is_count(min) || !(max.is_empty() || is_count(max)) {
            self.out.push_str(r"\{");
            return Ok(false);
        }
        let times = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
        if times(min) > REPEAT_MAX || !max.is_empty() && (times(max) > REPEAT_MAX || times(max) < times(min))
        {
            return Err(InvalidPattern(format!("invalid repeat count: `{{{inner}}}`")));
        }
        self.out.push('{');
        self.out.push_str(&self.rest[..=inner.len()]);
        self.rest = &self.rest[inner.len() + 1..];
        Ok(true)
    }
}

/// Returns the error in Go's words.
fn words(source: &str, error: &regex_syntax::Error) -> String {
    use regex_syntax::ast::ErrorKind;
    let regex_syntax::Error::Parse(error) = error else { return format!("invalid expression: `{source}`") };
    let rewritten = error.pattern();
    let at = error.span().start.offset;
    let from = |offset: usize| rewritten.get(offset..).unwrap_or_default();
    match error.kind() {
        ErrorKind::GroupUnclosed => format!("missing closing ): `{source}`"),
        ErrorKind::GroupUnopened => format!("unexpected ): `{source}`"),
        ErrorKind::ClassUnclosed => format!("missing closing ]: `{}`", from(at)),
        ErrorKind::ClassRangeInvalid => {
            let excerpt = rewritten.get(at..error.span().end.offset).unwrap_or_default();
            format!("invalid character class range: `{excerpt}`")
        }
        ErrorKind::RepetitionMissing => {
            let excerpt = from(at).chars().next().map(String::from).unwrap_or_default();
            format!("missing argument to repetition operator: `{excerpt}`")
        }
        ErrorKind::EscapeUnrecognized | ErrorKind::UnsupportedBackreference => {
            let excerpt: String = from(at).chars().take(2).collect();
            format!("invalid escape sequence: `{excerpt}`")
        }
        ErrorKind::NestLimitExceeded(_) => format!("expression nests too deeply: `{source}`"),
        _ => format!("invalid expression: `{source}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_as_in_go() {
        for (source, text, expected) in [
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "abc\n", false),
            (r"^\d$", "٣", false),
            (r"^\D$", "٣", true),
            (r"^[\w-]+$", "a-b_c", true),
            (r"^\w$", "é", false),
            (r"^\W$", "é", true),
            (r"^\S$", "[", true),
            (r"\bword\b", "éword", true),
            ("^[a&&b]+$", "a&b", true),
            ("^[[a]+$", "[a", true),
            (r"^[]a]+$", "]", true),
            ("^[^]]$", "]", false),
            ("^[[:alpha:]]+$", "abc", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            ("^a{2,3}$", "aaa", true),
            ("^a{,3}$", "a{,3}", true),
            ("^{$", "{", true),
            ("(?i)^ABC$", "abc", true),
            ("^(?P<n>a)$", "a", true),
            (r"^\pL$", "é", true),
            ("^.$", "世", true),
        ] {
            assert_eq!(Pattern::new(source).is_in(text), expected, "{source} in {text}");
        }
    }

    #[test]
    fn invalid_expressions_are_refused_with_the_messages_of_go() {
        for (source, expected) in [
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("^(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("(?<=a)b", "invalid or unsupported Perl syntax: `(?<=`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("a\\", "trailing backslash at end of expression: ``"),
        ] {
            let found = Pattern::cost(source).expect_err(source).to_string();
            assert_eq!(found, format!("error parsing regexp: {expected}"));
        }
    }

    #[test]
    fn a_long_expression_is_rejected_without_parsing() {
        assert!(Pattern::cost(&"a".repeat(SOURCE_BYTES_MAX)).is_ok());
        let found = Pattern::cost(&"[[:".repeat(1_000_000)).expect_err("too long").to_string();
        assert_eq!(found, "error parsing regexp: expression is longer than 4096 bytes");
    }

    #[test]
    fn the_cost_of_an_expression_is_estimated_before_it_is_compiled() {
        let cost = |source| Pattern::cost(source).expect("an expression");
        assert!(cost("^[a-z]([-a-z0-9]*[a-z0-9])?$") < 100);
        assert!(cost("(((a{100}){100}){100}){100}") > 1_000_000);
        // Too large to compile: it matches nothing, and deciding that is cheap.
        assert!(!Pattern::new("(((a{100}){100}){100}){100}").is_in("a"));
    }
}
