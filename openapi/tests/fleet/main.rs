//! Holon's own kinds: their types (`api::fleet`) and their definitions must agree.
//!
//! `samples` has objects of each kind in which every field of its type is set: after a field is added to a type,
//! `samples` does not compile until it is set there. The fields in the samples must equal those in the schema, and a
//! server must accept the samples.

mod samples;

use std::collections::BTreeSet;
use std::sync::Arc;

use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec;
use openapi::codec::{FieldValidation, Syntax};
use openapi::crd::CustomKind;
use openapi::{catalog, defaulting, validation};
use samples::Sample;
use serde_json::{Map, Value, json};

/// Returns the definitions as a server would store them.
fn definitions() -> Vec<Value> {
    let row = catalog::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("built in");
    let read = |text: &&str| {
        let schema = row.schema().expect("built in");
        let decoded = codec::decode_as(text.as_bytes(), Syntax::Yaml, schema).unwrap();
        assert_eq!(decoded.strict_errors, [], "{text}");
        let mut definition = decoded.value;
        defaulting::apply_defaults(row, &mut definition);
        definition
    };
    api::fleet::DEFINITIONS.iter().map(read).collect()
}

fn row(definition: &Value) -> Arc<ResourceInfo> {
    CustomKind::of(definition).resources.remove(0)
}

fn sample(definition: &Value) -> Sample {
    let kind = &definition["spec"]["names"]["kind"];
    samples::all().into_iter().find(|sample| kind == sample.resource.kind).unwrap()
}

fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

#[test]
fn every_definition_is_accepted_without_warnings() {
    let row = catalog::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("built in");
    for definition in definitions() {
        let name = &definition["metadata"]["name"];
        assert_eq!(validation::validate_create(row, &definition), [], "{name}");
        assert_eq!(
            validation::definition::definition_warnings(None, &definition),
            Vec::<String>::new(),
            "{name}"
        );
    }
}

#[test]
fn types_and_definitions_have_the_same_names() {
    for definition in definitions() {
        let (made, named) = (row(&definition), sample(&definition).resource);
        assert_eq!(
            (&*made.kind, &*made.plural, made.namespaced),
            (named.kind, named.plural, named.namespaced)
        );
        assert_eq!(made.api_version(), named.api_version());
        assert!(made.subresource("status").is_some(), "{}", named.kind);
    }
}

#[test]
fn types_and_schemas_have_the_same_fields() {
    for definition in definitions() {
        let (mut typed, mut described) = (BTreeSet::new(), BTreeSet::new());
        for object in sample(&definition).objects {
            fields_of(&object, schema(&definition), "", &mut typed);
        }
        fields_in(schema(&definition), "", &mut described);
        let kind = &definition["spec"]["names"]["kind"];
        let (only_typed, only_described) = (&typed - &described, &described - &typed);
        assert!(only_typed.is_empty(), "{kind}: in the type alone: {only_typed:#?}");
        assert!(only_described.is_empty(), "{kind}: in the schema alone: {only_described:#?}");
    }
}

#[test]
fn a_server_accepts_every_field_of_the_types_and_keeps_it() {
    for definition in definitions() {
        let row = row(&definition);
        for object in sample(&definition).objects {
            assert_eq!(accepted(&row, &object).expect("acceptable"), object);
        }
    }
}

#[test]
fn defaults_of_the_server_equal_those_of_the_types() {
    for definition in definitions() {
        let (row, sample) = (row(&definition), sample(&definition));
        let defaulted = accepted(&row, &sample.least).expect("acceptable");
        let read = (sample.read)(defaulted.clone()).expect("readable");
        assert_eq!(read, (sample.read)(sample.least).expect("readable"), "{}", row.kind);
        assert_eq!(read["spec"], defaulted["spec"], "{}", row.kind);
    }
}

#[test]
fn every_field_has_a_description() {
    fn mute(schema: &Value, path: &str, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{path}.{name}");
            // These fields are the same in all kinds, and definitions must not describe them.
            if property["description"].as_str().is_none() && !at.starts_with(".metadata") {
                found.push(at.clone());
            }
            mute(property, &at, found);
        }
        for keyword in ["items", "additionalProperties"].iter().filter_map(|name| schema.get(name)) {
            mute(keyword, path, found);
        }
    }
    for definition in definitions() {
        let mut found = Vec::new();
        mute(schema(&definition), "", &mut found);
        assert!(found.is_empty(), "{}: {found:#?}", definition["metadata"]["name"]);
    }
}

/// Common errors of users, and the errors about them.
#[test]
fn errors_are_reported_with_their_paths() {
    let check = |kind: &str, spec: Value, expected: &str| {
        let definition =
            definitions().into_iter().find(|found| found["spec"]["names"]["kind"] == kind).unwrap();
        let mut object = sample(&definition).least;
        object["spec"] = spec;
        let refused = accepted(&row(&definition), &object).expect_err("refused");
        assert!(refused.contains(expected), "{kind} {}:\n{refused}", object["spec"]);
    };
    let secret = json!({ "secretRef": { "namespace": "a", "name": "b" } });
    check(
        "PhysicalCluster",
        json!({ "connection": { "push": secret, "pull": {} } }),
        "spec.connection: Too many",
    );
    check("PhysicalCluster", json!({ "connection": {} }), "spec.connection: Invalid value");
    check(
        "PhysicalCluster",
        json!({ "connection": { "push": {} } }),
        "spec.connection.push.secretRef: Required value",
    );
    check(
        "PhysicalCluster",
        json!({ "bounds": { "cpu": "four" } }),
        "spec.bounds.cpu: Invalid value: \"four\"",
    );
    check("PhysicalCluster", json!({ "dedicatedTo": "/team-a" }), "spec.dedicatedTo: Invalid value");
    check(
        "PhysicalCluster",
        json!({ "taints": [{ "key": "a", "effect": "No" }] }),
        "spec.taints[0].effect: Unsupported value: \"No\"",
    );
    check("PhysicalCluster", json!({ "schedulabel": false }), "unknown field \"spec.schedulabel\"");
    check("Placement", json!({ "division": "Half" }), "supported values: \"Divide\", \"Duplicate\"");
    check("Placement", json!({ "numberOfClusters": 0 }), "spec.numberOfClusters: Invalid value: 0");
    check(
        "Placement",
        json!({ "rollout": { "minSuccessTime": "soon" } }),
        "spec.rollout.minSuccessTime: Invalid value",
    );
    check(
        "Placement",
        json!({ "rollout": { "maxFailures": "most" } }),
        "spec.rollout.maxFailures: Invalid value",
    );
    check("Override", json!({}), "spec.rules: Required value");
    check(
        "Override",
        json!({ "rules": [{ "jsonPatch": [{ "op": "put", "path": "/a" }] }] }),
        "spec.rules[0].jsonPatch[0].op: Unsupported value",
    );
    check(
        "StatusRule",
        json!({ "target": { "kind": "A" }, "fields": [{ "path": "/spec/a", "expression": "1" }] }),
        "spec.fields[0].path: Invalid value",
    );
}

/// Returns the resulting object of a create, or the error.
fn accepted(row: &ResourceInfo, object: &Value) -> Result<Value, String> {
    let schema = row.schema().expect("defined");
    let text = object.to_string();
    let decoded =
        codec::decode_as(text.as_bytes(), Syntax::Json, schema).map_err(|error| error.to_string())?;
    FieldValidation::Strict.enforce(&decoded.strict_errors)?;
    let mut object = decoded.value;
    defaulting::apply_defaults(row, &mut object);
    let faults = validation::validate_create(row, &object);
    match faults.is_empty() {
        true => Ok(object),
        false => Err(faults.iter().map(|fault| format!("{fault}\n")).collect()),
    }
}

/// Collects the fields of a value, where its schema has fields rather than keys of a map.
fn fields_of(value: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => {
            items.iter().for_each(|item| fields_of(item, &schema["items"], &format!("{path}[]"), found));
        }
        Value::Object(fields) if schema["additionalProperties"].is_object() => {
            let values = fields.values();
            values.for_each(|value| {
                fields_of(value, &schema["additionalProperties"], &format!("{path}{{}}"), found)
            });
        }
        Value::Object(_) if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !path.is_empty() || is_ours(name)) {
                let at = format!("{path}.{name}");
                found.insert(at.clone());
                fields_of(value, &schema["properties"][name], &at, found);
            }
        }
        _ => {}
    }
}

/// Collects the fields of a schema.
fn fields_in(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let none = Map::new();
    for (name, property) in schema["properties"].as_object().unwrap_or(&none) {
        if !path.is_empty() || is_ours(name) {
            let at = format!("{path}.{name}");
            found.insert(at.clone());
            fields_in(property, &at, found);
        }
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[keyword].is_object() {
            fields_in(&schema[keyword], &format!("{path}{mark}"), found);
        }
    }
}

/// Returns whether a top-level field is specific to the kind.
fn is_ours(name: &str) -> bool {
    !matches!(name, "apiVersion" | "kind" | "metadata")
}
