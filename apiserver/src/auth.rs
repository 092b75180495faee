//! Who asks, and what they may do.

pub mod rbac;
