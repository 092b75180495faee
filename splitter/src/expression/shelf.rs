//! Expressions that were read, kept to be asked again.
//!
//! Reading takes some ten times as long as evaluating, and the same few expressions are asked about every object. What is kept here depends on nothing but the text, so nobody can tell that it is kept.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::{Expression, Mistake};

/// All that a fleet of any size has in use. When there are more, all are read anew, which takes less than a second.
const KEPT_MAX: usize = 2_000;

type Key = (String, &'static [&'static str]);
type Read = Arc<Result<Expression, Mistake>>;

static SHELF: LazyLock<Mutex<HashMap<Key, Read>>> = LazyLock::new(Mutex::default);

/// The expression, or what is wrong with it.
pub fn read(text: &str, variables: &'static [&'static str]) -> Read {
    // Whoever panicked with the shelf in hand left it whole: it is only ever added to or emptied.
    let shelf = || SHELF.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (text.to_owned(), variables);
    if let Some(read) = shelf().get(&key) {
        return Arc::clone(read);
    }
    // Not with the shelf in hand: a long one must not hold up the others.
    let read = Arc::new(Expression::parse(text, variables));
    let mut shelf = shelf();
    if shelf.len() >= KEPT_MAX {
        shelf.clear();
    }
    shelf.insert(key, Arc::clone(&read));
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_read_once_for_the_same_variables() {
        let first = read("1 + size(a)", &["a"]);
        assert!(Arc::ptr_eq(&first, &read("1 + size(a)", &["a"])));
        assert!(first.is_ok() && read("1 + size(a)", &["b"]).is_err());
        for number in 0..2 * KEPT_MAX {
            assert!(read(&number.to_string(), &[]).is_ok());
        }
        assert!(SHELF.lock().unwrap().len() <= KEPT_MAX);
    }
}
