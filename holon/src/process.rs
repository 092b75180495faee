//! The process itself: its log, its memory, its file descriptors.

pub(crate) mod descriptors;
pub(crate) mod log;
pub(crate) mod memory;
