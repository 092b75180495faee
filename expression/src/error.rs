//! What is wrong with an expression, and where.

use cel::ExecutionError;

/// An expression that does not compile, or that fails for the values it was evaluated with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ExpressionError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
}

impl ExpressionError {
    /// An error at a byte offset of the expression.
    pub(crate) fn at(text: &str, byte: usize, message: impl Into<String>) -> ExpressionError {
        let before = &text[..byte];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ExpressionError { line, column, message: message.into() }
    }

    /// The first of the parser's errors.
    pub(crate) fn from_parser(errors: &cel::ParseErrors) -> ExpressionError {
        match errors.errors.first() {
            Some(error) => ExpressionError {
                line: usize::try_from(error.pos.0).unwrap_or(1).max(1),
                column: usize::try_from(error.pos.1).unwrap_or(1).max(1),
                message: error.msg.clone(),
            },
            None => ExpressionError {
                line: 1,
                column: 1,
                message: "this cannot be read as an expression".to_owned(),
            },
        }
    }

    /// The interpreter does not report a position, but usually the name at which it failed.
    pub(crate) fn from_interpreter(text: &str, error: &ExecutionError) -> ExpressionError {
        let name = match error {
            ExecutionError::NoSuchKey(name) | ExecutionError::UndeclaredReference(name) => name.as_str(),
            ExecutionError::FunctionError { function, .. } => function,
            ExecutionError::NoSuchOverload(overload) => overload.function(),
            _ => "",
        };
        let message = match error {
            ExecutionError::NoSuchKey(name) => {
                format!("there is no field {name:?} here; ask first with has(…)")
            }
            other => other.to_string(),
        };
        ExpressionError::at(text, offset_of(text, name), message)
    }
}

/// The byte offset at which a name first occurs as a whole word; 0 if it does not.
pub(crate) fn offset_of(text: &str, name: &str) -> usize {
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let whole =
        |start: usize| !text[..start].ends_with(in_word) && !text[start + name.len()..].starts_with(in_word);
    let mut found = text.match_indices(name).map(|(start, _)| start);
    if name.is_empty() { 0 } else { found.find(|start| whole(*start)).unwrap_or_default() }
}
