//! Users' objects to and from mailbox objects.
//!
//! The splitter watches users' logical clusters and keeps the mailboxes right: it chooses targets, divides
//! replicas, rewrites objects on the way down and sums statuses on the way up. Decisions are pure functions;
//! a few controllers fetch their inputs and write their results.
//!
//! ```text
//!   what users said        where            how many, when           down                 up
//!   rules, expression ──►  targets ──────►  shares, division ──────► lower ──► mailboxes ──► summarize, raise
//!                          explain          moves, division::asks
//! ```
//!
//! It never talks to a physical cluster. All it can see and touch are logical clusters. What is here so far are the
//! decisions: values in, values out, the same answer for the same question, integers only.

pub mod division;
pub mod explain;
pub mod expression;
pub mod fleet;
pub mod hash;
pub mod lower;
pub mod moves;
pub mod pointer;
pub mod raise;
pub mod rules;
pub mod shares;
pub mod summarize;
pub mod targets;
