//! Expensive definitions and objects: they must cause a response, little use of memory, and no panic.
//!
//! No test here measures time: work without end would make the test hang.

use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec;
use openapi::codec::Syntax;
use openapi::crd::CustomKind;
use openapi::validation::definition;
use openapi::{catalog, defaulting, validation};
use serde_json::{Map, Value, json};

use crate::bases;
use crate::pointers::collect_pointers;

fn definition(schema: Value) -> Value {
    let mut definition = bases().definitions["pairs"].clone();
    definition["spec"]["versions"] =
        json!([{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]);
    let row = catalog::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("built in");
    defaulting::apply_defaults(row, &mut definition);
    definition
}

fn with_spec(spec: Value) -> Value {
    definition(json!({ "type": "object", "properties": { "spec": spec } }))
}

fn object(spec: Value) -> Value {
    json!({ "apiVersion": "test.example.com/v1", "kind": "Pair", "metadata": { "name": "a" }, "spec": spec })
}

/// Decodes, defaults and validates an object. Returns the number of errors.
fn faults(row: &ResourceInfo, object: &Value) -> usize {
    let schema = row.schema().expect("it was made with one");
    let body = object.to_string().into_bytes();
    let mut read = codec::decode_as(&body, Syntax::Json, schema).expect("an object").value;
    defaulting::apply_defaults(row, &mut read);
    validation::validate_create(row, &read).len()
}

fn kind(definition: &Value) -> CustomKind {
    assert_eq!(definition::validate_create(definition), [], "a definition to accept");
    CustomKind::of(definition)
}

#[test]
fn ten_thousand_fields_are_many_and_no_more() {
    let fields: Map<String, Value> = (0..10_000)
        .map(|index| (format!("f{index}"), json!({ "type": "string", "default": "x", "maxLength": 3 })))
        .collect();
    let kind = kind(&with_spec(json!({ "type": "object", "properties": fields })));
    assert_eq!(faults(&kind.resources[0], &object(json!({}))), 0);
    assert_eq!(faults(&kind.resources[0], &object(json!({ "f77": "long" }))), 1);
}

#[test]
fn a_schema_is_as_deep_as_a_body_may_be() {
    let mut schema = json!({ "type": "string", "maxLength": 1 });
    let mut value = json!("xx");
    for _ in 0..50 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
        value = json!({ "a": value });
    }
    let kind = kind(&with_spec(schema));
    assert_eq!(faults(&kind.resources[0], &object(value)), 1);
}

#[test]
fn nested_conditions_are_each_validated_once() {
    let mut condition = json!({ "required": ["x"] });
    for _ in 0..14 {
        condition = json!({ "anyOf": [condition, condition] });
    }
    let mut spec = condition;
    spec["type"] = json!("object");
    spec["properties"] = json!({ "x": { "type": "string" } });
    let kind = kind(&with_spec(spec));
    assert!(faults(&kind.resources[0], &object(json!({}))) > 0);
}

/// As many conditions as a definition can have, for as many items as an object can have: too expensive, and rejected
/// with an error.
#[test]
fn unbounded_work_is_rejected() {
    let conditions: Vec<Value> = (0..20_000).map(|index| json!({ "minLength": index % 7 })).collect();
    let spec = json!({ "type": "array", "items": { "type": "string", "allOf": conditions } });
    let kind = kind(&with_spec(spec));
    let items: Vec<Value> = vec![json!("abcdefgh"); 200_000];
    let body = object(items.into());
    let mut found = validation::validate_create(&kind.resources[0], &body);
    let last = found.pop().expect("it is not accepted either");
    assert!(last.detail.contains("too large"), "{last}");
}

#[test]
fn the_cost_of_patterns_is_counted_before_they_are_compiled() {
    let check = |pattern: &str| {
        let definition = with_spec(json!({ "type": "string", "pattern": pattern }));
        definition::validate_create(&definition)
            .into_iter()
            .map(|error| error.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(check("^(a+)+$"), Vec::<String>::new(), "no harm in an engine without backtracking");
    assert_eq!(check("^.{1,1000}$"), Vec::<String>::new());
    assert_eq!(check("((a{500}){500}){500}").len(), 1);
    // Each pattern is fine, and all of them together are not.
    let many: Map<String, Value> = (0..20_000)
        .map(|index| (format!("f{index}"), json!({ "type": "string", "pattern": "^.{1,1000}$" })))
        .collect();
    assert!(
        !definition::validate_create(&with_spec(json!({ "type": "object", "properties": many }))).is_empty()
    );
    let kind = kind(&with_spec(json!({ "type": "string", "pattern": "^(a+)+$" })));
    assert_eq!(faults(&kind.resources[0], &object(json!("a".repeat(100_000) + "b"))), 1);
}

/// Values of the wrong type in any place cause an error, and no panic, even with a definition that should have been
/// rejected.
#[test]
fn strange_values_cause_no_panic() {
    let strange =
        [json!(null), json!([]), json!({}), json!(-1), json!("\u{e4} *"), json!([[{}]]), json!(true)];
    let bases = bases();
    let sample = &bases.objects["sample"];
    for base in bases.definitions.values() {
        let mut pointers = Vec::new();
        collect_pointers(base, String::new(), &mut pointers);
        for (index, pointer) in pointers.into_iter().enumerate() {
            let mut odd = base.clone();
            *odd.pointer_mut(&pointer).expect("the pointer comes from this object") =
                strange[index % strange.len()].clone();
            definition::validate_create(&odd);
            definition::validate_update(base, &odd);
            definition::definition_warnings(Some(base), &odd);
            for row in &CustomKind::of(&odd).resources {
                validation::validate_create(row, sample);
                validation::validate_update(row, sample, &strange[(index + 1) % strange.len()]);
                defaulting::apply_defaults(row, &mut sample.clone());
                openapi::conversion::from_stored(row, sample.clone());
            }
        }
    }
}
