//! The stand-in as a process: its API server and what reaches it, faults, and the loop that reconciles.

mod executor;
pub(crate) mod faults;
mod frontend;
mod link;
mod local;
pub(crate) mod requests;
mod runner;
pub(crate) mod standin;
