//! Label selectors and field selectors.
//!
//! A selector comes from the query of a request, or from `matchLabels` and `matchExpressions` inside an object. It is
//! parsed once; matching allocates nothing.

mod fields;
mod grammar;
mod labels;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{LabelSelector, Operator, Requirement};

/// Why a selector is invalid, as the client sees it with status 400.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
