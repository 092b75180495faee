//! The stand-in as a running cluster: its API server and the transports to it, faults, and the reconcile loop.

mod executor;
pub(crate) mod faults;
mod frontend;
mod link;
mod local;
pub(crate) mod requests;
mod runner;
pub(crate) mod standin;
