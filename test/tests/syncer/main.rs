//! A mailbox, a physical cluster, and a syncer between them.
//!
//! Both are complete servers in this process. Between each and the syncer is a [`server::TestLink`] that counts writes
//! and can be cut. The tests themselves act as the controllers and kubelets downstream; in `standins` a stand-in does,
//! and in `real` a real Kubernetes.

mod connections;
mod down;
mod faults;
mod heartbeats;
mod joined;
mod levels;
mod life;
mod memory;
mod real;
mod rights;
mod server;
mod setup;
mod standins;
mod up;
