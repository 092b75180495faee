//! Responses: objects in the form and encoding that a client accepts.
//!
//! ```text
//!   stored objects ─► render (JSON, YAML, protobuf; whole, table, metadata) ─► encoding (indented, compressed)
//!   list_reader ────► list_stream ──────────────────────────────────────────────┘
//! ```

pub(crate) mod encoding;
pub(crate) mod list_reader;
pub(crate) mod list_stream;
pub(crate) mod pretty;
pub(crate) mod render;
