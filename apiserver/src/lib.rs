//! A Kubernetes API for any number of logical clusters.
//!
//! A request is parsed once ([`request`]), authenticated and authorized ([`authn`], [`authz`]), and answered from the
//! store by one file per verb ([`endpoints`]). Kinds are data, in a catalogue ([`kinds`]); the few kinds that need code
//! have it in `registry::strategy`.
//!
//! Folders import only folders to their left:
//!
//! ```text
//!   keys ◄ request ◄ objects ◄ rbac ◄ authn ◄ http ◄ clusters ◄ kinds ◄ quota ◄ authz ◄ admission ◄ audit
//!        ◄ response ◄ registry ◄ endpoints ◄ controllers ◄ stack ◄ local, history
//! ```
//!
//! This crate does not know placement, mailboxes or physical clusters: to it a mailbox is a logical cluster and a
//! syncer is a client.

pub mod admission;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod clusters;
pub mod controllers;
pub mod endpoints;
pub mod history;
pub mod http;
pub mod keys;
pub mod kinds;
pub mod local;
pub mod objects;
pub mod quota;
pub mod rbac;
mod registry;
pub mod request;
mod response;
pub mod stack;
