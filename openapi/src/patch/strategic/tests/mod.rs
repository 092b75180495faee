mod difference;

use serde_json::json;

use super::*;
use crate::samples::{deployment, integer, list, map, merged, metadata, object, plain, string, struct_of};
use crate::schema::{FieldSchema, SchemaRef};

fn apply(object: Value, patch: Value, schema: &Schema) -> Result<Value, PatchError> {
    StrategicPatch::parse(patch)?.apply(object, schema)
}

/// A schema with every kind of list.
fn schema() -> SchemaRef {
    let inner = struct_of([
        ("k", plain(string())),
        ("v", plain(integer())),
        ("tags", merged(list(string()), None)),
        ("args", plain(list(string()))),
    ]);
    struct_of([
        ("items", merged(list(inner.clone()), Some("k"))),
        ("atomic", plain(list(inner.clone()))),
        ("set", merged(list(string()), None)),
        ("map", plain(map(string()))),
        ("one", FieldSchema { patch_retain_keys: true, ..plain(inner) }),
        ("n", plain(integer())),
    ])
}

fn check(target: Value, patch: Value, expected: Value) {
    let outcome = apply(target.clone(), patch.clone(), &schema());
    assert_eq!(outcome, Ok(expected), "{target} with {patch}");
}

#[test]
fn fields_are_set_and_deleted() {
    check(json!({"n": 1}), json!({"n": 2}), json!({"n": 2}));
    check(json!({"n": 1}), json!({"n": null}), json!({}));
    check(json!({}), json!({"n": null, "one": {"k": "a", "v": null}}), json!({"one": {"k": "a"}}));
    check(json!({"one": {"k": "a", "v": 1}}), json!({"one": {"v": null}}), json!({"one": {"k": "a"}}));
    check(
        json!({"map": {"a": "1", "b": "2"}}),
        json!({"map": {"a": null, "c": "3"}}),
        json!({"map": {"b": "2", "c": "3"}}),
    );
    check(json!({"n": 1}), json!(null), json!({"n": 1}));
    check(json!({"one": {"k": "a"}}), json!({"one": "odd"}), json!({"one": "odd"}));
}

#[test]
fn lists_with_a_key_merge() {
    let live = json!({"items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]});
    check(
        live.clone(),
        json!({"items": [{"k": "b", "v": 3}]}),
        json!({"items": [{"k": "a", "v": 1}, {"k": "b", "v": 3}]}),
    );
    check(
        live.clone(),
        json!({"items": [{"k": "c", "v": 3}]}),
        json!({"items": [{"k": "c", "v": 3}, {"k": "a", "v": 1}, {"k": "b", "v": 2}]}),
    );
    check(
        live.clone(),
        json!({"items": [{"k": "b"}, {"k": "a"}]}),
        json!({"items": [{"k": "b", "v": 2}, {"k": "a", "v": 1}]}),
    );
    check(
        live.clone(),
        json!({"items": [{"k": "a", "$patch": "delete"}]}),
        json!({"items": [{"k": "b", "v": 2}]}),
    );
    check(
        live.clone(),
        json!({"items": [{"$patch": "replace"}, {"k": "z", "v": 9}]}),
        json!({"items": [{"k": "z", "v": 9}]}),
    );
    check(live, json!({"items": []}), json!({"items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]}));
    check(
        json!({}),
        json!({"items": [{"k": "a", "$patch": "delete"}, {"k": "b"}]}),
        json!({"items": [{"k": "b"}]}),
    );
}

#[test]
fn lists_without_one_are_replaced() {
    check(
        json!({"atomic": [{"k": "a"}, {"k": "b"}]}),
        json!({"atomic": [{"k": "b", "v": 2}]}),
        json!({"atomic": [{"k": "b", "v": 2}]}),
    );
    check(
        json!({"items": [{"k": "a", "args": ["x", "y"]}]}),
        json!({"items": [{"k": "a", "args": ["z"]}]}),
        json!({"items": [{"k": "a", "args": ["z"]}]}),
    );
}

#[test]
fn sets_of_plain_values_merge() {
    check(json!({"set": ["a", "b"]}), json!({"set": ["c", "a"]}), json!({"set": ["c", "a", "b"]}));
    check(
        json!({"set": ["a", "b", "c"]}),
        json!({"$deleteFromPrimitiveList/set": ["b", "x"]}),
        json!({"set": ["a", "c"]}),
    );
    check(
        json!({"set": ["a", "b"]}),
        json!({"$deleteFromPrimitiveList/set": ["a"], "set": ["c"]}),
        json!({"set": ["c", "b"]}),
    );
    check(json!({}), json!({"$deleteFromPrimitiveList/set": ["a"]}), json!({}));
}

#[test]
fn the_order_can_be_set() {
    let live = json!({"items": [{"k": "a"}, {"k": "b"}, {"k": "c"}, {"k": "d"}]});
    check(
        live.clone(),
        json!({"$setElementOrder/items": [{"k": "d"}, {"k": "b"}]}),
        json!({"items": [{"k": "a"}, {"k": "c"}, {"k": "d"}, {"k": "b"}]}),
    );
    check(
        live.clone(),
        json!({"$setElementOrder/items": [{"k": "c"}, {"k": "e"}, {"k": "a"}], "items": [{"k": "e", "v": 5}]}),
        json!({"items": [{"k": "b"}, {"k": "c"}, {"k": "e", "v": 5}, {"k": "a"}, {"k": "d"}]}),
    );
    check(
        live,
        json!({"$setElementOrder/items": [{"k": "d"}, {"k": "a"}], "items": [{"k": "b", "$patch": "delete"}]}),
        json!({"items": [{"k": "c"}, {"k": "d"}, {"k": "a"}]}),
    );
    check(
        json!({"set": ["a", "b", "c"]}),
        json!({"$setElementOrder/set": ["c", "x", "a"], "set": ["x"], "$deleteFromPrimitiveList/set": ["b"]}),
        json!({"set": ["c", "x", "a"]}),
    );
    check(json!({}), json!({"$setElementOrder/items": [{"k": "a"}]}), json!({}));
}

#[test]
fn other_keys_can_be_dropped() {
    check(
        json!({"one": {"k": "a", "v": 1, "args": ["x"]}}),
        json!({"one": {"$retainKeys": ["k", "v"], "k": "b"}}),
        json!({"one": {"k": "b", "v": 1}}),
    );
    check(
        json!({"one": {"k": "a", "v": 1}}),
        json!({"one": {"$retainKeys": ["k"], "v": null}}),
        json!({"one": {"k": "a"}}),
    );
    check(
        json!({"one": {"k": "a"}}),
        json!({"one": {"$patch": "replace", "v": 1}}),
        json!({"one": {"v": 1}}),
    );
    check(json!({"one": {"k": "a"}}), json!({"one": {"$patch": "delete"}}), json!({"one": {}}));
    check(json!({}), json!({"one": {"$patch": "delete"}}), json!({}));
}

#[test]
fn invalid_patches_are_rejected() {
    let live = json!({"set": ["a"], "one": {"k": "a"}});
    let rows = [
        (json!([]), "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (json!({"one": {"$retainKeys": "k"}}), "invalid patch format of retainKeys"),
        (json!({"one": {"$retainKeys": ["k"], "v": 1}}), "invalid patch format of retainKeys"),
        (json!({"$deleteFromPrimitiveList": ["a"]}), "invalid patch format of primitive list"),
        (json!({"$setElementOrder": ["a"]}), "invalid patch format of setElementOrder list"),
    ];
    for (patch, message) in rows {
        let outcome = apply(live.clone(), patch.clone(), &schema());
        assert_eq!(outcome, Err(PatchError::Malformed(message.to_owned())), "{patch}");
    }
}

#[test]
fn patches_that_do_not_fit() {
    let live = json!({"items": [{"k": "a"}], "set": ["a"], "one": {"k": "a"}, "n": 1, "map": {"x": "y"},
                      "atomic": [{"k": "a"}]});
    let rows = [
        (json!({"items": [{"v": 1}]}), "map: map[v:1] does not contain declared merge key: k"),
        (json!({"items": ["a"]}), "list element types are not identical: [[map[k:a]] [a]]"),
        (
            json!({"items": [{"$patch": "delete", "v": 1}]}),
            "map: map[$patch:delete v:1] does not contain declared merge key: k",
        ),
        (
            json!({"items": [{"$patch": "replace"}, {"v": 1}]}),
            "map: map[v:1] does not contain declared merge key: k",
        ),
        (
            json!({"items": [{"$patch": "merge", "k": "a"}]}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"items": [{"$patch": "odd", "k": "a"}]}),
            "unknown patch type: odd in map: map[$patch:odd k:a]",
        ),
        (json!({"set": [1]}), "list element types are not identical: [[a] [1]]"),
        (json!({"set": [["a"]]}), "list element types are not identical: [[a] [[a]]]"),
        (json!({"set": [null]}), "list element types are not identical: [[a] [<nil>]]"),
        (json!({"one": {"$patch": "merge"}}), "unknown patch type: merge in map: map[$patch:merge]"),
        (json!({"one": {"$patch": 1}}), "unknown patch type: %!s(int64=1) in map: map[$patch:1]"),
        (
            json!({"$setElementOrder/set": ["x"], "set": ["y"]}),
            "The order in patch list:\n[y]\n doesn't match $setElementOrder list:\n[x]\n",
        ),
        (
            json!({"$setElementOrder/set": ["b", "c"], "set": ["c", "b"]}),
            "The order in patch list:\n[c b]\n doesn't match $setElementOrder list:\n[b c]\n",
        ),
        (
            json!({"$setElementOrder/items": [{"v": 1}], "items": [{"k": "a"}]}),
            "map: map[v:1] does not contain declared merge key: k",
        ),
        (
            json!({"$setElementOrder/items": ["a"], "items": [{"k": "a"}]}),
            "expected a map[string]interface {}, but received a string",
        ),
        (json!({"$setElementOrder/items": ["a"]}), "value for key 0 is not a map"),
        (json!({"$setElementOrder/set": "a"}), "expected a []interface {}, but received a string"),
        (json!({"$setElementOrder/n": ["a"]}), "expected a []interface {}, but received a int64"),
        (
            json!({"$setElementOrder/set": ["a"], "set": null}),
            "expected a []interface {}, but received a %!s(<nil>)",
        ),
        (
            json!({"$setElementOrder/nothing": ["a"]}),
            "unable to find api field in struct  for the json field \"nothing\"",
        ),
        (
            json!({"map": {"$setElementOrder/nothing": ["a"]}}),
            "merging an object in json but data type is not struct, instead is: map",
        ),
        (
            json!({"$deleteFromPrimitiveList/atomic": [{"k": "a"}]}),
            "cannot merge lists without merge key for struct",
        ),
    ];
    for (patch, message) in rows {
        let outcome = apply(live.clone(), patch.clone(), &schema());
        assert_eq!(outcome, Err(PatchError::Unfit(message.to_owned())), "{patch}");
    }
    let outcome = apply(json!({}), json!({"$setElementOrder/set": ["a"], "set": []}), &schema());
    assert_eq!(outcome, Err(PatchError::Unfit("no elements in any of the given slices".to_owned())));
}

#[test]
fn a_delete_directive_affects_only_lists_of_scalars() {
    let live = json!({"items": [{"k": "a", "v": 1}], "map": {"x": "1"}, "n": 1, "set": ["a"]});
    let same = |patch: Value| check(live.clone(), patch, live.clone());
    same(json!({"$deleteFromPrimitiveList/set": "a"}));
    same(json!({"$deleteFromPrimitiveList/nothing": ["a"]}));
    same(json!({"$deleteFromPrimitiveList/map": ["x"]}));
    check(live.clone(), json!({"$deleteFromPrimitiveList/set": null}), {
        let mut live = live.clone();
        live.as_object_mut().unwrap().remove("set");
        live
    });
    // In Kubernetes the directive only affects how lists of scalars merge.
    let mut merged = live.clone();
    merged["items"][0]["v"] = json!(2);
    check(live.clone(), json!({"$deleteFromPrimitiveList/items": [{"k": "a", "v": 2}]}), merged);
}

#[test]
fn the_replace_directive_replaces_an_object() {
    let selector = struct_of([("a", plain(string())), ("b", plain(string()))]);
    let schema = struct_of([("selector", FieldSchema { patch_replace: true, ..plain(selector) })]);
    let live = json!({"selector": {"a": "1"}});
    let outcome = apply(live, json!({"selector": {"b": "2"}}), &schema);
    assert_eq!(outcome, Ok(json!({"selector": {"b": "2"}})));
}

#[test]
fn an_empty_order_keeps_the_live_order() {
    check(
        json!({"items": [{"k": "a"}, {"k": "b"}]}),
        json!({"$setElementOrder/items": [], "items": [{"k": "c"}]}),
        json!({"items": [{"k": "a"}, {"k": "b"}, {"k": "c"}]}),
    );
}

/// The patches of `kubectl set image` and `kubectl apply`.
#[test]
fn a_deployment_gets_a_new_image_and_another_strategy() {
    let live = json!({
        "metadata": {"name": "web", "finalizers": ["a/b", "c/d"]},
        "spec": {"replicas": 3, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
                 "template": {"spec": {"containers": [
                     {"name": "web", "image": "web:1", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                     {"name": "log", "image": "log:1"}]}}},
    });
    let patch = json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"], "$setElementOrder/finalizers": ["c/d"]},
        "spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"},
                 "template": {"spec": {"$setElementOrder/containers": [{"name": "web"}],
                                       "containers": [{"name": "web", "image": "web:2",
                                                       "$setElementOrder/ports": [{"containerPort": 80}]}]}}},
    });
    let expected = json!({
        "metadata": {"name": "web", "finalizers": ["c/d"]},
        "spec": {"replicas": 3, "strategy": {"type": "Recreate"},
                 "template": {"spec": {"containers": [
                     {"name": "web", "image": "web:2", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                     {"name": "log", "image": "log:1"}]}}},
    });
    assert_eq!(apply(live, patch, &deployment()), Ok(expected));
}

#[test]
fn fields_without_a_schema_are_merged_as_json() {
    let nothing = object(&[]);
    let live = json!({"x": {"a": 1, "l": [1, 2]}});
    let patch = json!({"x": {"b": 2, "l": [3]}});
    assert_eq!(apply(live, patch, &nothing), Ok(json!({"x": {"a": 1, "b": 2, "l": [3]}})));
    let labels = apply(json!({"labels": {"a": "1"}}), json!({"labels": {"a": null}}), &metadata());
    assert_eq!(labels, Ok(json!({"labels": {}})));
}

#[test]
fn a_long_list_is_merged_quickly() {
    let many = |from: usize| -> Value {
        (from..from + 50_000).map(|n| Value::from(n.to_string())).collect::<Vec<_>>().into()
    };
    let outcome = apply(json!({"set": many(0)}), json!({"set": many(25_000)}), &schema()).expect("merges");
    assert_eq!(outcome["set"].as_array().map(Vec::len), Some(75_000));
}
