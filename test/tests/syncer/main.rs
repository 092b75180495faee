//! A mailbox and a physical cluster, with a syncer between them.
//!
//! Both are whole servers in this process. Between each and the syncer is a [`server::Link`] that counts what is written
//! and can be cut. What controllers and kubelets would do below is done by the tests, by hand; in `standins` a stand-in does
//! it, and in `real` a real Kubernetes.

mod down;
mod faults;
mod real;
mod server;
mod standins;
mod up;
mod world;
