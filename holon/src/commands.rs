//! The commands, one file each: the arguments, the actions and the output.

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
