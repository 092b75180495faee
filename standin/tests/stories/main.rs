//! What becomes of workloads in a stand-in, as a client sees it.

mod access;
mod chaos;
mod common;
mod failing;
mod faults;
mod workloads;
