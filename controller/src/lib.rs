//! The runtime all of Holon's controllers share.
//!
//! Keys that know their logical cluster, informers, queues, supervised tasks, leases. So far: [`tasks`], [`queue`], [`run`].
//!
//! This crate never decides anything about users' objects. It carries keys to whoever does, again and again
//! until they say they are done.

pub mod queue;
pub mod run;
pub mod tasks;
