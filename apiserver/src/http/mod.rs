//! Connections: TLS, HTTP, and the limits that apply to all requests.
//!
//! ```text
//!   accept ─► connections (by address, by tenant) ─► TLS (pki) ─► preface ─► HTTP ─► limits ─► deadline ─► handler
//! ```
//!
//! [`server`] accepts connections, [`connections`] chooses which one is evicted, and [`limits`] bounds concurrent
//! requests; the latter two use a [`fair_pool`]. [`body`] and [`backlog`] bound the bytes that wait for a slow client.

pub(crate) mod backlog;
pub mod body;
pub(crate) mod compression;
pub(crate) mod connections;
pub(crate) mod deadline;
pub(crate) mod fair_pool;
pub mod incoming;
pub(crate) mod limits;
pub mod pki;
pub(crate) mod preface;
pub(crate) mod request_log;
pub mod server;
pub(crate) mod websocket;
