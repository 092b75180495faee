//! The order of a merged list.
//!
//! Items that the patch names take the patch's order, the others keep theirs. Both sequences are then merged so that an
//! item that the patch does not name stays before the named items it was before.
//!
//! ```text
//! live  a b c d      patch names  c a      result  b c a d    (b was before c; d was before neither)
//! ```

use std::collections::HashMap;

use serde_json::Value;

use super::super::PatchError;
use super::{PATCH, unfit};
use api::meta::go;

/// Returns what identifies an item: the value of its key, or the item itself.
pub(super) fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, PatchError> {
    match key {
        None => Ok(item),
        Some(key) => match item.as_object().map(|fields| fields.get(key)) {
            Some(Some(value)) => Ok(value),
            Some(None) => {
                let item = go::print(item);
                unfit(format!("map: {item} does not contain declared merge key: {key}"))
            }
            None => {
                let found = go::type_of(item);
                unfit(format!("expected a map[string]interface {{}}, but received a {found}"))
            }
        },
    }
}

/// Orders `merged`: items in `requested` in that order, the others as in `live`.
pub(super) fn arrange(
    merged: Vec<Value>,
    requested: &[Value],
    live: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(position) = requested.iter().position(|item| key.is_some() && !item.is_object()) {
        return unfit(format!("value for key {position} is not a map"));
    }
    let (requested, live) = (positions(requested, key)?, positions(live, key)?);
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let identity = identity(&item, key)?;
        let index = live.get(identity).copied();
        match requested.get(identity) {
            Some(position) => named.push((*position, index, item)),
            None => others.push((index, item)),
        }
    }
    named.sort_by_key(|(position, _, _)| *position);
    // New items that are not in `requested` come last.
    others.sort_by_key(|(index, _)| (index.is_none(), *index));

    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, index, item) in named {
        // A new item has no position in the live list, so no other item must precede it.
        while let Some((_, other)) =
            others.next_if(|(other, _)| other.is_some() && index.is_some() && *other < index)
        {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, item)| item));
    Ok(arranged)
}

/// Returns the index of the first item with each identity.
fn positions<'v>(items: &'v [Value], key: Option<&str>) -> Result<HashMap<&'v Value, usize>, PatchError> {
    let mut positions = HashMap::with_capacity(items.len());
    for (position, item) in items.iter().enumerate() {
        positions.entry(identity(item, key)?).or_insert(position);
    }
    Ok(positions)
}

/// Checks that the order contains all items of a patch, and in the same order.
pub(super) fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in change.iter().filter(|item| item.get(PATCH).is_none()) {
        let requested = identity(item, key)?;
        loop {
            let Some(next) = rest.next() else {
                let (change, order) = (change.to_vec().into(), order.to_vec().into());
                let (change, order) = (go::print(&change), go::print(&order));
                return unfit(format!(
                    "The order in patch list:\n{change}\n doesn't match $setElementOrder list:\n{order}\n"
                ));
            };
            if identity(next, key)? == requested {
                break;
            }
        }
    }
    Ok(())
}
