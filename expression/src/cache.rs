//! A cache of compiled programs.
//!
//! Compiling takes some ten times as long as evaluating, and the same few expressions are evaluated for every object. A
//! program depends only on its text and its variables, so sharing it between tenants reveals nothing.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::{ExpressionError, Program};

/// More than a fleet uses. A full cache is cleared: compiling all programs again takes less than a second.
const MAX_PROGRAMS: usize = 2_000;

type Key = (String, &'static [&'static str]);
type Compiled = Arc<Result<Program, ExpressionError>>;

static PROGRAMS: LazyLock<Mutex<HashMap<Key, Compiled>>> = LazyLock::new(Mutex::default);

/// Like [`Program::compile`], but compiles the same text for the same variables once. Errors are cached as well.
pub fn compile_cached(text: &str, variables: &'static [&'static str]) -> Compiled {
    // A panic while the lock is held leaves the map intact: it is only ever inserted into or cleared.
    let lock = || PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (text.to_owned(), variables);
    if let Some(compiled) = lock().get(&key) {
        return Arc::clone(compiled);
    }
    // Compiled without the lock, so that a long expression does not block the others.
    let compiled = Arc::new(Program::compile(text, variables));
    let mut programs = lock();
    if programs.len() >= MAX_PROGRAMS {
        programs.clear();
    }
    programs.insert(key, Arc::clone(&compiled));
    compiled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_compiled_once_for_the_same_variables() {
        let first = compile_cached("1 + size(a)", &["a"]);
        assert!(Arc::ptr_eq(&first, &compile_cached("1 + size(a)", &["a"])));
        assert!(first.is_ok() && compile_cached("1 + size(a)", &["b"]).is_err());
        for number in 0..2 * MAX_PROGRAMS {
            assert!(compile_cached(&number.to_string(), &[]).is_ok());
        }
        assert!(PROGRAMS.lock().unwrap().len() <= MAX_PROGRAMS);
    }
}
