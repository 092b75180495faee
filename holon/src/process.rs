//! The process itself: its log, its memory, its file descriptors and its version.

pub(crate) mod descriptors;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod version;
