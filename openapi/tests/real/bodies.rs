//! Unusual, mistyped and malformed bodies.

use openapi::codec::{FieldValidation, Syntax, decode_as, mismatch_message};
use serde_json::{Value, json};

use super::SampledKind;
use super::cluster::{Cluster, ServerResponse};

pub(crate) fn compare(cluster: &Cluster, kind: &SampledKind, differences: &mut Vec<String>) {
    for body in json_bodies(&kind.sample) {
        compare_one(cluster, kind, &body, Syntax::Json, differences);
    }
    let sample = kind.sample.to_string();
    let yaml = [
        format!("{sample}\n"),
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n  name: b\nspec: {}\nbogus: 1\n"
            .to_owned(),
        "metadata: {name: yes}\n".to_owned(),
        "metadata: {name: 0777, labels: {1: a}}\n".to_owned(),
        "spec: {replicas: 1e0, paused: on}\nmetadata: {labels: {y: 'a', 08: 'b'}}\n".to_owned(),
        "- a\n".to_owned(),
        "".to_owned(),
        "metadata: &m {name: x, labels: {a: b}}\nspec: {template: {metadata: *m}}\n".to_owned(),
        "metadata: {annotations: {a: 2020-01-01, b: 1:30}}\n".to_owned(),
    ];
    for body in yaml {
        compare_one(cluster, kind, &body, Syntax::Yaml, differences);
    }
}

/// The result of decoding: an error, or warnings.
#[derive(PartialEq, Debug)]
enum DecodeOutcome {
    Refused(String),
    Decoded(Vec<String>),
}

fn compare_one(
    cluster: &Cluster,
    kind: &SampledKind,
    body: &str,
    syntax: Syntax,
    differences: &mut Vec<String>,
) {
    for (validation, word) in [(FieldValidation::Warn, "Warn"), (FieldValidation::Strict, "Strict")] {
        let content_type = if syntax == Syntax::Json { "application/json" } else { "application/yaml" };
        let path = format!("{}?dryRun=All&fieldValidation={word}", kind.path);
        let theirs = theirs(cluster.send("POST", &path, content_type, body));
        let ours = ours(kind, body, syntax, validation);
        if ours != theirs {
            differences.push(format!("body {body} ({word})\n  theirs {theirs:?}\n  ours   {ours:?}"));
        }
    }
}

/// Validation comes after decoding, so after its errors the body counts as decoded.
fn theirs(answer: ServerResponse) -> DecodeOutcome {
    match answer.code {
        400 => DecodeOutcome::Refused(answer.message().to_owned()),
        _ => {
            let about_decoding =
                |text: &String| text.contains("field \"") || text.contains("already set in map");
            DecodeOutcome::Decoded(answer.warnings.into_iter().filter(about_decoding).collect())
        }
    }
}

fn ours(kind: &SampledKind, body: &str, syntax: Syntax, validation: FieldValidation) -> DecodeOutcome {
    let named = (kind.kind, "v1");
    match decode_as(body.as_bytes(), syntax, &kind.schema) {
        Err(error) => DecodeOutcome::Refused(error.message(named, body.as_bytes(), syntax)),
        Ok(read) => match validation.enforce(&read.strict_errors) {
            Ok(warnings) => DecodeOutcome::Decoded(warnings),
            Err(why) => DecodeOutcome::Refused(mismatch_message(kind.kind, named, &why)),
        },
    }
}

fn json_bodies(sample: &Value) -> Vec<String> {
    let container = "/spec/template/spec/containers/0";
    let mut bodies: Vec<String> = [
        ("/spec/replicas", json!("3")),
        ("/spec/replicas", json!(1.5)),
        ("/spec/replicas", json!(3000000000u64)),
        ("/spec/replicas", json!(null)),
        ("/spec/replicas", json!([])),
        ("/metadata/labels", json!({"a": 1})),
        ("/metadata/labels", json!({"a": null})),
        ("/metadata/labels", json!(["a"])),
        ("/metadata/name", json!({})),
        ("/metadata/finalizers", json!("a")),
        ("/metadata/finalizers", json!([1])),
        ("/spec", json!([1])),
        ("/spec/paused", json!("yes")),
        ("/spec/strategy", json!({"rollingUpdate": {"maxSurge": true}})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxSurge": 1.5}})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxSurge": [1]}})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxSurge": 3000000000u64}})),
        ("/metadata/creationTimestamp", json!("yesterday")),
        ("/metadata/creationTimestamp", json!("2020-02-30T00:00:00Z")),
        ("/metadata/creationTimestamp", json!(5)),
        ("/metadata/creationTimestamp", json!({})),
        ("/spec/template/spec/containers", json!({})),
        ("/spec/template/spec/containers", json!([1])),
        ("/spec/template/spec/terminationGracePeriodSeconds", json!(1.5)),
        (&format!("{container}/name"), json!(true)),
        (&format!("{container}/resources"), json!({"limits": {"cpu": "many"}})),
        (&format!("{container}/resources"), json!({"limits": {"cpu": true}})),
        (&format!("{container}/resources"), json!({"limits": {"cpu": 0.5}})),
        (&format!("{container}/resources"), json!({"limits": {"cpu": {}}})),
        (&format!("{container}/bogus"), json!({"deep": {"er": 1}})),
        ("/bogus", json!(1)),
        ("/metadata/bogus", json!(1)),
        ("/spec/template/spec/volumes/0/bogus", json!(1)),
        ("/kind", json!(5)),
        ("/apiVersion", json!([])),
    ]
    .into_iter()
    .map(|(path, value)| {
        let mut body = sample.clone();
        let (parent, name) = path.rsplit_once('/').expect("a path");
        body.pointer_mut(parent).expect("a parent")[name] = value;
        body.to_string()
    })
    .collect();
    bodies.extend(
        [
            "", "{", "[]", "\"x\"", "5", "null", "nonsense", "{\"kind\"", "{\"a\": tru}", "{\"a\": fals }", "{\"a\" 1}",
            "{\"a\": 1,}", "{\"a\": [1,]}", "{\"a\": [1 2]}", "{a: 1}", "{} x", "{\"a\": \"\\q\"}", "{\"a\": 1e}", "{\"a\": -}",
            "{\"a\": 1.}", "{\"a\": \"\n\"}", "{\"spec\": {\"replicas\": 1, \"zzz\": 1, \"replicas\": 2, \"aaa\": {\"b\": 1, \"b\": 2}}}",
            "{\"metadata\": {\"labels\": {\"b\": \"1\", \"b\": \"2\", \"a\": \"1\", \"a\": \"2\"}}, \"kind\": \"Deployment\", \"kind\": \"Deployment\"}",
            "{\"metadata\": {\"Name\": \"x\"}, \"Spec\": {}}",
        ]
        .map(str::to_owned),
    );
    bodies
}
