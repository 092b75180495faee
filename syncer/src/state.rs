//! What a syncer knows: the kinds it watches, what it did to each object, and what it keeps on disk.

pub(crate) mod context;
pub(crate) mod directory;
pub(crate) mod downstream;
pub(crate) mod errors;
pub(crate) mod kinds;
mod waiting;
