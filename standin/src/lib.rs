//! A stand-in for a physical cluster, whole and in this process: for tests, and for the first five minutes.
//!
//! ```text
//!   clients ─► link ─► door ─► Holon's own API server ─► a store
//!              cut,    slow,        ▲          │
//!              silent  errors       │ writes   ▼ history
//!                               simulated controllers, scheduler, nodes ◄─ clock
//! ```
//!
//! The API is served as for anybody: a logical cluster, reached without a path, so to clients it is a Kubernetes cluster. What
//! a real one has besides (controllers of workloads, a scheduler, kubelets) is simulated: Deployments get ReplicaSets, those
//! get Pods, which are put on nodes that have room and become ready when their time has come. They write the statuses,
//! Events and log lines that real ones do, so `kubectl rollout status`, `wait`, `describe` and `logs` tell the truth about
//! it. No container ever runs.
//!
//! What goes wrong is asked for: by annotations of a pod template ([`Pace`] has the table), by [`Faults`] between a stand-in
//! and its clients, by freezing its controllers or killing all of it. Time is a [`Clock`] that a test may hold.
//!
//! Deciding is pure (`control`, `node`, `network`, `volumes`, `budgets`: the world in, a plan out); `run` is the one place that watches
//! and writes. A stand-in in which nothing happens costs memory and nothing else.

mod budgets;
mod clock;
mod containers;
mod control;
mod counts;
mod door;
mod faults;
mod hands;
mod kind;
mod link;
mod local;
mod logs;
mod network;
mod node;
mod object;
mod plan;
mod run;
mod standin;
mod volumes;
mod world;

pub use clock::Clock;
pub use counts::Counts;
pub use faults::{Faults, Link, Trouble};
pub use node::pace::Pace;
pub use node::register::NodeShape;
pub use standin::{Options, Standin, StartError};
