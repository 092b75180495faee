//! The operations of a JSON patch (RFC 6902), in the dialect of Kubernetes.
//!
//! No crate is used because Kubernetes is laxer than the RFC and clients rely on it: an index may count from the end,
//! `replace` also adds a missing field, `test` treats null as absent, and a path begins at its first slash, whatever
//! precedes it.

use super::pointer::unescape;
use serde_json::Value;

use super::pointer::{self, MAX_DEPTH};

/// Maximum size of all values that `copy` operations add, as text: the largest accepted body.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of values that `move` operations move to a greater depth, where their nesting must be measured.
const MAX_MOVED_VALUES: usize = 1_000_000;

/// One operation. Its name and paths are validated when it is applied.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPatchOperation {
    pub op: String,
    pub path: Option<String>,
    pub from: Option<String>,
    pub value: Value,
}

/// How much the operations so far have copied and moved within the object. The limit of the body does not bound that.
#[derive(Default, Debug)]
pub struct PatchBudget {
    copied_bytes: usize,
    moved_values: usize,
}

impl PatchBudget {
    /// Counts a value that is copied.
    pub fn copy(&mut self, value: &Value) -> Result<(), String> {
        if pointer::height(value).is_none() {
            return Err(format!("copies more than {MAX_DEPTH} levels"));
        }
        self.copied_bytes += value.to_string().len();
        match self.copied_bytes > MAX_COPIED_BYTES {
            true => Err(format!("copies more than {MAX_COPIED_BYTES} bytes")),
            false => Ok(()),
        }
    }

    /// Counts a value that is moved and returns its height. Returns 0 if the value does not get deeper, as it need not
    /// be measured then.
    fn moved(&mut self, value: &Value, from: &str, path: &str) -> Result<usize, String> {
        if depth(path) <= depth(from) {
            return Ok(0);
        }
        self.moved_values += count(value);
        match self.moved_values > MAX_MOVED_VALUES {
            true => Err(format!("moves more than {MAX_MOVED_VALUES} values")),
            false => Ok(height(value)),
        }
    }
}

impl JsonPatchOperation {
    /// Converts an operation of a patch. Fields of a wrong type count as missing.
    pub fn from_value(mut step: Value) -> JsonPatchOperation {
        let mut text = |key: &str| match step.get_mut(key).map(Value::take) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (op, path, from) = (text("op"), text("path"), text("from"));
        let value = step.get_mut("value").map(Value::take).unwrap_or_default();
        JsonPatchOperation { op: op.unwrap_or_default(), path, from, value }
    }

    /// Applies the operation to the object. If it fails, the object may be partly changed.
    pub fn apply(self, object: &mut Value, budget: &mut PatchBudget) -> Result<(), String> {
        let path = || self.path.as_deref().ok_or("operation has no path").map_err(str::to_owned);
        let from = || self.from.as_deref().ok_or("operation has no from").map_err(str::to_owned);
        match self.op.as_str() {
            "add" => add(object, path()?, self.value.clone(), height(&self.value)),
            "remove" => remove(object, path()?).map(drop),
            "replace" => replace(object, path()?, self.value.clone()),
            "test" => test(object, path()?, &self.value),
            "move" => {
                let (from, path) = (from()?, path()?);
                let value = remove(object, from)?;
                let height = budget.moved(&value, from, path)?;
                add(object, path, value, height)
            }
            "copy" => {
                let value = find(object, from()?)?.cloned().unwrap_or_default();
                budget.copy(&value)?;
                let height = height(&value);
                add(object, path()?, value, height)
            }
            other => Err(format!("{other:?} is not an operation")),
        }
    }
}

fn add(object: &mut Value, path: &str, value: Value, height: usize) -> Result<(), String> {
    let (parent, key) = parent(object, path, height)?;
    match parent {
        ParentNode::Object(fields) => drop(fields.insert(key, value)),
        ParentNode::List(items) if key == "-" => items.push(value),
        ParentNode::List(items) => {
            let index = index(&key, items.len() + 1)?;
            items.insert(index, value);
        }
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, key) = parent(object, path, 0)?;
    match parent {
        ParentNode::Object(fields) => {
            fields.remove(&key).ok_or_else(|| format!("path {path} does not exist"))
        }
        ParentNode::List(items) => {
            let index = index(&key, items.len())?;
            Ok(items.remove(index))
        }
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err("the root can only be replaced by an object or a list".to_owned());
        }
        *object = value;
        return Ok(());
    }
    let (parent, key) = parent(object, path, height(&value))?;
    match parent {
        ParentNode::Object(fields) => drop(fields.insert(key, value)),
        ParentNode::List(items) => {
            let index = index(&key, items.len())?;
            items[index] = value;
        }
    }
    Ok(())
}

fn test(object: &mut Value, path: &str, expected: &Value) -> Result<(), String> {
    let same = match path {
        "" => object == expected,
        _ => find(object, path)?.unwrap_or(&Value::Null) == expected,
    };
    match same {
        true => Ok(()),
        false => Err(format!("test failed: value at {path} differs")),
    }
}

/// Returns the value at `path`; none if only the last segment does not exist.
fn find<'o>(object: &'o mut Value, path: &str) -> Result<Option<&'o Value>, String> {
    let (parent, key) = parent(object, path, 0)?;
    match parent {
        ParentNode::Object(fields) => Ok(fields.get(&key)),
        ParentNode::List(items) => {
            let index = index(&key, items.len())?;
            Ok(Some(&items[index]))
        }
    }
}

enum ParentNode<'o> {
    Object(&'o mut serde_json::Map<String, Value>),
    List(&'o mut Vec<Value>),
}

/// Returns the object or list that contains, or will contain, a value of this height at the end of `path`. Fails if the
/// result would be deeper than a body can be.
fn parent<'o>(object: &'o mut Value, path: &str, height: usize) -> Result<(ParentNode<'o>, String), String> {
    let (_, tokens) = path.split_once('/').ok_or_else(|| format!("{path:?} does not name a field"))?;
    if depth(path) + height > MAX_DEPTH {
        return Err(format!("{path} is too deep"));
    }
    let (parent_path, last) =
        tokens.rsplit_once('/').map_or((None, tokens), |(parent_path, last)| (Some(parent_path), last));
    let mut at = object;
    for token in parent_path.into_iter().flat_map(|parent_path| parent_path.split('/')) {
        let token = unescape(token);
        at = match at {
            Value::Object(fields) => {
                fields.get_mut(&token).ok_or_else(|| format!("{path} is missing at {token}"))?
            }
            Value::Array(items) => {
                let index = index(&token, items.len())?;
                &mut items[index]
            }
            _ => return Err(format!("path {path} leads through a scalar at {token}")),
        };
    }
    let parent = match at {
        Value::Object(fields) => ParentNode::Object(fields),
        Value::Array(items) => ParentNode::List(items),
        _ => return Err(format!("path {path} leads into a scalar")),
    };
    Ok((parent, unescape(last)))
}

/// Parses an index below `length`; a negative one counts from the end.
fn index(token: &str, length: usize) -> Result<usize, String> {
    let wrong = || format!("{token} is not an index below {length}");
    let number: i64 = token.parse().map_err(|_| wrong())?;
    let number = match number {
        0.. => usize::try_from(number).ok(),
        _ => usize::try_from(number.unsigned_abs()).ok().and_then(|back| length.checked_sub(back)),
    };
    number.filter(|index| *index < length).ok_or_else(wrong)
}

/// Returns the depth of a path.
fn depth(path: &str) -> usize {
    path.matches('/').count()
}

/// Returns the number of values in a value, including itself.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// Returns the nesting of lists and objects, at most one more than the maximum.
fn height(value: &Value) -> usize {
    pointer::height(value).unwrap_or(MAX_DEPTH + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Copying a value into itself repeatedly doubles it each time.
    #[test]
    fn copies_share_one_budget() {
        let mut object = json!({ "a": { "b": "x".repeat(1000) } });
        let mut budget = PatchBudget::default();
        let mut copy = |n: usize| {
            let step = json!({ "op": "copy", "from": "/a", "path": format!("/a/{n}") });
            JsonPatchOperation::from_value(step).apply(&mut object, &mut budget)
        };
        let failed = (0..40).find_map(|n| copy(n).err());
        assert_eq!(failed.unwrap(), format!("copies more than {MAX_COPIED_BYTES} bytes"));
        assert!(object.to_string().len() <= MAX_COPIED_BYTES + 2000);
    }
}
