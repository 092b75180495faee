//! Removes fields that an applier no longer applies.
//!
//! A field is removed if the applier applied it before, does not any more, and no other manager owns it. With an item of a
//! list or an entry of a map goes everything in it that has no owner; with a field that only leads to others go
//! those, unless they have an owner or never had one.

use serde_json::Value;

use super::applied_fields::{fields, with_ways};
use super::field_set::FieldSet;
use super::remove::remove;
use super::schema_type::SchemaType;

/// `merged` without what was in `before`, and is neither in what its owner applies now nor in what others own: both
/// are in `owned`. None if all of it stays.
pub(super) fn prune(
    merged: &Value,
    before: &FieldSet<'_>,
    owned: FieldSet<'_>,
    kind: SchemaType<'_>,
) -> Option<Value> {
    if before.is_within(&owned) {
        return None;
    }
    let before = with_ways(before.clone(), kind);
    let all = with_ways(fields(merged, kind), kind);
    let without = |gone: &FieldSet<'_>| {
        let mut object = merged.clone();
        remove(&mut object, gone, kind);
        object
    };
    // First without anything applied before; then with fields that have owners; then with fields that never had one.
    let bare = without(&before);
    let kept = with_ways(fields(&bare, kind), kind).union(with_ways(owned, kind));
    let shared = without(&all.clone().difference(&kept));
    let left = with_ways(fields(&shared, kind), kind);
    Some(without(&all.difference(&left).intersection(&before)))
}
