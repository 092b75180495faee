//! Deletions of definitions, objects and dependents.

use serde_json::{Value, json};

use super::server::{DEFINITIONS, TestServer, widgets};

const WIDGETS: &str = "/apis/shop.example/v1/namespaces/default/widgets";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.shop.example";

fn size() -> Value {
    json!({ "size": { "type": "integer" } })
}

fn widget(name: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "shop.example/v1", "kind": "Widget",
        "metadata": { "name": name, "finalizers": finalizers }, "spec": { "size": 1 },
    })
}

#[tokio::test]
async fn a_definition_is_removed_after_its_last_object() {
    let test = TestServer::new().await;
    test.define("", widgets(size())).await;
    test.create(WIDGETS, widget("free", &[])).await;
    test.create(WIDGETS, widget("held", &["a.example/b"])).await;
    let watched = test.watch("/apis/shop.example/v1/widgets?watch=1").await;
    let deleted = test.send("DELETE", DEFINITION, Value::Null).await;
    assert_eq!(deleted.code, 200);
    let metadata = &deleted.body["metadata"];
    assert_eq!(metadata["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!((&metadata["generation"], metadata.get("deletionGracePeriodSeconds")), (&json!(1), None));
    assert_eq!(deleted.body["status"]["conditions"][2]["reason"], "InstanceDeletionPending");

    test.until_deleted(&format!("{WIDGETS}/free")).await;
    let reported = test.until(DEFINITION, |answer| {
        answer.body["status"]["conditions"][2]["reason"] == "InstanceDeletionInProgress"
    });
    assert_eq!(reported.await.body["status"]["conditions"][2]["status"], "True");
    let refused = test.send("POST", WIDGETS, widget("late", &[])).await;
    let expected = "widgets.shop.example \"late\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!((refused.code, &refused.body["message"]), (403, &json!(expected)));
    let verbs = test.get("/apis/shop.example/v1").await.body["resources"][0]["verbs"].clone();
    assert_eq!(verbs, json!(["delete", "deletecollection", "get", "list", "watch"]));

    // The object that blocks the deletion can still be changed.
    test.merge(&format!("{WIDGETS}/held"), json!({ "metadata": { "finalizers": null } })).await;
    test.until_deleted(DEFINITION).await;
    let mut reported = watched.remaining_events().await;
    reported.retain(|event| !event.starts_with("MODIFIED"));
    assert_eq!(reported, ["ADDED free", "ADDED held", "DELETED free", "DELETED held"]);
    assert_eq!(test.get(WIDGETS).await.code, 404);
    test.define("", widgets(size())).await;
    assert_eq!(
        test.get(WIDGETS).await.body["items"],
        json!([]),
        "a new definition has none of the earlier objects"
    );
}

#[tokio::test]
async fn a_definition_that_was_never_served_is_removed_at_once() {
    let test = TestServer::new().await;
    test.define("", widgets(size())).await;
    let mut other = widgets(size());
    other["metadata"]["name"] = "gadgets.shop.example".into();
    other["spec"]["names"]["plural"] = "gadgets".into();
    test.create(DEFINITIONS, other).await;
    let path = format!("{DEFINITIONS}/gadgets.shop.example");
    test.condition("", "gadgets.shop.example", "NamesAccepted", "False").await;
    test.send("DELETE", &path, Value::Null).await;
    test.until_deleted(&path).await;
    assert_eq!(test.get(DEFINITION).await.code, 200);
}

#[tokio::test]
async fn a_terminating_namespace_deletes_custom_objects_and_waits_for_their_finalizers() {
    let test = TestServer::new().await;
    test.define("", widgets(size())).await;
    test.create("/api/v1/namespaces", json!({ "metadata": { "name": "shop" } })).await;
    let widgets = "/apis/shop.example/v1/namespaces/shop/widgets";
    test.create(widgets, widget("free", &[])).await;
    test.create(widgets, widget("held", &["a.example/b"])).await;
    test.send("DELETE", "/api/v1/namespaces/shop", Value::Null).await;
    test.until_deleted(&format!("{widgets}/free")).await;
    let refused = test.send("POST", widgets, widget("late", &[])).await;
    assert_eq!((refused.code, &refused.body["reason"]), (403, &json!("Forbidden")));
    let reported = test.until("/api/v1/namespaces/shop", |answer| {
        answer.body["status"]["conditions"][3]["message"]
            == "Some resources are remaining: widgets.shop.example has 1 resource instances"
    });
    reported.await;
    test.merge(&format!("{widgets}/held"), json!({ "metadata": { "finalizers": null } })).await;
    test.until_deleted("/api/v1/namespaces/shop").await;
}

/// The kind may be deleted before the garbage collector has looked up the owner; the dependents are deleted anyway.
#[tokio::test]
async fn dependents_of_a_custom_object_are_deleted_even_if_its_kind_is_too() {
    let test = TestServer::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for round in ["object", "definition"] {
        test.define("", widgets(size())).await;
        let owner = test.create(WIDGETS, widget("owner", &[])).await;
        let reference = json!({
            "apiVersion": "shop.example/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"],
        });
        test.create(maps, json!({ "metadata": { "name": round, "ownerReferences": [reference] } })).await;
        if round == "object" {
            test.send("DELETE", &format!("{WIDGETS}/owner"), Value::Null).await;
            test.until_deleted(&format!("{maps}/{round}")).await;
        }
        test.send("DELETE", DEFINITION, Value::Null).await;
        test.until_deleted(DEFINITION).await;
        test.until_deleted(&format!("{maps}/{round}")).await;
    }
}
