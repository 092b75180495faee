//! CEL expressions: compiled once, evaluated often, within a cost limit.
//!
//! ```text
//!   text ──► compile (length, nesting, undeclared variables) ──► Program ──► evaluate(variables) ──► JSON value
//!                                                                            cost limit, no clock, no I/O
//! ```
//!
//! [`Program::compile`] takes the names of the variables an expression may refer to, so a misspelt variable is an error
//! when the expression is written and not when the first object is evaluated. Every [`ExpressionError`] carries line
//! and column, both from 1. [`compile_cached`] compiles the same text for the same variables only once.
//!
//! ```
//! use expression::Program;
//! use serde_json::json;
//!
//! let program = Program::compile("object.spec.replicas * 2", &["object"])?;
//! let object = json!({ "spec": { "replicas": 3 } });
//! assert_eq!(program.evaluate(&[("object", &object)])?, json!(6));
//! # Ok::<(), expression::ExpressionError>(())
//! ```
//!
//! Besides CEL's own functions and macros there are `sum`, `min`, `max`, `all` and `any` of a list.
//!
//! Tenants write expressions, and the expressions of all tenants are evaluated in one process. So an expression is
//! bounded in length and nesting when it is compiled ([`MAX_EXPRESSION_BYTES`]), and in cost when it is evaluated
//! ([`COST_LIMIT`]). No input makes it panic.

mod cache;
mod cost;
mod error;
mod lists;
mod program;
mod references;

pub use cache::compile_cached;
pub use cost::COST_LIMIT;
pub use error::ExpressionError;
pub use program::{MAX_EXPRESSION_BYTES, Program};
