//! The process itself: its log, its memory, its file descriptors, which build it is.

pub(crate) mod descriptors;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod version;
