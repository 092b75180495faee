//! Streams to running pods: `kubectl logs`, `exec`, `attach`, `port-forward`, `cp`, `debug`, `proxy` and `top`.
//!
//! ```text
//!   client ─► Holon ─► Tunnels: by mailbox ─► ClusterConnection ─┬─ push: a client made from the kubeconfig ─► physical cluster
//!                                                                └─ pull: DialedConnection ─► Agent ─────────► physical cluster
//!                                                                         (HTTP/2)            (in the syncer)
//! ```
//!
//! Requests reach the physical cluster with the identity of its syncer; no header that states the client's identity passes
//! ([`protocol`]). Once a connection is upgraded, its bytes are copied and not read ([`splice`](mod@splice)).
//!
//! This crate carries requests. Its callers authorize them and find the physical cluster of the pod.

mod agent;
mod connection;
mod dialed;
pub mod protocol;
mod registry;
mod splice;

use http::HeaderMap;

pub use agent::Agent;
pub use connection::{ClusterConnection, StreamPermit, TunnelError};
pub use dialed::{DialedConnection, ResponseBody};
pub use registry::{OpenTunnel, Tunnels};
pub use splice::splice;

/// Adds the headers of `from` that pass a filter to `to`.
pub fn copy_headers(from: &HeaderMap, to: &mut HeaderMap, passes: impl Fn(&str) -> bool) {
    for (name, value) in from.iter().filter(|(name, _)| passes(name.as_str())) {
        to.append(name, value.clone());
    }
}
