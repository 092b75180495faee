//! Reconciling one object: placed objects go [`down`], their status comes [`up`], and what they create downstream is
//! [`project`]ed into the mailbox.

pub(crate) mod down;
mod events;
pub(crate) mod project;
pub(crate) mod reconcile;
pub(crate) mod up;
