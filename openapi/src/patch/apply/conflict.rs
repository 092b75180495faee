//! Conflicts: applied fields that other managers own.
//!
//! Conflicts are computed on complete field sets. Only the message is limited: it repeats path and owner for each
//! field, which is a lot of text for a deep object with many owners.

use std::ops::ControlFlow;

use super::field_set::FieldSet;
use super::managed_fields::{ManagedFields, ManagedFieldsEntry, Operation};
use crate::meta::status::{OwnedField, Status};
use api::meta::go;

/// Maximum number of fields in the message; all of them are counted.
const REPORTED_MAX: usize = 1000;
/// Maximum size of the message, exceeded by one field at most.
const REPORTED_BYTES_MAX: usize = 64 << 10;

/// The conflicts per owner, which is formatted for the message.
pub(super) struct Conflicts<'a>(Vec<(String, FieldSet<'a>)>);

impl<'a> Conflicts<'a> {
    /// Returns the fields in `fields_to_own` that these managers own.
    pub(super) fn of(managers: &ManagedFields<'a>, fields_to_own: &FieldSet<'_>) -> Conflicts<'a> {
        let overlaps = managers.0.iter().map(|manager| (manager, manager.set.intersection(fields_to_own)));
        let overlaps = overlaps.filter(|(_, fields)| !fields.is_empty());
        Conflicts(overlaps.map(|(manager, fields)| (describe(manager), fields)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the conflicts outside of `fields`.
    pub(super) fn without(self, fields: &FieldSet<'_>) -> Conflicts<'a> {
        let left = self.0.into_iter().map(|(owner, owned)| (owner, owned.difference(fields)));
        Conflicts(left.filter(|(_, owned)| !owned.is_empty()).collect())
    }

    /// Returns the Status for the client.
    pub(super) fn status(&self) -> Status {
        let count = self.0.iter().map(|(_, fields)| fields.count()).sum();
        Status::apply_conflict(&self.reported(), count)
    }

    fn reported(&self) -> Vec<OwnedField> {
        let mut reported = Vec::new();
        let mut bytes = 0;
        for (owner, fields) in &self.0 {
            let flow = fields.each_path(&mut |path| {
                bytes += path.len() + owner.len();
                reported.push(OwnedField { path: path.to_owned(), owner: owner.clone() });
                match reported.len() >= REPORTED_MAX || bytes >= REPORTED_BYTES_MAX {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            if flow.is_break() {
                break;
            }
        }
        reported
    }
}

fn describe(owner: &ManagedFieldsEntry<'_>) -> String {
    let mut text = go::quote(&owner.name);
    if !owner.subresource.is_empty() {
        text += &format!(" with subresource {}", go::quote(&owner.subresource));
    }
    if owner.operation == Operation::Update {
        text += &format!(" using {}", owner.api_version);
    }
    text
}
