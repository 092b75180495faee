//! Whatever users write into definitions, the controllers reach a steady state.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{DEFINITIONS, TestServer, widgets};

/// A controller in a loop writes some hundred times a second.
const A_WHILE: Duration = Duration::from_millis(500);

/// Returns a definition of `plural` in `group`, with these additional names.
fn definition(plural: &str, group: &str, names: Value) -> Value {
    let mut definition = widgets(json!({}));
    let kind = format!("Kind{plural}");
    let mut all =
        json!({ "plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List") });
    for (field, name) in names.as_object().unwrap() {
        all[field] = name.clone();
    }
    definition["metadata"] = json!({
        "name": format!("{plural}.{group}"),
        "annotations": { "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1" },
    });
    definition["spec"]["group"] = group.into();
    definition["spec"]["names"] = all;
    definition
}

/// Returns the version of every definition, once each has its conditions.
async fn versions(test: &TestServer) -> BTreeMap<String, Value> {
    let reported =
        |definition: &Value| definition["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
    let all = |body: &Value| body["items"].as_array().cloned().unwrap_or_default();
    let body = test.until(DEFINITIONS, |answer| all(&answer.body).iter().all(reported)).await.body;
    let version = |definition: &Value| {
        (
            definition["metadata"]["name"].as_str().unwrap().to_owned(),
            definition["metadata"]["resourceVersion"].clone(),
        )
    };
    all(&body).iter().map(version).collect()
}

/// Checks that nothing is written after a few rounds of the controllers.
async fn assert_no_writes(test: &TestServer) {
    versions(test).await;
    tokio::time::sleep(A_WHILE).await;
    let before = versions(test).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(versions(test).await, before, "a controller keeps writing");
}

/// A tenant defined `apiservices.apiregistration.k8s.io`, which is built in and not served. In every second reconcile
/// its names counted as taken by itself, so the controller removed them and added them again, about 385 times a second,
/// each time with a write to disk, for as long as the definition existed.
#[tokio::test]
async fn a_definition_of_a_built_in_kind_is_rejected_without_a_write_loop() {
    let test = TestServer::new().await;
    let reserved = [
        ("apiservices", "apiregistration.k8s.io"),
        ("validatingwebhookconfigurations", "admissionregistration.k8s.io"),
        ("customresourcedefinitions", "apiextensions.k8s.io"),
        ("widgets", "apiextensions.k8s.io"),
        ("networkpolicies", "networking.k8s.io"),
    ];
    for (plural, group) in reserved {
        test.create(DEFINITIONS, definition(plural, group, json!({}))).await;
    }
    assert_no_writes(&test).await;
    for (plural, group) in reserved {
        let name = format!("{plural}.{group}");
        // The tenant may write a status that claims the rejected names.
        let claimed = definition(plural, group, json!({}))["spec"]["names"].clone();
        let yes = json!({ "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let condition = |kind: &str| {
            let mut condition = yes.clone();
            condition["type"] = kind.into();
            condition
        };
        let twice = ["Established", "NamesAccepted", "Established"].map(condition);
        let status = json!({ "status": { "acceptedNames": claimed, "conditions": twice } });
        test.merge(&format!("{DEFINITIONS}/{name}/status"), status).await;
    }
    assert_no_writes(&test).await;
    for (plural, group) in reserved {
        let reported = test.condition("", &format!("{plural}.{group}"), "NamesAccepted", "False").await;
        assert_eq!(reported["status"]["acceptedNames"], json!({ "plural": "", "kind": "" }), "{plural}");
        assert_eq!(test.get(&format!("/apis/{group}/v1/{plural}x")).await.code, 404, "{plural}");
    }
    let reported = test.condition("", "apiservices.apiregistration.k8s.io", "Established", "False").await;
    assert_eq!(reported["status"]["conditions"][1]["reason"], "Reserved", "{}", reported["status"]);
    assert_eq!(
        reported["status"]["conditions"][1]["message"],
        "\"apiservices.apiregistration.k8s.io\" is a built-in kind"
    );
}

/// Names that conflict, in every field that can: with another definition, with themselves, with built-in kinds.
#[tokio::test]
async fn definitions_with_the_same_names_converge() {
    let test = TestServer::new().await;
    let definitions = [
        (
            "as",
            "g.example",
            json!({ "singular": "a", "kind": "A", "listKind": "AList", "shortNames": ["x", "y"] }),
        ),
        ("bs", "g.example", json!({ "singular": "a", "shortNames": ["as", "x", "z"] })),
        ("cs", "g.example", json!({ "kind": "A" })),
        ("ds", "g.example", json!({ "listKind": "AList", "kind": "AListX" })),
        ("es", "g.example", json!({ "kind": "AList", "singular": "cs", "shortNames": ["es", "es"] })),
        ("fs", "g.example", json!({ "singular": "es", "shortNames": ["bs"], "categories": ["all", "all"] })),
        ("others", "networking.k8s.io", json!({ "kind": "NetworkPolicy", "shortNames": ["netpol", "ing"] })),
        ("others", "apiregistration.k8s.io", json!({ "kind": "APIService", "singular": "apiservices" })),
        ("others", "x.k8s.io", json!({})),
    ];
    for (plural, group, names) in &definitions {
        test.create(DEFINITIONS, definition(plural, group, names.clone())).await;
    }
    let mut unapproved = definition("more", "x.k8s.io", json!({}));
    unapproved["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "unapproved, for now" });
    test.create(DEFINITIONS, unapproved.clone()).await;
    unapproved["metadata"] = json!({ "name": "more.x.k8s.io" });
    assert_eq!(test.send("POST", DEFINITIONS, unapproved).await.code, 422);
    assert_no_writes(&test).await;
    // Each claims the names of the next in its status; then the first is deleted and its names are free.
    for (one, other) in definitions.iter().zip(definitions.iter().cycle().skip(1)) {
        let claimed = definition(other.0, other.1, other.2.clone())["spec"]["names"].clone();
        let path = format!("{DEFINITIONS}/{}.{}/status", one.0, one.1);
        test.merge(&path, json!({ "status": { "acceptedNames": claimed } })).await;
    }
    assert_no_writes(&test).await;
    assert_eq!(test.send("DELETE", &format!("{DEFINITIONS}/as.g.example"), Value::Null).await.code, 200);
    test.until_deleted(&format!("{DEFINITIONS}/as.g.example")).await;
    assert_no_writes(&test).await;
}
