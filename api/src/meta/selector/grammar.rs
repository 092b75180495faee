//! The grammar of label selectors and its error texts.

use super::labels::{Operator, Requirement};
use crate::meta::{go, names};

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: Token::all(text), at: 0 }.selector()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    /// A key, a value, or the word `in` or `notin`, which are special only where an operator is expected.
    Word(&'a str),
    Symbol(&'static str),
    /// A symbol that is not part of the grammar.
    Unknown(&'a str),
    End,
}

/// Of symbols with the same start, the longest comes first.
const SYMBOLS: [&str; 8] = ["==", "=", "!=", "!", "(", ")", ",", ">"];

impl<'a> Token<'a> {
    fn all(text: &'a str) -> Vec<Token<'a>> {
        let mut tokens = Vec::new();
        let mut rest = skip_space(text);
        while !rest.is_empty() {
            let (token, length) = Token::first(rest);
            tokens.push(token);
            rest = skip_space(&rest[length..]);
        }
        tokens.push(Token::End);
        tokens
    }

    fn first(text: &'a str) -> (Token<'a>, usize) {
        let is_symbol = |c: char| "=!(),><".contains(c);
        let symbol = SYMBOLS.into_iter().chain(["<"]).find(|symbol| text.starts_with(symbol));
        if let Some(symbol) = symbol {
            return (Token::Symbol(symbol), symbol.len());
        }
        let ends_word = |c: char| is_symbol(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0');
        let length = text.find(ends_word).unwrap_or(text.len());
        match length {
            // A zero byte, at which Kubernetes' scanner ends.
            0 => (Token::Unknown(""), text.len()),
            _ => (Token::Word(&text[..length]), length),
        }
    }

    fn text(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Unknown(text) => text,
            Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\r', '\n'])
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                Token::Word(_) | Token::Symbol("!") => {}
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
            let requirement =
                self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => match self.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                },
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Symbol("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key.to_owned(),
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        let faults = names::qualified_name(&key);
        if !faults.is_empty() {
            // As in Kubernetes, the text has a place for a field, which is empty here.
            return Err(format!("<nil>: Invalid value: {}: {}", go::quote(&key), faults.join("; ")));
        }
        let ends = matches!(self.peek(), Token::End | Token::Symbol(","));
        match (absent, ends) {
            (true, _) => return Requirement::new(key, Operator::Absent, Vec::new()),
            (false, true) => return Requirement::new(key, Operator::Exists, Vec::new()),
            (false, false) => {}
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        match self.next() {
            Token::Word("in") => Ok(Operator::In),
            Token::Word("notin") => Ok(Operator::NotIn),
            Token::Symbol("=" | "==") => Ok(Operator::Equal),
            Token::Symbol("!=") => Ok(Operator::NotEqual),
            Token::Symbol(">") => Ok(Operator::GreaterThan),
            Token::Symbol("<") => Ok(Operator::LessThan),
            other => {
                let known = "in, notin, =, ==, !=, gt, lt";
                Err(format!("found '{}', expected: {known}", other.text()))
            }
        }
    }

    /// Parses the value after `=`, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                Ok(value.to_owned())
            }
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// Parses `(a,b)`. A missing value between commas or parentheses is the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        match self.peek() {
            Token::Word(_) | Token::Symbol("," | ")") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
        let mut values = Vec::new();
        loop {
            let value = match self.peek() {
                Token::Word(value) => {
                    self.next();
                    value
                }
                Token::Symbol("," | ")") => "",
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            };
            values.push(value.to_owned());
            match self.next() {
                Token::Symbol(")") => return Ok(values),
                Token::Symbol(",") => {}
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}
