//! Admission: decisions about single writes that RBAC cannot make.

pub mod guard;
