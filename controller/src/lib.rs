//! The runtime all of Holon's controllers share.
//!
//! ```text
//!   server ──list, watch──► informer ──keys──► queue ──► run ──► look: read, decide, write ──► remote ──► server
//! ```
//!
//! Keys know their logical cluster ([`informer::Key`]). All of a controller's tasks are in one supervised group
//! ([`tasks`]), and where only one of several may write a [`lease`] says which.
//!
//! This crate never decides anything about users' objects. It carries keys to whoever does, again and again
//! until they say they are done.

pub mod discovery;
pub mod informer;
pub mod kind;
pub mod lease;
pub mod queue;
pub mod remote;
pub mod run;
#[cfg(test)]
mod scripted;
pub mod tasks;
