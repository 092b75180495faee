//! Bounds the cost of the patterns of one definition.

use crate::schema::constraints::Pattern;

/// What the patterns of one definition may cost to compile, in states of their automata.
pub(super) struct Budget {
    left: u64,
}

impl Default for Budget {
    /// About fifty times the longest repetition there can be, and thousands of the patterns there are.
    fn default() -> Budget {
        Budget { left: 200_000 }
    }
}

impl Budget {
    /// What is wrong with a pattern, if anything is.
    pub(super) fn spend(&mut self, pattern: &str) -> Option<String> {
        match Pattern::cost(pattern) {
            Err(fault) => Some(fault.to_string()),
            Ok(cost) => match self.left.checked_sub(cost) {
                Some(left) => {
                    self.left = left;
                    None
                }
                None => {
                    Some("error parsing regexp: the patterns of this definition are too large".to_owned())
                }
            },
        }
    }
}
