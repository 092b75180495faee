//! Reconciles one object: a placed object is applied [`down`]stream, its status is copied [`up`], and the objects that
//! it creates downstream are [`project`]ed into the mailbox.

pub(crate) mod down;
mod events;
pub(crate) mod project;
pub(crate) mod reconcile;
pub(crate) mod up;
