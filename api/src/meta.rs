//! The parts that objects of every kind have, read and written as JSON.

pub mod conditions;
pub mod cover;
pub mod cron;
pub mod go;
pub mod hash;
pub mod json_patch;
pub mod merge_patch;
pub mod metadata;
pub mod pointer;
pub mod quantity;
pub mod time;

pub use metadata::is_being_deleted;
