//! Which logical cluster serves what.

use std::sync::Arc;

use api::cluster::Id;

use super::Kinds;

/// Finds the kinds of a logical cluster.
#[derive(Debug, Default)]
pub struct Registry {}

impl Registry {
    /// What a logical cluster serves.
    pub(crate) fn of(&self, _: Id) -> Arc<Kinds> {
        Kinds::built_in().clone()
    }
}
