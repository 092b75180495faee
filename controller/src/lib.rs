//! The runtime of Holon's controllers.
//!
//! ```text
//!   server ──list, watch──► informer ──keys──► queue ──► run ──► reconcile ──► remote ──► server
//! ```
//!
//! Keys contain their logical cluster ([`key::Key`]). All tasks of a controller are in one supervised group
//! ([`tasks`]), and of several processes a [`lease`] elects the one that may write.
//!
//! This crate makes no decisions about users' objects. It passes keys to reconcilers until they succeed.

pub mod discovery;
#[cfg(test)]
mod fake_server;
pub mod history;
pub mod informer;
pub mod key;
pub mod kind;
pub mod lease;
pub mod queue;
pub mod remote;
pub mod repeated_lines;
pub mod run;
pub mod tasks;
