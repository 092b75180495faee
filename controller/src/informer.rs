//! All objects of a kind on one server, kept up to date.
//!
//! ```text
//!   list, page by page ──► watch from there ──► put, gone ──► view ──► news (to a queue)
//!        ▲                    │   ▲ │ ended, or the server is away: from where we were
//!        └── 410, or refused ─┘   └─┘
//! ```
//!
//! A view is text: an object that is not looked at costs its bytes. What is not [kept](Scope::keep) costs nothing.
//!
//! A view that is [synced](View::synced) was read whole and is being followed. When the server cannot be reached it stays
//! as it was and says why it is not synced. An object that is missing from a later list is told apart from one whose
//! deletion the server reported: only the second is known to have been deleted.

mod follow;
mod view;

pub use follow::{follow, follow_while_served};
pub use view::{Key, News, Object, Scope, Trim, View};
