//! A Kubernetes API for any number of logical clusters.
//!
//! A request is parsed once into what it is about ([`request`], [`call`]), and answered from the store by one
//! file per verb ([`verbs`]). Kinds are rows of a catalogue; nothing here knows one from another, except where
//! an object holds others: a namespace, a logical cluster ([`special`]).
//!
//! This crate has no word for placement, mailbox or physical cluster: to it a mailbox is one more logical
//! cluster, and a syncer is one more client.

mod body;
mod call;
pub mod clusters;
mod emptying;
pub mod identity;
pub mod keys;
mod metadata;
mod negotiate;
pub mod pki;
mod publish;
mod query;
mod render;
pub mod request;
mod select;
pub mod server;
mod special;
pub mod stack;
pub mod stored;
mod verbs;
