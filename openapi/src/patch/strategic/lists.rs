//! Merges lists: scalars as a set, objects by their merge key.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use serde_json::Value;

use super::super::PatchError;
use super::order::{arrange, identity};
use super::{Merging, PATCH, merge_object, unfit, unknown_directive};
use crate::schema::Schema;
use api::meta::go;

pub(super) fn merge_list(
    live: Vec<Value>,
    change: Vec<Value>,
    merging: Merging<'_>,
) -> Result<Vec<Value>, PatchError> {
    let Some(example) = same_kind(&live, &change)? else {
        return Ok(live);
    };
    match (example.is_object(), merging.key) {
        // A list of objects is merged even if the directive deletes: only scalars can be deleted by their values.
        (true, Some(key)) => merge_keyed(live, change, key, merging.items()),
        (true, None) => unfit("cannot merge lists without merge key for struct"),
        (false, _) if merging.deletes => {
            let gone: HashSet<Value> = change.into_iter().collect();
            Ok(live.into_iter().filter(|item| !gone.contains(item)).collect())
        }
        (false, key) => {
            let mut seen = HashSet::new();
            let both = live.iter().chain(&change).filter(|item| seen.insert(*item)).cloned().collect();
            arrange(both, &change, &live, key)
        }
    }
}

/// Returns an example of the items; none if there are no items. All items must be of the same kind.
fn same_kind<'v>(live: &'v [Value], change: &'v [Value]) -> Result<Option<&'v Value>, PatchError> {
    let mut items = live.iter().chain(change);
    let Some(first) = items.next() else {
        return Ok(None);
    };
    if first.is_array() {
        return unfit("lists of lists are not supported");
    }
    if first.is_null() || items.any(|item| discriminant(item) != discriminant(first)) {
        let both = go::print(&Value::Array(vec![live.to_vec().into(), change.to_vec().into()]));
        return unfit(format!("list element types are not identical: {both}"));
    }
    Ok(Some(first))
}

fn merge_keyed(
    mut live: Vec<Value>,
    change: Vec<Value>,
    key: &str,
    items: Option<&Schema>,
) -> Result<Vec<Value>, PatchError> {
    let mut plain = Vec::with_capacity(change.len());
    let mut gone = HashSet::new();
    let mut replaces = false;
    for item in change {
        let Value::Object(fields) = &item else {
            return unfit(format!(
                "expected a map[string]interface {{}}, but received a {}",
                go::type_of(&item)
            ));
        };
        match fields.get(PATCH) {
            None => plain.push(item),
            Some(word) if word == "replace" => replaces = true,
            Some(word) if word == "delete" => {
                gone.insert(identity(&item, Some(key))?.clone());
            }
            Some(word) if word == "merge" => {
                return unfit("merging lists cannot yet be specified in the patch");
            }
            Some(other) => return Err(unknown_directive(other, fields)),
        }
    }
    if !gone.is_empty() {
        live.retain(|item| item.get(key).is_none_or(|found| !gone.contains(found)));
    }
    match replaces {
        true => arrange(plain, &[], &[], Some(key)),
        false => arrange(merge_items(&live, &plain, key, items)?, &plain, &live, Some(key)),
    }
}

/// Merges each item into the one with the same key, or appends it if there is none.
fn merge_items(
    live: &[Value],
    change: &[Value],
    key: &str,
    items: Option<&Schema>,
) -> Result<Vec<Value>, PatchError> {
    let mut merged = live.to_vec();
    let mut position_of: HashMap<Value, usize> = HashMap::new();
    for (position, item) in merged.iter().enumerate() {
        if let Some(found) = item.get(key) {
            position_of.entry(found.clone()).or_insert(position);
        }
    }
    for item in change {
        let identity = identity(item, Some(key))?;
        match position_of.get(identity) {
            None => {
                position_of.insert(identity.clone(), merged.len());
                merged.push(item.clone());
            }
            Some(position) => {
                let (Value::Object(target), Value::Object(change)) = (merged[*position].take(), item.clone())
                else {
                    return unfit(format!("value for key {position} is not a map"));
                };
                merged[*position] = Value::Object(merge_object(target, change, items)?);
            }
        }
    }
    Ok(merged)
}
