use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::samples::{deployment, integer, list, map, merged, metadata, object, plain, string, struct_of};
use crate::schema::{Field, SchemaRef};

fn apply(object: Value, patch: Value, schema: &Schema) -> Result<Value, PatchError> {
    StrategicPatch::parse(patch)?.apply(object, schema)
}

/// Objects in which every kind of list occurs.
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
        ("one", Field { patch_retain_keys: true, ..plain(inner) }),
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
fn patches_that_are_none_and_patches_that_do_not_fit() {
    let live = json!({"items": [{"k": "a"}], "set": ["a"], "one": {"k": "a"}});
    let malformed = [
        json!([]),
        json!({"one": {"$retainKeys": "k"}}),
        json!({"one": {"$retainKeys": ["k"], "v": 1}}),
        json!({"$deleteFromPrimitiveList": ["a"]}),
        json!({"$setElementOrder": ["a"]}),
        json!({"$setElementOrder/set": "a"}),
    ];
    for patch in malformed {
        let outcome = apply(live.clone(), patch.clone(), &schema());
        assert!(matches!(outcome, Err(PatchError::Malformed(_))), "{patch}: {outcome:?}");
    }
    let misfits = [
        json!({"items": [{"v": 1}]}),
        json!({"items": ["a"]}),
        json!({"items": [{"$patch": "delete", "v": 1}]}),
        json!({"items": [{"$patch": "merge", "k": "a"}]}),
        json!({"items": [{"$patch": "odd", "k": "a"}]}),
        json!({"set": [1]}),
        json!({"set": [["a"]]}),
        json!({"set": [null]}),
        json!({"one": {"$patch": "merge"}}),
        json!({"one": {"$patch": 1}}),
        json!({"$setElementOrder/set": ["x"], "set": ["y"]}),
        json!({"$setElementOrder/set": ["b", "c"], "set": ["c", "b"]}),
        json!({"$setElementOrder/items": [{"v": 1}], "items": [{"k": "a"}]}),
    ];
    for patch in misfits {
        let outcome = apply(live.clone(), patch.clone(), &schema());
        assert!(matches!(outcome, Err(PatchError::Unfit(_))), "{patch}: {outcome:?}");
    }
}

/// What `kubectl set image` and `kubectl apply` send.
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
fn what_no_schema_describes_is_merged_like_json() {
    let nothing = object(&[]);
    let live = json!({"x": {"a": 1, "l": [1, 2]}});
    let patch = json!({"x": {"b": 2, "l": [3]}});
    assert_eq!(apply(live, patch, &nothing), Ok(json!({"x": {"a": 1, "b": 2, "l": [3]}})));
    let labels = apply(json!({"labels": {"a": "1"}}), json!({"labels": {"a": null}}), &metadata());
    assert_eq!(labels, Ok(json!({"labels": {}})));
}

#[test]
fn a_long_list_is_no_trouble() {
    let many = |from: usize| -> Value {
        (from..from + 50_000).map(|n| Value::from(n.to_string())).collect::<Vec<_>>().into()
    };
    let outcome = apply(json!({"set": many(0)}), json!({"set": many(25_000)}), &schema()).expect("merges");
    assert_eq!(outcome["set"].as_array().map(Vec::len), Some(75_000));
}

// --- A difference leads to its target ---

/// What turns `from` into `to`, as kubectl would write it.
fn difference(from: &Fields, to: &Fields, schema: Option<&Schema>) -> Fields {
    let mut patch = Fields::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, wanted) in to {
        let merging = Merging::of(schema, name);
        match (from.get(name), wanted) {
            (Some(found), wanted) if found == wanted => {}
            (Some(Value::Object(from)), Value::Object(to)) => {
                patch.insert(name.clone(), Value::Object(difference(from, to, merging.schema)));
            }
            (Some(Value::Array(from)), Value::Array(to)) if merging.merges => {
                list_difference(&mut patch, name, from, to, merging);
            }
            (_, wanted) => drop(patch.insert(name.clone(), wanted.clone())),
        }
    }
    patch
}

fn list_difference(patch: &mut Fields, name: &str, from: &[Value], to: &[Value], merging: Merging<'_>) {
    let Some(key) = merging.key else {
        let added: Vec<_> = to.iter().filter(|item| !from.contains(item)).cloned().collect();
        let removed: Vec<_> = from.iter().filter(|item| !to.contains(item)).cloned().collect();
        patch.insert(format!("{SET_ORDER}/{name}"), to.to_vec().into());
        patch.insert(format!("{DELETE_VALUES}/{name}"), removed.into());
        if !added.is_empty() {
            patch.insert(name.to_owned(), added.into());
        }
        return;
    };
    let find = |items: &[Value], wanted: &Value| items.iter().find(|item| item[key] == wanted[key]).cloned();
    let mut changes = Vec::new();
    for item in to {
        match find(from, item) {
            None => changes.push(item.clone()),
            Some(found) => {
                let (Value::Object(found), Value::Object(wanted)) = (&found, item) else { unreachable!() };
                let mut change = difference(found, wanted, merging.items());
                change.insert(key.to_owned(), item[key].clone());
                changes.push(Value::Object(change));
            }
        }
    }
    let removed = from.iter().filter(|item| find(to, item).is_none());
    changes.extend(removed.map(|item| json!({"$patch": "delete", key: item[key]})));
    patch.insert(name.to_owned(), changes.into());
    patch.insert(format!("{SET_ORDER}/{name}"), to.iter().map(|item| json!({key: item[key]})).collect());
}

fn sets() -> impl Strategy<Value = Value> {
    prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4).prop_shuffle().prop_map(|items| json!(items))
}

fn inner(key: &'static str) -> impl Strategy<Value = Value> {
    (prop::option::of(0..3), prop::option::of(sets()), prop::option::of(sets())).prop_map(
        move |(v, tags, args)| {
            let mut fields = Fields::new();
            fields.insert("k".to_owned(), key.into());
            fields.extend(v.map(|v: i32| ("v".to_owned(), v.into())));
            fields.extend(tags.map(|tags| ("tags".to_owned(), tags)));
            fields.extend(args.map(|args| ("args".to_owned(), args)));
            Value::Object(fields)
        },
    )
}

fn lists() -> impl Strategy<Value = Value> {
    prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4)
        .prop_shuffle()
        .prop_flat_map(|keys| keys.into_iter().map(inner).collect::<Vec<_>>())
        .prop_map(Value::from)
}

fn objects() -> impl Strategy<Value = Fields> {
    let n = (0..3).prop_map(Value::from);
    let fields = [("items", lists().boxed()), ("atomic", lists().boxed()), ("set", sets().boxed())];
    let fields = fields.into_iter().chain([("one", inner("x").boxed()), ("n", n.boxed())]);
    let fields = fields.map(|(name, values)| prop::option::of(values).prop_map(move |value| (name, value)));
    fields.collect::<Vec<_>>().prop_map(|fields| {
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    })
}

proptest! {
    #[test]
    fn a_difference_leads_to_its_target(from in objects(), to in objects()) {
        let schema: Arc<Schema> = schema();
        let patch = Value::Object(difference(&from, &to, Some(&schema)));
        let outcome = apply(Value::Object(from), patch.clone(), &schema);
        prop_assert_eq!(outcome, Ok(Value::Object(to)), "{}", patch);
    }

    #[test]
    fn what_the_patch_does_not_name_keeps_its_order(live in lists(), change in lists()) {
        let keys = |items: &Value| -> Vec<Value> {
            items.as_array().into_iter().flatten().map(|item| item["k"].clone()).collect()
        };
        let outcome = apply(json!({"items": live}), json!({"items": change}), &schema()).expect("merges");
        let (live, change, outcome) = (keys(&live), keys(&change), keys(&outcome["items"]));
        let named: Vec<_> = outcome.iter().filter(|key| change.contains(key)).cloned().collect();
        let others: Vec<_> = outcome.iter().filter(|key| !change.contains(key)).cloned().collect();
        prop_assert_eq!(named, change.clone());
        prop_assert_eq!(others, live.into_iter().filter(|key| !change.contains(key)).collect::<Vec<_>>());
    }
}
