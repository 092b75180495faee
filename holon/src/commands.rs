//! The commands, a file each: their arguments, what they do, and what they print.

pub(crate) mod ca;
pub(crate) mod dev;
pub(crate) mod explain;
pub(crate) mod join;
pub(crate) mod kubeconfig;
pub(crate) mod lc;
pub(crate) mod leave;
pub(crate) mod start;
pub(crate) mod store;
pub(crate) mod syncer;
