//! The runtime all of Holon's controllers share.
//!
//! ```text
//!   server ──list, watch──► informer ──keys──► queue ──► run ──► reconcile ──► remote ──► server
//! ```
//!
//! Keys know their logical cluster ([`informer::Key`]). All of a controller's tasks are in one supervised group
//! ([`tasks`]), and a [`lease`] elects the one of several that may write.
//!
//! This crate makes no decisions about users' objects. It passes keys to reconcilers, again and again until they succeed.

pub mod discovery;
#[cfg(test)]
mod fake_server;
pub mod informer;
pub mod kind;
pub mod lease;
pub mod queue;
pub mod remote;
pub mod run;
pub mod tasks;
