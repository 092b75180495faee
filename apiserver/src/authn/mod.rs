//! Authentication: the identity of a client.
//!
//! ```text
//!   certificate (verified by TLS) ─┐
//!   token of the static file ──────┼─► identity ─► impersonation headers ─► identity that the request acts as
//!   service account token ─────────┘
//! ```
//!
//! A [`credential`] is checked again while a watch is open.

pub mod credential;
pub mod identity;
pub(crate) mod impersonation;
pub mod service_accounts;
pub mod token_file;
