//! An ordered map of bytes with one history.
//!
//! ```text
//!   commit ──► engine ──► View ──► get, list        (a snapshot: no lock, no disk)
//!              (durable)   │
//!                          └─────► watch            (a cursor over one log: tail, then history)
//! ```
//!
//! Every write gets the next revision; every read says at which revision it is true; a watch sees every
//! change after a revision, once and in order. Three engines keep this contract ([`Store`]):
//!
//! * [`embedded`]: one process, a log on local disk. An acknowledged write survives `kill -9` and power loss.
//! * `etcd` (feature `etcd`): several equal servers share one etcd.
//! * [`memory`]: the model the others are measured against.
//!
//! Nothing here knows what the bytes mean: not Kubernetes, not objects, not logical clusters. Keys are
//! compared as bytes, values are never looked into.

pub mod backup;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
mod range;
mod store;
mod view;

pub use range::{Key, Range};
pub use store::watch::{Batch, Follow, Watch};
pub use store::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, KEY_BYTES_MAX, Listing, Page, ReadError, Revision,
    Store, VALUE_BYTES_MAX,
};
