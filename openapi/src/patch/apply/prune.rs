//! Removes fields that an applier no longer applies.
//!
//! A field is removed if the applier applied it before, no longer does, and no other manager owns it. Together with a
//! list item or a map entry, everything in it that has no owner is removed. Together with a field that only leads to
//! others, those are removed, unless they have an owner or never had one.

use serde_json::Value;

use super::applied_fields::{fields, with_ancestors};
use super::field_set::FieldSet;
use super::remove::remove;
use super::schema_type::SchemaType;

/// Removes from `merged` the fields in `before` that are not in `owned`: the fields its owner applies now and those of
/// other managers. Returns none if nothing is removed.
pub(super) fn prune(
    merged: &Value,
    before: &FieldSet<'_>,
    owned: FieldSet<'_>,
    kind: SchemaType<'_>,
) -> Option<Value> {
    if before.is_within(&owned) {
        return None;
    }
    let before = with_ancestors(before.clone(), kind);
    let all = with_ancestors(fields(merged, kind), kind);
    let without = |gone: &FieldSet<'_>| {
        let mut object = merged.clone();
        remove(&mut object, gone, kind);
        object
    };
    // First without all fields applied before; then with the owned ones; then with those that never had an owner.
    let bare = without(&before);
    let kept = with_ancestors(fields(&bare, kind), kind).union(with_ancestors(owned, kind));
    let shared = without(&all.clone().difference(&kept));
    let left = with_ancestors(fields(&shared, kind), kind);
    Some(without(&all.difference(&left).intersection(&before)))
}
