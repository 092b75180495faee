//! Stored objects: their bytes, single fields, metadata, and selectors on them.

pub(crate) mod conditions;
pub(crate) mod field_scan;
pub(crate) mod metadata;
pub(crate) mod replica;
pub(crate) mod selection;
pub(crate) mod store_errors;
pub mod stored;
