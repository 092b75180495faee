//! Bounds the cost of the patterns of one definition.

use crate::schema::constraints::Pattern;

/// The remaining cost for the patterns of one definition, in states of their automata.
pub(super) struct Budget {
    left: u64,
}

impl Default for Budget {
    /// About fifty times the longest possible repetition, and thousands of usual patterns.
    fn default() -> Budget {
        Budget { left: 200_000 }
    }
}

impl Budget {
    /// Subtracts the cost of a pattern. Returns an error if it is invalid or exceeds the budget.
    pub(super) fn spend(&mut self, pattern: &str) -> Option<String> {
        match Pattern::cost(pattern) {
            Err(fault) => Some(fault.to_string()),
            Ok(cost) => match self.left.checked_sub(cost) {
                Some(left) => {
                    self.left = left;
                    None
                }
                None => Some(
                    "error parsing regexp: the patterns of this definition exceed the total size limit"
                        .to_owned(),
                ),
            },
        }
    }
}
