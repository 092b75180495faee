//! Reads and writes on the wire: forms, subresources, versions, and all logical clusters at once.

#[path = "../common/mod.rs"]
mod common;

mod across;
mod again;
mod beside;
mod forms;
mod lists;
mod parts;
mod versions;
mod websocket;
mod wire;
