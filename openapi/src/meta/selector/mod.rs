//! Which objects a client asks for: selectors on labels and on fields.
//!
//! A selector arrives as text in a query, or as `matchLabels` and `matchExpressions` inside an object. It is parsed
//! once; matching allocates nothing.

mod fields;
mod grammar;
mod labels;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{LabelSelector, Operator, Requirement};

/// Why a selector is not one, in the words a client is told with status 400.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
