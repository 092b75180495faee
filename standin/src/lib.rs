//! A stand-in: a complete simulated physical cluster in this process, for tests and for `holon dev`.
//!
//! ```text
//!   clients ─► link ─► frontend ─► Holon's own API server ─► a store
//!              cut,    delays,          ▲          │
//!              silent  errors           │ writes   ▼ watch
//!                               simulated controllers, scheduler, kubelets ◄─ clock
//! ```
//!
//! The API server is Holon's own: it serves one logical cluster without a path prefix, so to clients it is a Kubernetes
//! cluster. The other components of a cluster (workload controllers, a scheduler, kubelets) are simulated: Deployments
//! get ReplicaSets, ReplicaSets get Pods, the scheduler binds Pods to nodes with enough free resources, and kubelets
//! report them ready after a delay. The simulated components write the statuses, Events and log lines that real ones
//! do, so `kubectl rollout status`, `wait`, `describe` and `logs` work. No container ever runs.
//!
//! Failures are injected: by annotations of a pod template (see [`Delays`]), by [`Faults`] between a stand-in and its
//! clients, by freezing its controllers or killing the whole stand-in. Time comes from a [`Clock`], which a test can
//! stop and advance.
//!
//! Controllers are pure functions (`controllers`, `node`): the `cache` in, a `plan` out. Only `cluster::runner` watches
//! and writes. A stand-in without changes uses memory and no processor time.

mod cache;
mod clock;
mod cluster;
mod containers;
mod controllers;
mod identity;
mod node;
mod objects;
mod plan;

pub use clock::Clock;
pub use cluster::faults::{Faults, Link, ResponseFault};
pub use cluster::requests::RequestCounts;
pub use cluster::standin::{Options, Standin, StartError};
pub use node::delays::Delays;
pub use node::nodes::NodeShape;
