//! Custom kinds of logical clusters, and Holon's own kinds.

mod built_in;
mod convergence;
mod deletion;
mod finalizers;
mod logical_clusters;
mod server;
mod serving;
