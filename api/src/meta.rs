//! What objects of every kind have in common, for whoever reads and writes them as JSON.

pub mod conditions;
pub mod cover;
pub mod cron;
pub mod hash;
pub mod metadata;
pub mod pointer;
pub mod quantity;
pub mod time;

pub use metadata::is_being_deleted;
