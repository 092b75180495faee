//! Properties of every apply.
//!
//! The kind in these tests has everything that can be shared: entries of a map, items with one and with two key fields,
//! values of a set, atomic lists and objects, and fields without a schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::applied_fields;
use super::super::schema_type::SchemaType;
use super::super::{FieldManager, ResetFields, fields_v1};
use crate::schema::Origin;
use crate::schema::Schema;
use crate::schema::parse;

fn schema() -> Schema {
    let text = json!({ "type": "string" });
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let item = object(json!({ "name": text, "port": { "type": "integer", "default": 80 }, "value": text,
        "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": text } }));
    let list = |kind: &str, keys: Value| {
        json!({
            "type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": keys, "items": item,
        })
    };
    let spec = object(json!({
        "text": text,
        "map": { "type": "object", "additionalProperties": text },
        "whole": { "type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text },
        "named": list("map", json!(["name"])),
        "paired": list("map", json!(["name", "port"])),
        "plain": list("atomic", Value::Null),
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": text },
        "any": { "x-kubernetes-preserve-unknown-fields": true },
    }));
    let kind = object(json!({
        "apiVersion": text, "kind": text, "metadata": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "spec": spec,
    }));
    parse::schema(&kind, Origin::Custom, &mut |_| Arc::new(Schema::default()))
}

/// An object with several managers.
struct TestObject {
    schema: Schema,
    live: Value,
}

impl TestObject {
    fn new() -> TestObject {
        TestObject {
            schema: schema(),
            live: json!({ "apiVersion": "v1", "kind": "K", "metadata": { "uid": "u" } }),
        }
    }

    fn apply(&mut self, manager: &str, spec: &Value, force: bool) -> bool {
        let writer = FieldManager {
            manager,
            api_version: "v1",
            subresource: "",
            schema: &self.schema,
            blank: &json!({}),
            reset: ResetFields::These(&[]),
            now: "2026-01-01T00:00:00Z",
            knows: &|_| true,
        };
        let mut config = json!({ "apiVersion": "v1", "kind": "K", "metadata": {} });
        if !spec.is_null() {
            config["spec"] = spec.clone();
        }
        let Ok(applied) = writer.applied(&self.live, &config, force) else { return false };
        self.live = applied.object;
        match applied.managed_fields {
            Some(entries) => self.live["metadata"]["managedFields"] = entries,
            None => drop(self.live["metadata"].as_object_mut().unwrap().remove("managedFields")),
        }
        true
    }

    /// Returns the object without times and without the order of items, both of which depend on the order of applies.
    fn settled(&self) -> Value {
        fn sort(value: &mut Value) {
            match value {
                Value::Array(items) => {
                    items.iter_mut().for_each(sort);
                    items.sort_by_key(Value::to_string);
                }
                Value::Object(fields) => {
                    fields.remove("time");
                    fields.values_mut().for_each(sort);
                }
                _ => {}
            }
        }
        let mut live = self.live.clone();
        sort(&mut live);
        live
    }
}

fn word() -> impl Strategy<Value = String> {
    "[a-d]"
}

fn items() -> impl Strategy<Value = Value> {
    let tags = proptest::collection::btree_set(word(), 1..3);
    let item = (proptest::option::of(80..82u8), proptest::option::of(word()), proptest::option::of(tags));
    // A map by name, so that no two items have the same key.
    proptest::collection::btree_map(word(), item, 1..4).prop_map(|items| {
        let items = items.into_iter().map(|(name, (port, value, tags))| {
            let mut item = json!({ "name": name });
            let members = [
                ("port", port.map(Value::from)),
                ("value", value.map(Value::from)),
                ("tags", tags.map(|tags| json!(tags))),
            ];
            for (field, value) in members {
                if let Some(value) = value {
                    item[field] = value;
                }
            }
            item
        });
        Value::Array(items.collect())
    })
}

/// A value for one of the fields.
fn field() -> impl Strategy<Value = (&'static str, Value)> {
    let map = || proptest::collection::btree_map(word(), word(), 1..4).prop_map(|map| json!(map));
    let set = proptest::collection::btree_set(word(), 1..4).prop_map(|set| json!(set));
    let any = (word(), map(), items()).prop_map(|(key, map, list)| json!({ key: map, "list": list }));
    prop_oneof![
        word().prop_map(|text| ("text", text.into())),
        map().prop_map(|map| ("map", map)),
        map().prop_map(|map| ("whole", map)),
        items().prop_map(|items| ("named", items)),
        items().prop_map(|items| ("paired", items)),
        items().prop_map(|items| ("plain", items)),
        set.prop_map(|set| ("set", set)),
        any.prop_map(|any| ("any", any)),
    ]
}

fn spec() -> impl Strategy<Value = Value> {
    proptest::collection::vec(field(), 1..6).prop_map(|fields| {
        let fields: BTreeMap<_, _> = fields.into_iter().collect();
        json!(fields)
    })
}

/// Returns the value with names of entries and items that no [`spec`] has.
fn elsewhere(value: &Value, field: &str) -> Value {
    let other = |text: &str| format!("{text}{text}");
    match (field, value) {
        ("map" | "any", Value::Object(fields)) => {
            Value::Object(fields.iter().map(|(key, value)| (other(key), value.clone())).collect())
        }
        ("named" | "paired", Value::Array(items)) => {
            let renamed = |item: &Value| {
                let mut item = item.clone();
                item["name"] = other(item["name"].as_str().unwrap()).into();
                item
            };
            Value::Array(items.iter().map(renamed).collect())
        }
        ("set", Value::Array(items)) => items.iter().map(|item| other(item.as_str().unwrap())).collect(),
        _ => value.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn twice_changes_nothing(first in spec(), second in spec()) {
        let mut object = TestObject::new();
        prop_assert!(object.apply("one", &first, false));
        object.apply("two", &second, true);
        let before = object.live.clone();
        prop_assert!(object.apply("two", &second, false));
        prop_assert_eq!(&object.live, &before);
    }

    #[test]
    fn disjoint_applies_commute(one in spec(), two in spec()) {
        let disjoint: Map<String, Value> = two.as_object().unwrap().iter()
            .filter(|(field, _)| matches!(field.as_str(), "map" | "any" | "named" | "paired" | "set") || one.get(*field).is_none())
            .map(|(field, value)| (field.clone(), elsewhere(value, field)))
            .collect();
        let two = Value::Object(disjoint);
        let both = |order: [(&str, &Value); 2]| {
            let mut object = TestObject::new();
            for (manager, spec) in order {
                assert!(object.apply(manager, spec, false), "{manager} conflicts");
            }
            object.settled()
        };
        prop_assert_eq!(both([("one", &one), ("two", &two)]), both([("two", &two), ("one", &one)]));
    }

    /// The object contains exactly what the remaining managers apply.
    #[test]
    fn a_dropped_field_is_removed_unless_it_has_another_owner(one in spec(), two in spec()) {
        let mut alone = TestObject::new();
        alone.apply("two", &two, false);
        let mut object = TestObject::new();
        object.apply("one", &one, false);
        object.apply("two", &two, true);
        let applied = object.apply("one", &Value::Null, false);
        prop_assert!(applied);
        let schema = schema();
        let kept = applied_fields::fields(&object.live["spec"], SchemaType::of(field_schema(&schema)));
        let expected = applied_fields::fields(&alone.live["spec"], SchemaType::of(field_schema(&schema)));
        prop_assert_eq!(kept, expected);
        object.apply("two", &Value::Null, false);
        prop_assert_eq!(&object.live, &TestObject::new().live);
    }

    #[test]
    fn owners_round_trip(spec in spec()) {
        let schema = schema();
        let set = applied_fields::fields(&spec, SchemaType::of(field_schema(&schema)));
        let written = fields_v1::encode(&set);
        let read = fields_v1::decode(&written).expect("we wrote it");
        prop_assert_eq!(&read, &set);
        prop_assert_eq!(&fields_v1::encode(&read), &written);
    }
}

fn field_schema(schema: &Schema) -> &Schema {
    let crate::schema::Shape::Object(object) = &schema.shape else { panic!("a kind is an object") };
    &object.fields["spec"].schema
}
