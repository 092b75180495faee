//! An ordered map of bytes with one history.
//!
//! ```text
//!   commit ──► engine ──► View ──► get, list        (a snapshot: no lock, no disk)
//!              (durable)   │
//!                          └─────► watch            (a cursor over one log: tail, then history)
//! ```
//!
//! Every write gets the next revision; every read returns the revision at which it is true; a watch delivers every
//! change after a revision, once and in order. Three engines implement this contract ([`Store`]):
//!
//! * [`embedded`]: one process, a log on local disk. An acknowledged write survives `kill -9` and power loss.
//! * `etcd` (feature `etcd`): several equal servers share one etcd.
//! * [`memory`]: the model with which the others are compared.
//!
//! Nothing here knows the meaning of the bytes: neither Kubernetes nor objects nor logical clusters. Keys are compared
//! as bytes, values are opaque.

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
