//! JSON patch (RFC 6902): operations that are applied in order, all or none. [`api::meta::json_patch`] applies them.

use std::sync::{Arc, LazyLock};

use api::meta::json_patch::{JsonPatchOperation, PatchBudget};
use serde_json::Value;

use super::PatchError;
use crate::codec::typed;
use crate::codec::typed::StrictDecodingError;
use crate::schema::{FieldSchema, ListSchema, ListType, ObjectSchema, Schema, SchemaRef, Shape};

/// Maximum number of operations, as in Kubernetes. More are a mistake or an attack.
pub const MAX_STEPS: usize = 10_000;

/// A parsed patch.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPatch {
    steps: Vec<JsonPatchOperation>,
    /// Unknown and duplicate fields of operations.
    pub strict_errors: Vec<StrictDecodingError>,
}

impl JsonPatch {
    pub fn parse(patch: Value) -> Result<JsonPatch, PatchError> {
        let decoded = typed::decode_tree(patch, &STEPS)
            .map_err(|mismatch| PatchError::Malformed(format!("error decoding patch: {mismatch}")))?;
        let strict_errors = decoded
            .strict_errors
            .into_iter()
            .map(|strict_error| StrictDecodingError::JsonPatch(Box::new(strict_error)))
            .collect();
        let Value::Array(steps) = decoded.value else {
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
        let mut budget = PatchBudget::default();
        for step in self.steps {
            step.apply(&mut object, &mut budget).map_err(PatchError::DoesNotApply)?;
        }
        Ok(object)
    }
}

/// The schema of a patch. Its names appear in Kubernetes' error texts.
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
    use api::meta::pointer::MAX_DEPTH;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn apply(object: Value, steps: Value) -> Result<Value, PatchError> {
        JsonPatch::parse(steps)?.apply(object)
    }

    #[test]
    fn operations_that_apply() {
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
    fn operations_that_do_not_apply() {
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
    fn invalid_json_patches_are_refused() {
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
        let message = "The allowed maximum operations in a JSON patch is 10000, got 10001";
        assert_eq!(JsonPatch::parse(many), Err(PatchError::TooLarge(message.to_owned())));

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
        let move_and_move_back = |target: &str| {
            let (target, back) = (
                json!({"op": "move", "from": "/a", "path": target}),
                json!({"op": "move", "from": target, "path": "/a"}),
            );
            Value::Array([target, back].into_iter().cycle().take(MAX_STEPS).collect())
        };
        assert_eq!(apply(object(), move_and_move_back("/b")), Ok(object()), "no deeper than it was");
        let message = PatchError::DoesNotApply("moves more than 1000000 values".to_owned());
        assert_eq!(apply(object(), move_and_move_back("/far/a")), Err(message));

        let deep = (0..MAX_DEPTH - 1).fold(json!(1), |value, _| json!([value]));
        let down = json!([{"op": "move", "from": "/a", "path": "/far/a"}]);
        assert!(matches!(apply(json!({"a": deep, "far": {}}), down), Err(PatchError::DoesNotApply(_))));
    }

    #[test]
    fn a_failing_operation_changes_nothing() {
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
        fn arbitrary_json_patches_apply_or_are_rejected(steps in steps()) {
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
