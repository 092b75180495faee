//! A Kubernetes API for any number of logical clusters.
//!
//! A request is parsed once into what it is about ([`request`], [`call`]), and answered from the store by one
//! file per verb ([`verbs`]). Kinds are rows of a catalogue; nothing here knows one from another, except where
//! an object holds others: a namespace, a logical cluster ([`special`]).
//!
//! This crate has no word for placement, mailbox or physical cluster: to it a mailbox is one more logical
//! cluster, and a syncer is one more client.

mod addresses;
mod admit;
mod asked;
pub mod audit;
pub mod auth;
pub mod authorize;
pub mod births;
mod body;
mod call;
pub mod clusters;
mod compress;
mod conditions;
pub mod connect;
pub mod controllers;
mod deadline;
mod deletion;
mod fair;
mod findings;
pub mod guard;
mod health;
mod holders;
pub mod identity;
pub mod keys;
pub mod kinds;
mod limits;
pub mod local;
mod metadata;
mod metrics;
mod negotiate;
pub mod newborn;
mod options;
mod owners;
mod parts;
mod pieces;
pub mod pki;
mod pretty;
mod publish;
mod query;
pub mod quotas;
mod render;
mod replica;
pub mod request;
mod reviews;
mod scale;
mod select;
pub mod server;
mod skim;
mod special;
pub mod stack;
pub mod stored;
pub mod tokens;
mod trace;
mod verbs;
mod version;
mod wants;
mod warnings;
