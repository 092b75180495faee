//! The state of a syncer: the kinds it watches, its last sync of each object, and the desired objects on disk.

pub(crate) mod context;
pub(crate) mod directory;
pub(crate) mod downstream;
pub(crate) mod errors;
pub(crate) mod kinds;
mod waiting;
