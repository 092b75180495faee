//! Fields of others that somebody applies.

use super::managers::{Manager, Operation};
use super::set::Set;
use crate::go;
use crate::status::OwnedField;

/// These fields of an owner, as messages show both.
pub(super) fn owned(owner: &Manager<'_>, fields: &Set<'_>) -> Vec<OwnedField> {
    let mut shown = go::quote(&owner.name);
    if !owner.subresource.is_empty() {
        shown += &format!(" with subresource {}", go::quote(&owner.subresource));
    }
    if owner.operation == Operation::Update {
        shown += &format!(" using {}", owner.api_version);
    }
    fields.paths().into_iter().map(|path| OwnedField { path, owner: shown.clone() }).collect()
}
