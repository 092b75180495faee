//! A mailbox and a physical cluster, with a syncer between them.
//!
//! Both are whole servers in this process. Between each and the syncer is a [`server::Link`] that counts what is written
//! and can be cut. What controllers and kubelets would do below is done by the tests, by hand; `real` does the same beside
//! a real Kubernetes.

mod down;
mod faults;
mod real;
mod server;
mod up;
mod world;
