//! Reads and writes on the wire: forms, subresources, versions, and all logical clusters at once.

#[path = "../common/mod.rs"]
mod common;

mod across;
mod forms;
mod like_kubernetes;
mod lists;
mod subresources;
mod unchanged_updates;
mod versions;
mod websocket;
mod wire;
