//! Users' objects to and from mailbox objects.
//!
//! The splitter watches users' logical clusters and keeps the mailboxes right: it chooses targets, divides
//! replicas, rewrites objects on the way down and sums statuses on the way up. Decisions are pure functions;
//! a few controllers fetch their inputs and write their results.
//!
//! ```text
//!   what users said        where            how many, when           down                 up
//!   rules ──────────────►  targets ──────►  shares, division ──────► lower ──► mailboxes ──► summarize, raise
//!                          explain          moves, division::asks
//! ```
//!
//! It never talks to a physical cluster. All it can see and touch are logical clusters. Decisions are values in, values
//! out, the same answer for the same question, integers only.

mod ailing;
mod book;
mod case;
mod copies;
mod current;
mod decide;
mod definitions;
pub mod division;
mod ended;
mod estimate;
pub mod explain;
pub mod fleet;
pub mod flow;
mod follow;
mod gather;
mod grants;
mod headcount;
pub mod home;
mod ledger;
mod look;
pub mod lower;
mod members;
pub mod moves;
mod namespaces;
mod notice;
pub mod pod_security;
pub mod policies;
pub mod raise;
mod record;
pub mod rules;
mod scaled;
pub mod shares;
mod spread;
pub mod summarize;
pub mod targets;
mod tree;
mod trim;
pub mod world;
