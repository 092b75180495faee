//! JSON patch (RFC 6902): steps, one after the other, all or none.
//!
//! Written here rather than taken from a crate because Kubernetes is laxer than the RFC and clients rely on it: an index
//! may count from the end, `replace` also adds a missing field, `test` takes null for absent, and a path begins at its
//! first slash, whatever is before it.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::PatchError;
use crate::codec::MAX_DEPTH;
use crate::codec::typed;
use crate::codec::typed::StrictDecodingError;
use crate::schema::{FieldSchema, ListSchema, ListType, ObjectSchema, Schema, SchemaRef, Shape};

/// As in Kubernetes. More steps than this are a mistake or an attack.
pub const MAX_STEPS: usize = 10_000;

/// What all `copy` steps together may add, as text: the largest body that is accepted.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// How many values all `move` steps together may take further down, where it must be seen how deep they are.
const MAX_MOVED_VALUES: usize = 1_000_000;

/// A patch that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPatch {
    steps: Vec<JsonPatchOperation>,
    /// Fields a step does not have, or has twice.
    pub strict_errors: Vec<StrictDecodingError>,
}

/// One step. Whether its name and paths make sense is found out when it is taken.
#[derive(Clone, PartialEq, Debug)]
struct JsonPatchOperation {
    op: String,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

impl JsonPatch {
    pub fn parse(patch: Value) -> Result<JsonPatch, PatchError> {
        let walked = typed::decode_tree(patch, &STEPS)
            .map_err(|mismatch| PatchError::Malformed(format!("error decoding patch: {mismatch}")))?;
        let strict_errors = walked
            .strict_errors
            .into_iter()
            .map(|strict_error| StrictDecodingError::JsonPatch(Box::new(strict_error)))
            .collect();
        let Value::Array(steps) = walked.value else {
            return Ok(JsonPatch { steps: Vec::new(), strict_errors });
        };
        if steps.len() > MAX_STEPS {
            let found = steps.len();
            return Err(PatchError::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {MAX_STEPS}, got {found}"
            )));
        }
        Ok(JsonPatch {
            steps: steps.into_iter().map(JsonPatchOperation::from_value).collect(),
            strict_errors,
        })
    }

    pub fn apply(self, mut object: Value) -> Result<Value, PatchError> {
        let mut spent = PatchBudget::default();
        for step in self.steps {
            step.take(&mut object, &mut spent).map_err(PatchError::DoesNotApply)?;
        }
        Ok(object)
    }
}

/// What the steps taken so far did with values that are in the object and not in the patch: those no body limits.
#[derive(Default)]
struct PatchBudget {
    copied_bytes: usize,
    moved_values: usize,
}

impl PatchBudget {
    fn copy(&mut self, value: &Value) -> Result<(), String> {
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
    fn from_value(mut step: Value) -> JsonPatchOperation {
        let mut text = |key: &str| match step.get_mut(key).map(Value::take) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (op, path, from) = (text("op"), text("path"), text("from"));
        let value = step.get_mut("value").map(Value::take).unwrap_or_default();
        JsonPatchOperation { op: op.unwrap_or_default(), path, from, value }
    }

    fn take(self, object: &mut Value, spent: &mut PatchBudget) -> Result<(), String> {
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
                let height = spent.moved(&value, from, path)?;
                add(object, path, value, height)
            }
            "copy" => {
                let value = find(object, from()?)?.cloned().unwrap_or_default();
                spent.copy(&value)?;
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

/// Lists and objects inside each other. Values come from decoded bodies, so they are shallow enough to recurse.
fn height(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(height).max().unwrap_or(0),
        _ => 0,
    }
}

/// What a patch looks like. Its names are those that appear in Kubernetes's error texts.
static STEPS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let of = |shape| Arc::new(Schema { shape, ..Schema::default() });
    let field = |name: &str, shape| (Arc::from(name), FieldSchema::of(of(shape)));
    let fields = [
        field("op", Shape::String),
        field("path", Shape::String),
        field("from", Shape::String),
        field("value", Shape::Any),
    ];
    let step = Schema {
        name: Some("handlers.jsonPatchOp".into()),
        shape: Shape::Object(ObjectSchema { fields: fields.into(), ..ObjectSchema::default() }),
        ..Schema::default()
    };
    of(Shape::List(ListSchema { items: Arc::new(step), kind: ListType::Atomic }))
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn apply(object: Value, steps: Value) -> Result<Value, PatchError> {
        JsonPatch::parse(steps)?.apply(object)
    }

    #[test]
    fn steps_that_apply() {
        for (object, steps, expected) in [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (json!({"a": 1}), json!([{"op": "add", "path": "/a", "value": [3]}]), json!({"a": [3]})),
            (
                json!({"a": [1, 3]}),
                json!([{"op": "add", "path": "/a/1", "value": 2}]),
                json!({"a": [1, 2, 3]}),
            ),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-1", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/0"}]), json!({"a": [2]})),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
            (json!({}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
            (
                json!({"a": {"x": 1}}),
                json!([{"op": "move", "from": "/a/x", "path": "/b"}]),
                json!({"a": {}, "b": 1}),
            ),
            (
                json!({"a": [1]}),
                json!([{"op": "copy", "from": "/a", "path": "/b"}]),
                json!({"a": [1], "b": [1]}),
            ),
            (json!({"a/b": {"~": 1}}), json!([{"op": "remove", "path": "/a~1b/~0"}]), json!({"a/b": {}})),
            (
                json!({"a": 1}),
                json!([{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}]),
                json!({}),
            ),
            (json!({}), json!([{"op": "test", "path": "/a", "value": null}]), json!({})),
            (json!({}), json!([{"op": "test", "path": "", "value": {}}]), json!({})),
            (json!({}), json!([{"op": "add", "path": "/", "value": 1}]), json!({"": 1})),
            (json!({"a": {}}), json!([{"op": "add", "path": "x/a/b", "value": 1}]), json!({"a": {"b": 1}})),
            (json!({"a": 1}), json!([]), json!({"a": 1})),
        ] {
            assert_eq!(apply(object, steps.clone()), Ok(expected), "{steps}");
        }
    }

    #[test]
    fn steps_that_do_not() {
        for step in [
            json!({"op": "remove", "path": "/b"}),
            json!({"op": "remove", "path": "/list/5"}),
            json!({"op": "add", "path": "/b/c", "value": 1}),
            json!({"op": "add", "path": "/list/5", "value": 1}),
            json!({"op": "add", "path": "/list/-5", "value": 1}),
            json!({"op": "add", "path": "/list/x", "value": 1}),
            json!({"op": "add", "path": "/a/x", "value": 1}),
            json!({"op": "add", "path": "", "value": {}}),
            json!({"op": "add", "path": "a", "value": 1}),
            json!({"op": "replace", "path": "/list/5", "value": 1}),
            json!({"op": "replace", "path": "", "value": 1}),
            json!({"op": "test", "path": "/a", "value": 2}),
            json!({"op": "test", "path": "/a", "value": 1.0}),
            json!({"op": "test", "path": "/b/c", "value": null}),
            json!({"op": "move", "path": "/c", "from": "/b"}),
            json!({"op": "copy", "path": "/c"}),
            json!({"op": "jump", "path": "/a"}),
            json!({"path": "/a"}),
            json!({"op": "add"}),
        ] {
            let outcome = apply(json!({"a": 1, "list": [1]}), json!([step]));
            assert!(matches!(outcome, Err(PatchError::DoesNotApply(_))), "{step}: {outcome:?}");
        }
    }

    #[test]
    fn what_is_not_a_patch() {
        for (patch, expected) in [
            (
                json!({}),
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                json!([{"op": 1}]),
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
            (
                json!(["add"]),
                "error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp",
            ),
        ] {
            assert_eq!(JsonPatch::parse(patch), Err(PatchError::Malformed(expected.to_owned())));
        }
        let odd = JsonPatch::parse(json!([{"op": "add", "path": "/a", "values": 1}])).expect("a patch");
        assert_eq!(
            odd.strict_errors,
            [StrictDecodingError::JsonPatch(Box::new(StrictDecodingError::UnknownField(
                "[0].values".to_owned()
            )))]
        );
    }

    #[test]
    fn too_much_is_refused() {
        let many = Value::Array(vec![json!({"op": "add", "path": "/a", "value": 1}); MAX_STEPS + 1]);
        let told = "The allowed maximum operations in a JSON patch is 10000, got 10001";
        assert_eq!(JsonPatch::parse(many), Err(PatchError::TooLarge(told.to_owned())));

        let double = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 100]);
        assert!(matches!(apply(json!({"a": ["x"]}), double), Err(PatchError::DoesNotApply(_))));

        let nest = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/a/a"}); 10]);
        assert!(apply(json!({"a": {}}), nest).is_ok());
        let deep: Vec<_> =
            (1..200).map(|n| json!({"op": "add", "path": "/a".repeat(n), "value": {}})).collect();
        assert!(matches!(apply(json!({}), deep.into()), Err(PatchError::DoesNotApply(_))));
    }

    #[test]
    fn moves_are_cheap_or_refused() {
        let object = || json!({"a": vec![1; 100_000], "far": {}});
        let there_and_back = |there: &str| {
            let (there, back) = (
                json!({"op": "move", "from": "/a", "path": there}),
                json!({"op": "move", "from": there, "path": "/a"}),
            );
            Value::Array([there, back].into_iter().cycle().take(MAX_STEPS).collect())
        };
        assert_eq!(apply(object(), there_and_back("/b")), Ok(object()), "no deeper than it was");
        let told = PatchError::DoesNotApply(format!("moves more than {MAX_MOVED_VALUES} values"));
        assert_eq!(apply(object(), there_and_back("/far/a")), Err(told));

        let deep = (0..MAX_DEPTH - 1).fold(json!(1), |value, _| json!([value]));
        let down = json!([{"op": "move", "from": "/a", "path": "/far/a"}]);
        assert!(matches!(apply(json!({"a": deep, "far": {}}), down), Err(PatchError::DoesNotApply(_))));
    }

    #[test]
    fn a_failing_step_leaves_nothing_behind() {
        let object = json!({"a": 1});
        let steps = json!([{"op": "remove", "path": "/a"}, {"op": "test", "path": "/a", "value": 1}]);
        assert!(apply(object.clone(), steps).is_err());
        assert_eq!(object, json!({"a": 1}));
    }

    fn steps() -> impl Strategy<Value = Value> {
        let ops = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
        let paths = || "(/([ab]|[0-2]|-|-1)){0,4}";
        let values =
            prop::sample::select(vec![json!(1), json!({"a": []}), json!([1, {"b": 2}]), json!(null)]);
        let step = (ops, paths(), paths(), values).prop_map(
            |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
        );
        prop::collection::vec(step, 0..8).prop_map(Value::Array)
    }

    proptest! {
        #[test]
        fn any_steps_end_well_or_are_refused(steps in steps()) {
            let _ = apply(json!({"a": {"a": [1, {"b": {}}]}, "b": [[], {}]}), steps);
        }

        #[test]
        fn adding_and_removing_is_nothing(key in "[a-z/~]{1,5}") {
            let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            let object = json!({"0": 1});
            let steps = json!([{"op": "add", "path": path, "value": {"x": 1}},
                               {"op": "test", "path": format!("{path}/x"), "value": 1},
                               {"op": "remove", "path": path}]);
            prop_assert_eq!(apply(object.clone(), steps), Ok(object));
        }
    }
}
