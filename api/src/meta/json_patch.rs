//! The operations of a JSON patch (RFC 6902), in the dialect of Kubernetes.
//!
//! Written here rather than taken from a crate because Kubernetes is laxer than the RFC and clients rely on it: an index
//! may count from the end, `replace` also adds a missing field, `test` takes null for absent, and a path begins at its
//! first slash, whatever is before it.

use serde_json::Value;

use super::pointer::{self, MAX_DEPTH};

/// What all `copy` steps together may add, as text: the largest body that is accepted.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// How many values all `move` steps together may take further down, where it must be seen how deep they are.
const MAX_MOVED_VALUES: usize = 1_000_000;

/// One operation. Its name and paths are checked when it is applied.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPatchOperation {
    pub op: String,
    pub path: Option<String>,
    pub from: Option<String>,
    pub value: Value,
}

/// How much the operations so far copied and moved of what is in the object and not in the patch. No limit of a body bounds
/// that.
#[derive(Default, Debug)]
pub struct PatchBudget {
    copied_bytes: usize,
    moved_values: usize,
}

impl PatchBudget {
    /// Counts a value that is written to another place.
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

    /// The height that matters at the end of a move: what comes no deeper than it was is not looked at.
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
    /// An operation as it stands in a patch. Fields of another type than they should have are missing.
    pub fn from_value(mut step: Value) -> JsonPatchOperation {
        let mut text = |key: &str| match step.get_mut(key).map(Value::take) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (op, path, from) = (text("op"), text("path"), text("from"));
        let value = step.get_mut("value").map(Value::take).unwrap_or_default();
        JsonPatchOperation { op: op.unwrap_or_default(), path, from, value }
    }

    /// Changes the object. One that fails may have changed it halfway.
    pub fn apply(self, object: &mut Value, budget: &mut PatchBudget) -> Result<(), String> {
        let path = || self.path.as_deref().ok_or("a step has no path").map_err(str::to_owned);
        let from = || self.from.as_deref().ok_or("a step has no from").map_err(str::to_owned);
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
        ParentNode::Object(fields) => fields.remove(&key).ok_or_else(|| format!("{path} is not there")),
        ParentNode::List(items) => {
            let index = index(&key, items.len())?;
            Ok(items.remove(index))
        }
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err("the whole can only become an object or a list".to_owned());
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
        false => Err(format!("{path} has another value")),
    }
}

/// What is at `path`; none if only the last part of it is missing.
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

/// The object or list that has, or will have, a value of such a height at the end of `path`. Refuses to build what could
/// not have been sent in one body.
fn parent<'o>(object: &'o mut Value, path: &str, height: usize) -> Result<(ParentNode<'o>, String), String> {
    let (_, tokens) = path.split_once('/').ok_or_else(|| format!("{path:?} does not name a field"))?;
    if depth(path) + height > MAX_DEPTH {
        return Err(format!("{path} is too deep"));
    }
    let (way, last) = tokens.rsplit_once('/').map_or((None, tokens), |(way, last)| (Some(way), last));
    let mut at = object;
    for token in way.into_iter().flat_map(|way| way.split('/')) {
        let token = unescape(token);
        at = match at {
            Value::Object(fields) => {
                fields.get_mut(&token).ok_or_else(|| format!("{path} is missing at {token}"))?
            }
            Value::Array(items) => {
                let index = index(&token, items.len())?;
                &mut items[index]
            }
            _ => return Err(format!("{path} leads through a plain value at {token}")),
        };
    }
    let parent = match at {
        Value::Object(fields) => ParentNode::Object(fields),
        Value::Array(items) => ParentNode::List(items),
        _ => return Err(format!("{path} leads into a plain value")),
    };
    Ok((parent, unescape(last)))
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// An index below `length`; a negative one counts from the end.
fn index(token: &str, length: usize) -> Result<usize, String> {
    let wrong = || format!("{token} is not an index below {length}");
    let number: i64 = token.parse().map_err(|_| wrong())?;
    let number = match number {
        0.. => usize::try_from(number).ok(),
        _ => usize::try_from(number.unsigned_abs()).ok().and_then(|back| length.checked_sub(back)),
    };
    number.filter(|index| *index < length).ok_or_else(wrong)
}

/// How far down a path leads.
fn depth(path: &str) -> usize {
    path.matches('/').count()
}

/// A value and all in it.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// How many lists and objects are inside each other, counted up to one more than may be.
fn height(value: &Value) -> usize {
    pointer::height(value).unwrap_or(MAX_DEPTH + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Copying a thing into itself again and again doubles it each time.
    #[test]
    fn copies_are_bounded_together() {
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
