//! What reading and writing look like on the wire: forms, parts, versions, and all logical clusters at once.

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
