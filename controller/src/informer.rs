//! All objects of a kind on one server, kept up to date.
//!
//! ```text
//!   list, page by page ──► watch from there ──► put, gone ──► view ──► news (to a queue)
//!        ▲                    │   ▲ │ ended, or the server is unreachable: watch again from the last version
//!        └── 410, or refused ─┘   └─┘
//! ```
//!
//! A view holds objects as JSON text, which is parsed only when it is read. Objects that are not [kept](Scope::keep)
//! cost nothing.
//!
//! A view is [synced](View::synced) while it has a complete list and a working watch. When the server cannot be reached
//! it keeps its objects and the reason. An object that is missing from a later list differs from one whose deletion the
//! server reported: only the second is known to have been deleted.

mod follower;
mod object;
mod reflector;
mod view;

pub use follower::{FollowedView, Follower};
pub use object::CachedObject;
pub use reflector::follow;
pub use view::{News, Scope, View};

pub use crate::key::Key;
