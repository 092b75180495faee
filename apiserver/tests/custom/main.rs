//! Custom kinds of logical clusters, and Holon's own kinds.

mod elsewhere;
mod finalizers;
mod leaving;
mod own;
mod resting;
mod server;
mod serving;
