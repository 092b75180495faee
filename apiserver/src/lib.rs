//! A Kubernetes API for any number of logical clusters.
//!
//! A request is parsed once into what it is about ([`request`]), checked, and answered from the store; a write
//! is decoded, patched, defaulted, pruned, validated, admitted and committed. So far only the first step is
//! here.
//!
//! This crate has no word for placement, mailbox or physical cluster: to it a mailbox is one more logical
//! cluster, and a syncer is one more client.

pub mod keys;
pub mod request;
pub mod stored;
