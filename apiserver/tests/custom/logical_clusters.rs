//! One name, and another kind in every logical cluster.

use serde_json::{Value, json};

use super::server::{DEFINITIONS, TestServer, definition, summary, version};

const CLUSTERS: &str = "/apis/holon.dev/v1alpha1/logicalclusters";
const WIDGETS: &str = "/apis/shop.example/v1/namespaces/default/widgets";

/// Returns two logical clusters: in `a` widgets have a size and one version, in `b` a color and two.
async fn two() -> TestServer {
    let test = TestServer::new().await;
    for name in ["a", "b"] {
        test.create(CLUSTERS, json!({ "metadata": { "name": name } })).await;
    }
    let sized = json!([version("v1", true, json!({ "size": { "type": "integer" } }))]);
    test.define("/clusters/root:a", definition("widgets", "widget", "Widget", sized)).await;
    let colored = json!({ "color": { "type": "string" } });
    let colored = json!([version("v1", false, colored.clone()), version("v2", true, colored)]);
    test.define("/clusters/root:b", definition("widgets", "widget", "Wish", colored)).await;
    test
}

fn home(object: &Value) -> &str {
    object["metadata"]["annotations"]["holon.dev/logical-cluster"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn each_logical_cluster_has_its_own_kinds() {
    let test = two().await;
    assert_eq!(test.get("/apis/shop.example/v1").await.code, 404, "the root has no custom kinds");
    let kind = async |path: &str| {
        let resources = test.get(&format!("/clusters/{path}/apis/shop.example/v1")).await.body;
        resources["resources"][0]["kind"].clone()
    };
    assert_eq!((kind("root:a").await, kind("root:b").await), (json!("Widget"), json!("Wish")));
    assert_eq!(test.get("/clusters/root:a/apis/shop.example/v2").await.code, 404);
    assert_eq!(test.get("/clusters/root:b/apis/shop.example/v2").await.code, 200);
}

#[tokio::test]
async fn reads_across_logical_clusters_return_each_object_in_its_own_kind() {
    let test = two().await;
    let made = |kind: &str, spec: Value| json!({ "apiVersion": "shop.example/v1", "kind": kind, "metadata": { "name": "x" }, "spec": spec });
    let mut watched = test.watch("/clusters/*/apis/shop.example/v1/widgets?watch=1").await;
    test.create(&format!("/clusters/root:a{WIDGETS}"), made("Widget", json!({ "size": 1 }))).await;
    test.create(&format!("/clusters/root:b{WIDGETS}"), made("Wish", json!({ "color": "blue" }))).await;
    let list = test.get("/clusters/*/apis/shop.example/v1/widgets").await.body;
    let mut seen: Vec<(String, Value)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["kind"].as_str().unwrap().to_owned(), item["spec"].clone()))
        .collect();
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [("Widget", json!({ "size": 1 })), ("Wish", json!({ "color": "blue" }))];
    assert_eq!(seen, expected.map(|(kind, spec)| (kind.to_owned(), spec)));
    let homes: std::collections::BTreeSet<&str> =
        list["items"].as_array().unwrap().iter().map(home).collect();
    assert!(homes.len() == 2 && !homes.contains(""), "{homes:?}");
    for _ in 0..2 {
        let event = watched.next().await.unwrap();
        assert_eq!(
            (&*summary(&event), &event["object"]["apiVersion"]),
            ("ADDED x", &json!("shop.example/v1"))
        );
    }
    // In `v2` only one of them has objects.
    let list = test.get("/clusters/*/apis/shop.example/v2/widgets").await.body;
    let kinds: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["kind"]).collect();
    assert_eq!(kinds, ["Wish"]);
    assert_eq!(test.get("/clusters/*/apis/shop.example/v3/widgets").await.code, 404);
    // The kind is deleted in one of them. The deletions are events of the watch, which continues for the other.
    test.send(
        "DELETE",
        &format!("/clusters/root:a{}/widgets.shop.example", super::server::DEFINITIONS),
        Value::Null,
    )
    .await;
    let event = watched.next().await.unwrap();
    assert_eq!((&*summary(&event), &event["object"]["kind"]), ("DELETED x", &json!("Widget")));
    test.merge(&format!("/clusters/root:b{WIDGETS}/x"), json!({ "spec": { "color": "red" } })).await;
    let event = watched.next().await.unwrap();
    assert_eq!((&*summary(&event), &event["object"]["spec"]), ("MODIFIED x", &json!({ "color": "red" })));
}

#[tokio::test]
async fn a_deleted_logical_cluster_deletes_its_kinds_and_their_objects() {
    let test = two().await;
    let held = json!({ "apiVersion": "shop.example/v1", "kind": "Widget", "metadata": { "name": "x", "finalizers": ["a.example/b"] }, "spec": { "size": 1 } });
    test.create(&format!("/clusters/root:a{WIDGETS}"), held).await;
    test.send("DELETE", &format!("{CLUSTERS}/a"), Value::Null).await;
    test.until_deleted(&format!("{CLUSTERS}/a")).await;
    let list = test.get("/clusters/*/apis/shop.example/v1/widgets").await.body;
    assert_eq!(list["items"], json!([]));
    let definitions = test.get(&format!("/clusters/*{}", super::server::DEFINITIONS)).await.body;
    assert_eq!(definitions["items"].as_array().unwrap().len(), 1);
}

/// A user who could define a built-in kind in another version could write its objects without their validation. The
/// status, which determines what is served, can be written by the same users. Holon's own kinds are not even stored:
/// see
/// `built_in`.
#[tokio::test]
async fn built_in_kinds_cannot_be_redefined() {
    let test = TestServer::new().await;
    for (name, singular, kind, group) in [
        ("leases", "lease", "Lease", "coordination.k8s.io"),
        ("ingresses", "ingress", "Ingress", "networking.k8s.io"),
    ] {
        let versions = json!([version("v9", true, json!({}))]);
        let mut definition = definition(name, singular, kind, versions);
        definition["metadata"] = json!({ "name": format!("{name}.{group}") });
        definition["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "unapproved, a test" });
        definition["spec"]["group"] = group.into();
        let made = test.create(DEFINITIONS, definition).await;
        let path = format!("{DEFINITIONS}/{name}.{group}");
        test.condition("", &format!("{name}.{group}"), "NamesAccepted", "False").await;
        let forged = json!({ "type": "Established", "status": "True", "reason": "Forged", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = json!({ "acceptedNames": made["spec"]["names"], "conditions": [forged] });
        test.merge(&format!("{path}/status"), json!({ "status": status })).await;
        assert_eq!(test.get(&format!("/apis/{group}/v9/{name}")).await.code, 404, "{name}.{group}");
        test.condition("", &format!("{name}.{group}"), "Established", "False").await;
        assert_eq!(test.get(&format!("/apis/{group}/v9/{name}")).await.code, 404, "{name}.{group}");
    }
}
