//! Code that the tests and benchmarks of all crates share.
//!
//! | Module | Contents |
//! |---|---|
//! | [`peers`] | programs of other projects: etcd, a whole Kubernetes, `kubectl proxy` |
//! | [`kubectl`] | kubectl with one kubeconfig |
//! | `server` | the holon binary as a process (feature `server`) |
//! | `client` | a minimal HTTP client over TLS, and base64 (feature `server`) |
//! | [`objects`] | JSON of common objects |
//! | [`process`] | processes that end with their value |
//! | [`wait`] | waiting for a condition |
//!
//! Nothing in the product depends on this crate, and it depends on no other crate of the workspace. Tests that start the
//! holon binary pass its path: only the tests of the crate `holon` know it at compile time.

#[cfg(feature = "server")]
pub mod client;
pub mod kubectl;
pub mod objects;
pub mod peers;
pub mod process;
#[cfg(feature = "server")]
pub mod server;
pub mod wait;

#[cfg(feature = "server")]
pub use client::{Answer, Client};
pub use kubectl::Kubectl;
pub use process::Process;
#[cfg(feature = "server")]
pub use server::{End, Server};
pub use wait::until;
