//! Strategic merge patch: a merge patch in which lists can be merged, as sets or by a key.
//!
//! The schema determines the strategy of each field; a list without one is replaced. Besides plain values a patch may
//! contain directives, which are fields whose names start with a dollar sign:
//!
//! | directive | where | effect |
//! |---|---|---|
//! | `$patch: replace` | in an object | the object becomes exactly this |
//! | `$patch: replace` | as an item of a list | the list becomes exactly the other items |
//! | `$patch: delete` | in an object | the object becomes empty |
//! | `$patch: delete` | in an item of a list | the items with this key are deleted |
//! | `$retainKeys: [a, b]` | in an object | all other fields are deleted first |
//! | `$setElementOrder/<list>` | beside a list | the order of the named items |
//! | `$deleteFromPrimitiveList/<list>` | beside a list of scalars | these values are deleted |
//!
//! A null deletes a field. Kubernetes defines `$patch: merge` but rejects it. Holon does the same, with Kubernetes'
//! error texts, here and wherever a directive makes no sense.
//!
//! [`lists`] merges lists and [`order`] orders them.

mod lists;
mod order;

use std::collections::HashSet;
use std::mem::discriminant;

use serde_json::{Map, Value};

use self::lists::merge_list;
use self::order::{arrange, check_order};
use super::PatchError;
use crate::codec::typed;
use crate::schema::{Schema, Shape};
use api::meta::go;
use api::meta::merge_patch::drop_nulls;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList";

type Fields = Map<String, Value>;

/// A parsed patch.
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

    /// Returns the patch as Go prints it, for [`super::unreadable`].
    pub fn shown(&self) -> String {
        go::print(&Value::Object(self.0.clone()))
    }

    /// Applies the patch to `object`, which has the schema `schema`. Directives in places where they mean nothing stay
    /// in the result, and typed decoding reports them.
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

fn malformed(form: &str) -> PatchError {
    PatchError::Malformed(format!("invalid patch format of {form}"))
}

fn unknown_directive(word: &Value, fields: &Fields) -> PatchError {
    let (word, fields) = (go::text(word), go::print(&Value::Object(fields.clone())));
    PatchError::Unfit(format!("unknown patch type: {word} in map: {fields}"))
}

/// The strategy for a field. Below a field without a schema, the defaults apply.
#[derive(Clone, Copy, Default)]
struct Merging<'s> {
    /// The schema of the value.
    schema: Option<&'s Schema>,
    /// Whether a list is merged instead of replaced, by `key` if its items are objects.
    merges: bool,
    key: Option<&'s str>,
    /// Whether an object is replaced instead of merged.
    replaces: bool,
    /// Whether the values of a list are deleted instead of added.
    deletes: bool,
}

impl<'s> Merging<'s> {
    fn of(schema: Option<&'s Schema>, name: &str) -> Merging<'s> {
        match schema.map(|schema| &schema.shape) {
            Some(Shape::Object(object)) => match object.fields.get(name) {
                Some(field) => Merging {
                    schema: Some(&field.schema),
                    merges: field.patch_merge,
                    key: field.patch_merge_key.as_deref(),
                    replaces: field.patch_replace,
                    deletes: false,
                },
                None => Merging::default(),
            },
            Some(Shape::Map(map)) => Merging { schema: Some(&map.values), ..Merging::default() },
            _ => Merging::default(),
        }
    }

    /// Returns the strategy for a field that a directive names, which must exist.
    fn of_declared(schema: Option<&'s Schema>, name: &str) -> Result<Merging<'s>, PatchError> {
        match schema.map(|schema| (&schema.shape, schema)) {
            Some((Shape::Object(object), schema)) if !object.fields.contains_key(name) => {
                let (owner, name) = (typed::struct_name(schema), go::quote(name));
                unfit(format!("unable to find api field in struct {owner} for the json field {name}"))
            }
            Some((Shape::Map(_), _)) => {
                unfit("merging an object in json but data type is not struct, instead is: map")
            }
            _ => Ok(Merging::of(schema, name)),
        }
    }

    /// Returns the schema of the items, if the value is a list.
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
    match patch.get(PATCH) {
        None => {}
        Some(word) if word == "replace" => {
            patch.remove(PATCH);
            return Ok(patch);
        }
        Some(word) if word == "delete" => return Ok(Fields::new()),
        Some(other) => return Err(unknown_directive(other, &patch)),
    }
    retain_keys(&mut target, &mut patch)?;
    let orders = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect::<Vec<_>>();
    for directive in orders {
        merge_in_order(&mut target, &mut patch, &directive, schema)?;
    }
    for (name, change) in patch {
        if name.starts_with(DELETE_VALUES) {
            let name = directed_field(&name, DELETE_VALUES)?;
            let merging = Merging { deletes: true, ..Merging::of(schema, name) };
            merge_field(&mut target, name.to_owned(), change, merging)?;
        } else {
            let merging = Merging::of(schema, &name);
            merge_field(&mut target, name, change, merging)?;
        }
    }
    Ok(target)
}

fn merge_field(
    target: &mut Fields,
    name: String,
    change: Value,
    merging: Merging<'_>,
) -> Result<(), PatchError> {
    let merged = match (target.remove(&name), change) {
        (_, Value::Null) => None,
        (Some(Value::Object(_)), change @ Value::Object(_)) if merging.replaces => Some(change),
        (Some(Value::Object(target)), Value::Object(change)) => {
            Some(Value::Object(merge_object(target, change, merging.schema)?))
        }
        (Some(Value::Array(target)), Value::Array(change)) if merging.merges || merging.deletes => {
            Some(Value::Array(merge_list(target, change, merging)?))
        }
        (Some(Value::Array(_)), change @ Value::Array(_)) => Some(change),
        // A list that does not exist has no values to delete.
        (None, _) if merging.deletes => None,
        (Some(target), change) if merging.deletes && discriminant(&target) != discriminant(&change) => {
            Some(target)
        }
        (_, mut change) => {
            drop_nulls(&mut change);
            without_directives(change)
        }
    };
    target.extend(merged.map(|merged| (name, merged)));
    Ok(())
}

/// Returns a new value without directives and without the objects that contain them.
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

/// Returns `ports` for `$setElementOrder/ports`.
fn directed_field<'n>(name: &'n str, directive: &str) -> Result<&'n str, PatchError> {
    let form = if directive == SET_ORDER { "setElementOrder list" } else { "primitive list" };
    name.strip_prefix(directive).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| malformed(form))
}

fn retain_keys(target: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(retained) = retained else {
        return Err(malformed("retainKeys"));
    };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let retains = |name: &str| retained.contains(name);
    let is_directive = |name: &str| name.starts_with(SET_ORDER) || name.starts_with(DELETE_VALUES);
    if patch.iter().any(|(name, value)| !value.is_null() && !is_directive(name) && !retains(name)) {
        return Err(malformed("retainKeys"));
    }
    target.retain(|name, _| retains(name));
    Ok(())
}

/// Merges the list that `$setElementOrder/<list>` names, orders it, and removes both from the patch.
fn merge_in_order(
    target: &mut Fields,
    patch: &mut Fields,
    directive: &str,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    let order = list_of(patch.remove(directive))?.unwrap_or_default();
    let name = directed_field(directive, SET_ORDER)?;
    let live = list_of(target.remove(name))?;
    let change = list_of(patch.remove(name))?;
    let merging = Merging::of_declared(schema, name)?;
    check_order(change.as_deref().unwrap_or_default(), &order, merging.key)?;
    let merged = match (live.clone(), change) {
        (None, None) => return Ok(()),
        (None, Some(change)) if change.is_empty() => return unfit("no elements in any of the given slices"),
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
        Some(other) => unfit(format!("expected a []interface {{}}, but received a {}", go::type_of(&other))),
    }
}

#[cfg(test)]
mod tests;
