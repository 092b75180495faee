//! Connections: TLS, HTTP, and the limits that hold for all requests, whatever they ask for.
//!
//! ```text
//!   accept ─► connections (by address, by tenant) ─► TLS (pki) ─► preface ─► HTTP ─► limits ─► deadline ─► handler
//! ```
//!
//! [`server`] accepts, [`connections`] chooses which connection makes room, [`limits`] how many requests run at a time;
//! both share a [`fair_pool`]. [`body`] and [`backlog`] bound the bytes that wait for a slow client.

pub(crate) mod backlog;
pub mod body;
pub(crate) mod compression;
pub(crate) mod connections;
pub(crate) mod deadline;
pub(crate) mod fair_pool;
pub(crate) mod incoming;
pub(crate) mod limits;
pub mod pki;
pub(crate) mod preface;
pub(crate) mod request_log;
pub mod server;
pub(crate) mod websocket;
