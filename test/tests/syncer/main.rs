//! A mailbox and a physical cluster, with a syncer between them.
//!
//! Both are whole servers in this process. Between each and the syncer is a [`server::Link`] that counts what is written
//! and can be cut. What controllers and kubelets would do below is done by the tests, by hand; in `standins` a stand-in does
//! it, and in `real` a real Kubernetes.

mod backups;
mod connections;
mod credentials;
mod down;
mod faults;
mod grounds;
mod heartbeats;
mod hours;
mod killed;
mod levels;
mod life;
mod memory;
mod proxies;
mod real;
mod restarts;
mod rights;
mod server;
mod standins;
mod up;
mod world;
