//! Strategic merge patch: a merge patch that knows which lists are sets and which of their fields is the key.
//!
//! The schema says it field by field; a list without a strategy is replaced. Besides plain values a patch may carry
//! directives, which are fields whose names start with a dollar sign:
//!
//! | directive | where | what |
//! |---|---|---|
//! | `$patch: replace` | in an object | the object becomes exactly this |
//! | `$patch: replace` | as an item of a list | the list becomes exactly the other items |
//! | `$patch: delete` | in an object | the object becomes empty |
//! | `$patch: delete` | in an item of a list | the items with this key go away |
//! | `$retainKeys: [a, b]` | in an object | all other fields go away first |
//! | `$setElementOrder/<list>` | beside a list | the order of the items that are named |
//! | `$deleteFromPrimitiveList/<list>` | beside a list of plain values | these values go away |
//!
//! A null deletes a field. Kubernetes knows `$patch: merge` as a word and refuses it; so do we.

mod order;

use serde_json::{Map, Value};

use self::order::{arrange, check_order};
use super::PatchError;
use super::merge::drop_nulls;
use crate::go;
use crate::schema::{Schema, Shape};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList";

type Fields = Map<String, Value>;

/// A patch that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct StrategicPatch(Fields);

impl StrategicPatch {
    pub fn parse(patch: Value) -> Result<StrategicPatch, PatchError> {
        let found = match patch {
            Value::Object(fields) => return Ok(StrategicPatch(fields)),
            Value::Null => return Ok(StrategicPatch(Fields::new())),
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
        };
        let into = "Go value of type map[string]interface {}";
        Err(PatchError::Malformed(format!("json: cannot unmarshal {found} into {into}")))
    }

    /// As Go prints it, for [`super::unreadable`].
    pub fn shown(&self) -> String {
        go::print(&Value::Object(self.0.clone()))
    }

    /// What `object`, which `schema` describes, becomes. Directives that stand where there is nothing to direct are left
    /// in the result, for whoever reads it along the schema to find.
    pub fn apply(self, object: Value, schema: &Schema) -> Result<Value, PatchError> {
        let fields = match object {
            Value::Object(fields) => fields,
            _ => Fields::new(),
        };
        merge_object(fields, self.0, Some(schema)).map(Value::Object)
    }
}

fn unfit<T>(why: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::Unfit(why.into()))
}

fn malformed(what: &str) -> PatchError {
    PatchError::Malformed(format!("invalid patch format of {what}"))
}

/// How the schema wants a field to be merged. Nothing is known below a field nobody described.
#[derive(Clone, Copy, Default)]
struct Merging<'s> {
    /// Of the value.
    schema: Option<&'s Schema>,
    /// A list is merged rather than replaced, by this key if its items are objects.
    merges: bool,
    key: Option<&'s str>,
}

impl<'s> Merging<'s> {
    fn of(schema: Option<&'s Schema>, name: &str) -> Merging<'s> {
        match schema.map(|schema| &schema.shape) {
            Some(Shape::Object(object)) => match object.fields.get(name) {
                Some(field) => Merging {
                    schema: Some(&field.schema),
                    merges: field.patch_merge,
                    key: field.patch_merge_key.as_deref(),
                },
                None => Merging::default(),
            },
            Some(Shape::Map(map)) => Merging { schema: Some(&map.values), ..Merging::default() },
            _ => Merging::default(),
        }
    }

    /// Of the items, if the value is a list.
    fn items(self) -> Option<&'s Schema> {
        match self.schema.map(|schema| &schema.shape) {
            Some(Shape::List(list)) => Some(&list.items),
            _ => None,
        }
    }
}

fn merge_object(
    mut target: Fields,
    mut patch: Fields,
    schema: Option<&Schema>,
) -> Result<Fields, PatchError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(word)) if word == "replace" => return Ok(patch),
        Some(Value::String(word)) if word == "delete" => return Ok(Fields::new()),
        Some(other) => return unfit(format!("unknown patch type: {}", go::print(&other))),
    }
    retain_keys(&mut target, &mut patch)?;
    let orders = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect::<Vec<_>>();
    for directive in orders {
        merge_in_order(&mut target, &mut patch, &directive, schema)?;
    }
    for (name, change) in patch {
        if name.starts_with(DELETE_VALUES) {
            delete_values(&mut target, directed_field(&name, DELETE_VALUES)?, change)?;
        } else {
            merge_field(&mut target, name, change, schema)?;
        }
    }
    Ok(target)
}

fn merge_field(
    target: &mut Fields,
    name: String,
    change: Value,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    if change.is_null() {
        target.remove(&name);
        return Ok(());
    }
    let merging = Merging::of(schema, &name);
    let merged = match (target.remove(&name), change) {
        (Some(Value::Object(target)), Value::Object(change)) => {
            Value::Object(merge_object(target, change, merging.schema)?)
        }
        (Some(Value::Array(target)), Value::Array(change)) if merging.merges => {
            Value::Array(merge_list(target, change, merging)?)
        }
        (Some(Value::Array(_)), change @ Value::Array(_)) => change,
        (_, mut change) => {
            drop_nulls(&mut change);
            match without_directives(change) {
                Some(change) => change,
                None => return Ok(()),
            }
        }
    };
    target.insert(name, merged);
    Ok(())
}

/// What remains of a value that is merged into nothing: no directives, and none of what they stand in.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let kept =
                fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

// --- Directives ---

/// `ports` of `$setElementOrder/ports`.
fn directed_field<'n>(name: &'n str, directive: &str) -> Result<&'n str, PatchError> {
    let what = if directive == SET_ORDER { "setElementOrder list" } else { "primitive list" };
    name.strip_prefix(directive).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| malformed(what))
}

fn retain_keys(target: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(retained) = retained else {
        return Err(malformed("retainKeys"));
    };
    let retains = |name: &str| retained.iter().any(|kept| kept.as_str() == Some(name));
    let is_directive = |name: &str| name.starts_with(SET_ORDER) || name.starts_with(DELETE_VALUES);
    if patch.iter().any(|(name, value)| !value.is_null() && !is_directive(name) && !retains(name)) {
        return Err(malformed("retainKeys"));
    }
    target.retain(|name, _| retains(name));
    Ok(())
}

fn delete_values(target: &mut Fields, name: &str, values: Value) -> Result<(), PatchError> {
    match (target.get_mut(name), values) {
        (_, Value::Null) => drop(target.remove(name)),
        (Some(Value::Array(items)), Value::Array(values)) => {
            same_kind(items.iter().chain(&values))?;
            let values: std::collections::HashSet<Value> = values.into_iter().collect();
            items.retain(|item| !values.contains(item));
        }
        _ => {}
    }
    Ok(())
}

/// Merges the list that `$setElementOrder/<list>` names and puts it in order, so that nothing of it is left to do.
fn merge_in_order(
    target: &mut Fields,
    patch: &mut Fields,
    directive: &str,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    let name = directed_field(directive, SET_ORDER)?;
    let order = list_of(patch.remove(directive))?.unwrap_or_default();
    let merging = Merging::of(schema, name);
    let live = list_of(target.remove(name))?;
    let change = list_of(patch.remove(name))?;
    check_order(change.as_deref().unwrap_or_default(), &order, merging.key)?;
    let merged = match (live.clone(), change) {
        (None, None) => return Ok(()),
        (Some(live), None) => live,
        (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
        (Some(live), Some(change)) if merging.merges => merge_list(live, change, merging)?,
        (Some(_), Some(change)) => change,
    };
    let arranged = arrange(merged, &order, &live.unwrap_or_default(), merging.key)?;
    target.insert(name.to_owned(), Value::Array(arranged));
    Ok(())
}

fn list_of(value: Option<Value>) -> Result<Option<Vec<Value>>, PatchError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(malformed("setElementOrder list")),
    }
}

// --- Lists ---

fn merge_list(live: Vec<Value>, change: Vec<Value>, merging: Merging<'_>) -> Result<Vec<Value>, PatchError> {
    match (same_kind(live.iter().chain(&change))?, merging.key) {
        (None, _) => Ok(live),
        (Some(Value::Object(_)), Some(key)) => merge_keyed(live, change, key, merging.items()),
        (Some(Value::Object(_)), None) => unfit("cannot merge lists without merge key"),
        (Some(_), Some(_)) => unfit("a list of objects cannot have plain values"),
        (Some(_), None) => {
            let mut seen = std::collections::HashSet::new();
            let both = live.iter().chain(&change).filter(|item| seen.insert(*item)).cloned().collect();
            arrange(both, &change, &live, None)
        }
    }
}

/// An example of what the items are; none if there are no items.
fn same_kind<'v>(mut items: impl Iterator<Item = &'v Value>) -> Result<Option<&'v Value>, PatchError> {
    let Some(first) = items.next() else {
        return Ok(None);
    };
    if first.is_array() {
        return unfit("lists of lists are not supported");
    }
    let kind = std::mem::discriminant(first);
    match first.is_null() || items.any(|item| std::mem::discriminant(item) != kind) {
        true => unfit("list element types are not identical"),
        false => Ok(Some(first)),
    }
}

fn merge_keyed(
    mut live: Vec<Value>,
    change: Vec<Value>,
    key: &str,
    items: Option<&Schema>,
) -> Result<Vec<Value>, PatchError> {
    let mut plain = Vec::with_capacity(change.len());
    let mut replaces = false;
    for item in change {
        match item.get(PATCH).map(|word| word.as_str().unwrap_or_default()) {
            None => plain.push(item),
            Some("replace") => replaces = true,
            Some("delete") => {
                let gone = order::identity(&item, Some(key))?;
                live.retain(|item| item.get(key) != Some(gone));
            }
            Some("merge") => return unfit("merging lists cannot yet be specified in the patch"),
            Some(other) => return unfit(format!("unknown patch type: {other}")),
        }
    }
    if replaces {
        return Ok(plain);
    }
    let mut merged = live.clone();
    let mut position_of: std::collections::HashMap<Value, usize> = std::collections::HashMap::new();
    for (position, item) in merged.iter().enumerate() {
        if let Some(found) = item.get(key) {
            position_of.entry(found.clone()).or_insert(position);
        }
    }
    for item in &plain {
        let identity = order::identity(item, Some(key))?;
        match position_of.get(identity) {
            None => {
                position_of.insert(identity.clone(), merged.len());
                merged.push(item.clone());
            }
            Some(position) => {
                let (Value::Object(target), Value::Object(change)) = (merged[*position].take(), item.clone())
                else {
                    return unfit("list element types are not identical");
                };
                merged[*position] = Value::Object(merge_object(target, change, items)?);
            }
        }
    }
    arrange(merged, &plain, &live, Some(key))
}

#[cfg(test)]
mod tests;
