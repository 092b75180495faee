//! Workloads in a stand-in, as a client sees them.

mod access;
mod chaos;
mod common;
mod failing;
mod faults;
mod workloads;
