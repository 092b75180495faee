//! Holon's own kinds behave like built-in ones.

use apiserver::kinds::Own;
use http_body_util::Full;
use serde_json::{Value, json};

use super::server::{DEFINITIONS, TestServer, answer, request, widgets};

const GADGETS: &str = "/apis/holon.dev/v1alpha1/namespaces/default/gadgets";

const DEFINITION: &str = "
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: { name: gadgets.holon.dev }
    spec:
      group: holon.dev
      scope: Namespaced
      names: { kind: Gadget, plural: gadgets, shortNames: [gg] }
      versions:
      - name: v1alpha1
        served: true
        storage: true
        subresources: { status: {} }
        additionalPrinterColumns: [{ name: Size, type: integer, jsonPath: .spec.size }]
        schema:
          openAPIV3Schema:
            type: object
            properties:
              spec:
                description: What it should be.
                type: object
                required: [size]
                properties:
                  size: { type: integer, minimum: 1 }
                  color: { type: string, default: green }
              status:
                type: object
                properties: { phase: { type: string } }
";

async fn test() -> TestServer {
    TestServer::with_own(Own::read(&[DEFINITION]).unwrap()).await
}

fn gadget(name: &str, size: i64) -> Value {
    json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Gadget", "metadata": { "name": name }, "spec": { "size": size },
    })
}

#[tokio::test]
async fn every_logical_cluster_serves_them() {
    let test = test().await;
    let clusters = "/apis/holon.dev/v1alpha1/logicalclusters";
    let team =
        json!({ "apiVersion": "holon.dev/v1alpha1", "kind": "LogicalCluster", "metadata": { "name": "a" } });
    test.create(clusters, team).await;
    for within in ["", "/clusters/root:a"] {
        let made = test.create(&format!("{within}{GADGETS}"), gadget("g", 3)).await;
        assert_eq!(made["spec"], json!({ "size": 3, "color": "green" }));
        let resources = test.get(&format!("{within}/apis/holon.dev/v1alpha1")).await.body;
        let names: Vec<_> =
            resources["resources"].as_array().unwrap().iter().map(|resource| &resource["name"]).collect();
        assert_eq!(names, ["gadgets", "gadgets/status", "logicalclusters", "logicalclusters/status"]);
        let document = test.get(&format!("{within}/openapi/v3/apis/holon.dev/v1alpha1")).await.body;
        let described = &document["components"]["schemas"]["dev.holon.v1alpha1.Gadget"]["properties"]["spec"];
        assert_eq!(described["description"], "What it should be.");
        assert!(document["components"]["schemas"]["dev.holon.v1alpha1.LogicalCluster"].is_object());
    }
    let all = test.get("/clusters/*/apis/holon.dev/v1alpha1/gadgets").await.body;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(2), "{all}");
    test.define("/clusters/root:a", widgets(json!({}))).await;
    assert_eq!(
        test.get(&format!("/clusters/root:a{GADGETS}/g")).await.code,
        200,
        "it is served beside custom kinds"
    );
}

#[tokio::test]
async fn they_behave_like_other_built_in_kinds() {
    let test = test().await;
    let refused = test.send("POST", GADGETS, gadget("g", 0)).await;
    let reported = refused.body["message"].as_str().unwrap_or_default();
    assert!(refused.code == 422 && reported.contains("spec.size: Invalid value: 0"), "{reported}");
    let path = format!("{GADGETS}/g");
    let applied = test
        .patch(&format!("{path}?fieldManager=test"), "application/apply-patch+yaml", gadget("g", 2))
        .await;
    assert_eq!((applied.code, &applied.body["spec"]["size"]), (201, &json!(2)), "{}", applied.body);
    let status =
        test.merge(&format!("{path}/status"), json!({ "status": { "phase": "Well" }, "spec": null })).await;
    assert_eq!((&status["spec"]["size"], &status["status"]["phase"]), (&json!(2), &json!("Well")));
    assert_eq!(
        (&applied.body["metadata"]["generation"], &status["metadata"]["generation"]),
        (&json!(1), &json!(1))
    );
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let request =
        request("GET", GADGETS, &Value::Null).header("accept", table).body(Full::default()).unwrap();
    assert_eq!(answer(&test.stack, request).await.body["rows"][0]["cells"], json!(["g", 2]));
    let mut watched = test.watch(&format!("{GADGETS}?watch=1")).await;
    assert_eq!(super::server::summary(&watched.next().await.unwrap()), "ADDED g");
}

/// A user who could define logical clusters in another version could create one with the id of another tenant, by a
/// default value, and read and delete its objects.
#[tokio::test]
async fn kinds_in_a_built_in_group_cannot_be_defined() {
    let test = test().await;
    for plural in ["gadgets", "logicalclusters", "others"] {
        let mut definition = widgets(json!({}));
        definition["metadata"]["name"] = format!("{plural}.holon.dev").into();
        definition["spec"]["group"] = "holon.dev".into();
        definition["spec"]["names"]["plural"] = plural.into();
        let refused = test.send("POST", DEFINITIONS, definition).await;
        let reported = refused.body["message"].as_str().unwrap_or_default();
        let expected = "spec.group: Forbidden: kinds of the group holon.dev are built in";
        assert!(refused.code == 422 && reported.contains(expected), "{reported}");
    }
    assert_eq!(
        test.get(DEFINITIONS).await.body["items"],
        json!([]),
        "the definition cannot be changed either"
    );
}

#[tokio::test]
async fn they_are_deleted_with_their_namespace() {
    let test = test().await;
    let shop = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    test.create("/api/v1/namespaces", shop).await;
    test.create(&GADGETS.replace("default", "shop"), gadget("g", 1)).await;
    assert_eq!(test.send("DELETE", "/api/v1/namespaces/shop", Value::Null).await.code, 200);
    test.until_deleted("/api/v1/namespaces/shop").await;
    assert_eq!(test.get("/apis/holon.dev/v1alpha1/gadgets").await.body["items"], json!([]));
}
