//! Everything around the verbs, as bytes on the wire: authentication, and the forms of responses.

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod data_dir;
mod forms;
mod identities;
mod operations;
mod reviews;
mod together;
