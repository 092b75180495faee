//! JSON merge patch (RFC 7396): values are set, nulls delete, lists are replaced.

use api::meta::merge_patch::merge;
use serde_json::{Map, Value};

use super::PatchError;

/// A parsed patch. It is always an object, because the result must be one.
#[derive(Clone, PartialEq, Debug)]
pub struct MergePatch(Map<String, Value>);

impl MergePatch {
    pub fn parse(patch: Value) -> Result<MergePatch, PatchError> {
        let found = match patch {
            Value::Object(fields) => return Ok(MergePatch(fields)),
            Value::Null => return Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
        };
        let into = "Go value of type map[string]interface {}";
        Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {found} into {into}"
        )))
    }

    pub fn apply(self, object: &mut Value) {
        merge(object, Value::Object(self.0));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn apply(mut object: Value, patch: Value) -> Value {
        MergePatch::parse(patch).expect("an object").apply(&mut object);
        object
    }

    #[test]
    fn the_examples_of_the_rfc_that_are_about_objects() {
        for (object, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(apply(object, patch), expected);
        }
    }

    #[test]
    fn nulls_inside_lists() {
        assert_eq!(apply(json!({}), json!({"a": [{"b": null}, null]})), json!({"a": [{}, null]}));
        assert_eq!(apply(json!({"a": [1]}), json!({"a": [{"b": null}]})), json!({"a": [{}]}));
        assert_eq!(apply(json!({"a": {}}), json!({"a": [{"b": null}]})), json!({"a": [{"b": null}]}));
    }

    #[test]
    fn a_merge_patch_must_be_an_object() {
        for (patch, expected) in [
            (json!(null), "Invalid JSON Patch"),
            (
                json!([]),
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ] {
            assert_eq!(MergePatch::parse(patch), Err(PatchError::Malformed(expected.to_owned())));
        }
    }

    /// Returns the patch that turns `from` into `to`.
    fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
        let mut patch = Map::new();
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, desired) in to {
            match (from.get(key), desired) {
                (Some(Value::Object(from)), Value::Object(to)) => {
                    patch.insert(key.clone(), Value::Object(difference(from, to)));
                }
                (found, desired) if found != Some(desired) => {
                    drop(patch.insert(key.clone(), desired.clone()))
                }
                _ => {}
            }
        }
        patch
    }

    fn objects() -> impl Strategy<Value = Map<String, Value>> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..5).prop_map(Value::from),
            Just(json!([1, "a"]))
        ];
        let tree = leaf.prop_recursive(3, 30, 4, |inner| {
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        });
        prop::collection::btree_map("[a-d]", tree, 0..4).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_difference_leads_to_its_target(from in objects(), to in objects()) {
            let patch = Value::Object(difference(&from, &to));
            prop_assert_eq!(apply(Value::Object(from), patch), Value::Object(to));
        }

        #[test]
        fn twice_changes_nothing(from in objects(), patch in objects()) {
            let once = apply(Value::Object(from), Value::Object(patch.clone()));
            prop_assert_eq!(apply(once.clone(), Value::Object(patch)), once);
        }
    }
}
