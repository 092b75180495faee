//! Errors of expressions, with their positions.

use cel::ExecutionError;

/// An expression that does not compile, or that fails for the values it was evaluated with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ExpressionError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    pub message: String,
}

impl ExpressionError {
    /// Creates an error at a byte offset of the expression.
    pub(crate) fn at(text: &str, byte: usize, message: impl Into<String>) -> ExpressionError {
        let before = &text[..byte];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ExpressionError { line, column, message: message.into() }
    }

    /// Converts the first of the parser's errors.
    pub(crate) fn from_parser(errors: &cel::ParseErrors) -> ExpressionError {
        match errors.errors.first() {
            Some(error) => ExpressionError {
                line: usize::try_from(error.pos.0).unwrap_or(1).max(1),
                column: usize::try_from(error.pos.1).unwrap_or(1).max(1),
                message: error.msg.clone(),
            },
            None => ExpressionError { line: 1, column: 1, message: "not a valid CEL expression".to_owned() },
        }
    }

    /// Converts an error of the interpreter, which reports no position, but usually the name at which it failed.
    pub(crate) fn from_interpreter(text: &str, error: &ExecutionError) -> ExpressionError {
        let name = match error {
            ExecutionError::NoSuchKey(name) | ExecutionError::UndeclaredReference(name) => name.as_str(),
            ExecutionError::FunctionError { function, .. } => function,
            ExecutionError::NoSuchOverload(overload) => overload.function(),
            _ => "",
        };
        let message = match error {
            ExecutionError::NoSuchKey(name) => {
                format!("no such field {name:?}; test it with has(…) first")
            }
            other => other.to_string(),
        };
        ExpressionError::at(text, offset_of(text, name), message)
    }
}

/// Returns the byte offset at which a name first occurs as a whole word; 0 if it does not.
pub(crate) fn offset_of(text: &str, name: &str) -> usize {
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let whole =
        |start: usize| !text[..start].ends_with(in_word) && !text[start + name.len()..].starts_with(in_word);
    let mut found = text.match_indices(name).map(|(start, _)| start);
    if name.is_empty() { 0 } else { found.find(|start| whole(*start)).unwrap_or_default() }
}
