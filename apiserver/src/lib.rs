//! A Kubernetes API for any number of logical clusters.
//!
//! A request is parsed once into a call, checked, and answered from the store; a write is decoded, patched,
//! defaulted, pruned, validated, admitted and committed.
//!
//! This crate has no word for placement, mailbox or physical cluster: to it a mailbox is one more logical
//! cluster, and a syncer is one more client.
