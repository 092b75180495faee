//! Applying the difference of two objects, as kubectl would compute it, to the first gives the second.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::super::*;
use super::{apply, schema};
use crate::schema::SchemaRef;
use crate::schema::builtin;

/// Returns the patch that turns `from` into `to`, as kubectl would write it.
fn difference(from: &Fields, to: &Fields, schema: Option<&Schema>) -> Fields {
    let mut patch = Fields::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, desired) in to {
        let merging = Merging::of(schema, name);
        match (from.get(name), desired) {
            (Some(found), desired) if found == desired => {}
            (Some(Value::Object(from)), Value::Object(to)) if !merging.replaces => {
                let mut change = difference(from, to, merging.schema);
                // In a union, the fields to keep are listed, so that all others are deleted.
                if retains_keys(schema, name) {
                    let kept: Vec<_> = to.keys().cloned().map(Value::from).collect();
                    change.insert(RETAIN_KEYS.to_owned(), kept.into());
                }
                patch.insert(name.clone(), Value::Object(change));
            }
            (Some(Value::Array(from)), Value::Array(to)) if merging.merges => {
                list_difference(&mut patch, name, from, to, merging);
            }
            (_, desired) => drop(patch.insert(name.clone(), desired.clone())),
        }
    }
    patch
}

fn retains_keys(schema: Option<&Schema>, name: &str) -> bool {
    match schema.map(|schema| &schema.shape) {
        Some(Shape::Object(object)) => object.fields.get(name).is_some_and(|field| field.patch_retain_keys),
        _ => false,
    }
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
    let find =
        |items: &[Value], desired: &Value| items.iter().find(|item| item[key] == desired[key]).cloned();
    let mut changes = Vec::new();
    for item in to {
        match find(from, item) {
            None => changes.push(item.clone()),
            Some(found) => {
                let (Value::Object(found), Value::Object(desired)) = (&found, item) else { unreachable!() };
                let mut change = difference(found, desired, merging.items());
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
    fn items_outside_the_patch_keep_their_order(live in lists(), change in lists()) {
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

// --- The same for built-in kinds ---

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Values that fit a schema. Lists that are merged have each key once; everything else is arbitrary.
fn values(schema: &SchemaRef, depth: usize) -> BoxedStrategy<Value> {
    match &schema.shape {
        Shape::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Integer | Shape::IntOrString | Shape::Number => (0..3).prop_map(Value::from).boxed(),
        Shape::String => prop::sample::select(&NAMES[..]).prop_map(Value::from).boxed(),
        Shape::Any => Just(json!({"any": "thing"})).boxed(),
        Shape::Map(map) => {
            let values = values(&map.values, depth);
            prop::collection::btree_map(prop::sample::select(&NAMES[..]), values, 0..3)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
                .prop_map(Value::Object)
                .boxed()
        }
        Shape::List(list) => {
            prop::collection::vec(values(&list.items, depth), 0..3).prop_map(Value::from).boxed()
        }
        Shape::Object(_) => fields(schema, depth).prop_map(Value::Object).boxed(),
    }
}

fn fields(schema: &SchemaRef, depth: usize) -> BoxedStrategy<Fields> {
    let Shape::Object(object) = &schema.shape else { return Just(Fields::new()).boxed() };
    if depth == 0 {
        return Just(Fields::new()).boxed();
    }
    // A few of the many fields, different ones in each case.
    let names: Vec<_> = object.fields.keys().cloned().collect();
    let schema = schema.clone();
    prop::sample::subsequence(names.clone(), 0..=names.len().min(4))
        .prop_flat_map(move |chosen| {
            let fields = chosen.into_iter().map(|name| {
                let merging = Merging::of(Some(&schema), &name);
                let values = match (merging.merges, merging.key) {
                    (true, Some(key)) => keyed(merging, key, depth - 1),
                    (true, None) => prop::sample::subsequence(&NAMES[..], 1..=4)
                        .prop_shuffle()
                        .prop_map(|items| json!(items))
                        .boxed(),
                    _ => values(field_schema(&schema, &name), depth - 1),
                };
                values.prop_map(move |value| (name.to_string(), value)).boxed()
            });
            fields.collect::<Vec<_>>()
        })
        .prop_map(|fields| fields.into_iter().collect())
        .boxed()
}

fn field_schema<'s>(schema: &'s SchemaRef, name: &str) -> &'s SchemaRef {
    let Shape::Object(object) = &schema.shape else { unreachable!("only objects have fields") };
    &object.fields[name].schema
}

/// A list of objects with distinct keys.
fn keyed(merging: Merging<'_>, key: &str, depth: usize) -> BoxedStrategy<Value> {
    let Some(Shape::List(list)) = merging.schema.map(|schema| &schema.shape) else {
        unreachable!("only lists have a merge key")
    };
    let (items, key) = (list.items.clone(), key.to_owned());
    let keys = prop::sample::subsequence(&NAMES[..], 1..=4).prop_shuffle();
    keys.prop_flat_map(move |keys| {
        let items = keys.iter().map(|_| fields(&items, depth.max(1))).collect::<Vec<_>>();
        let key = key.clone();
        items.prop_map(move |items| {
            let with_key = items.into_iter().zip(&keys).map(|(mut item, name)| {
                item.insert(key.clone(), (*name).into());
                Value::Object(item)
            });
            with_key.collect::<Vec<_>>().into()
        })
    })
    .boxed()
}

/// Two objects of the same kind, for kinds that are patched often.
fn pairs() -> impl Strategy<Value = (SchemaRef, Fields, Fields)> {
    let kinds: BTreeMap<_, _> = [("apps", "Deployment"), ("", "Service"), ("", "Pod"), ("", "ConfigMap")]
        .map(|(group, kind)| {
            let name = builtin::type_name(group, "v1", kind).expect("a kind of Kubernetes");
            (kind, builtin::schema(name).expect("with a schema").clone())
        })
        .into();
    let kinds: Vec<_> = kinds.into_values().collect();
    prop::sample::select(kinds).prop_flat_map(|schema| {
        let objects = || fields(&schema, 6);
        (Just(schema.clone()), objects(), objects())
    })
}

proptest! {
    #[test]
    fn a_difference_between_real_objects_leads_to_its_target((schema, from, to) in pairs()) {
        let patch = Value::Object(difference(&from, &to, Some(&schema)));
        let outcome = apply(Value::Object(from), patch.clone(), &schema);
        prop_assert_eq!(outcome, Ok(Value::Object(to)), "{}", patch);
    }
}
