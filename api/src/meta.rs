//! What objects of every kind share: parts of their JSON, and the small languages in their fields.

pub mod conditions;
pub mod cover;
pub mod cron;
pub mod field;
pub mod go;
pub mod hash;
pub mod json_patch;
pub mod merge_patch;
pub mod metadata;
pub mod names;
pub mod net;
pub mod pointer;
pub mod quantity;
pub mod selector;
pub mod time;

pub use metadata::is_being_deleted;
