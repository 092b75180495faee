//! What goes away when somebody no longer applies it.
//!
//! A field goes if who applies now has applied it before, does not any more, and nobody else owns it. With an item of a
//! list or an entry of a map goes everything in it, unless somebody owns it; with a field that only leads to others go
//! those, unless they are somebody's or nobody's.

use serde_json::Value;

use super::mentioned::{fields, with_ways};
use super::remove::remove;
use super::set::Set;
use super::types::Type;

/// `merged` without what was in `before`, and is neither in what its owner applies now nor in what others own: both
/// are in `owned`. None if all of it stays.
pub(super) fn prune(merged: &Value, before: &Set<'_>, owned: Set<'_>, kind: Type<'_>) -> Option<Value> {
    if before.is_within(&owned) {
        return None;
    }
    let before = with_ways(before.clone(), kind);
    let all = with_ways(fields(merged, kind), kind);
    let without = |gone: &Set<'_>| {
        let mut object = merged.clone();
        remove(&mut object, gone, kind);
        object
    };
    // Without anything of before; then with what somebody owns; then with what nobody ever owned.
    let bare = without(&before);
    let kept = with_ways(fields(&bare, kind), kind).union(with_ways(owned, kind));
    let shared = without(&all.clone().difference(&kept));
    let left = with_ways(fields(&shared, kind), kind);
    Some(without(&all.difference(&left).intersection(&before)))
}
