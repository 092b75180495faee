//! From a definition to its objects.

use http_body_util::Full;
use serde_json::{Value, json};

use super::server::{DEFINITIONS, TestServer, answer, definition, request, send, version, widgets};

const WIDGETS: &str = "/apis/shop.example/v1/namespaces/default/widgets";

fn widget(name: &str) -> Value {
    json!({ "apiVersion": "shop.example/v1", "kind": "Widget", "metadata": { "name": name }, "spec": { "size": 1 } })
}

fn size() -> Value {
    json!({ "size": { "type": "integer" } })
}

#[tokio::test]
async fn a_kind_is_served_as_soon_as_its_definition_is_established() {
    let test = TestServer::new().await;
    assert_eq!(test.get(WIDGETS).await.code, 404);
    test.define("", widgets(size())).await;
    // No waiting from here on: all first requests of a client must succeed.
    let created = test.create(WIDGETS, widget("a")).await;
    assert_eq!((&created["spec"], &created["metadata"]["generation"]), (&json!({ "size": 1 }), &json!(1)));
    assert_eq!(test.get(&format!("{WIDGETS}/a")).await.body, created);
    let list = test.get("/apis/shop.example/v1/widgets").await.body;
    assert_eq!((&list["kind"], &list["items"][0]), (&json!("WidgetList"), &created));
    let resources = test.get("/apis/shop.example/v1").await.body;
    assert_eq!(
        (&resources["resources"][0]["name"], &resources["resources"][0]["kind"]),
        (&json!("widgets"), &json!("Widget"))
    );
    let status = test.get(&format!("{DEFINITIONS}/widgets.shop.example")).await.body["status"].clone();
    let names =
        json!({ "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" });
    assert_eq!((&status["acceptedNames"], &status["storedVersions"]), (&names, &json!(["v1"])));
}

/// Two servers share a store, and a client switches from one to the other.
#[tokio::test]
async fn a_second_server_serves_the_kind_too() {
    let test = TestServer::new().await;
    let get_from_second = async |path: &str| send(&test.second, "GET", path, Value::Null).await;
    test.define("", widgets(size())).await;
    assert_eq!(get_from_second("/apis/shop.example").await.code, 200);
    assert_eq!(get_from_second(WIDGETS).await.code, 200);
    let made = send(&test.second, "POST", WIDGETS, widget("a")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(test.get(&format!("{WIDGETS}/a")).await.body, made.body);
}

#[tokio::test]
async fn documents_change_as_soon_as_the_kinds_do() {
    let test = TestServer::new().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let tags = async || {
        let mut tags = Vec::new();
        for (path, accept) in [("/apis", accept), ("/openapi/v2", "application/json")] {
            let request = request("GET", path, &Value::Null).header("accept", accept);
            let answered = answer(&test.stack, request.body(Full::default()).unwrap()).await;
            tags.push(answered.headers["etag"].clone());
        }
        tags
    };
    let index = async || test.get("/openapi/v3").await.body["paths"].clone();
    let (before, index_before) = (tags().await, index().await);
    test.define("", widgets(size())).await;
    let (after, index_after) = (tags().await, index().await);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    assert!(index_before.get("apis/shop.example/v1").is_none());
    assert_eq!(
        index_before["apis/apps/v1"], index_after["apis/apps/v1"],
        "an unchanged document is not sent again"
    );
    let address =
        |index: &Value| index["apis/shop.example/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = test.get(&address(&index_after)).await.body;
    assert!(document["components"]["schemas"].get("example.shop.v1.Widget").is_some(), "{document}");
    // A changed definition takes effect without a restart.
    let wider = json!({ "spec": widgets(json!({ "size": { "type": "integer" }, "color": { "type": "string" } }))["spec"] });
    test.merge(&format!("{DEFINITIONS}/widgets.shop.example"), wider).await;
    assert_ne!(address(&index().await), address(&index_after));
    // A deleted definition is no longer published.
    test.send("DELETE", &format!("{DEFINITIONS}/widgets.shop.example"), Value::Null).await;
    test.until_deleted(&format!("{DEFINITIONS}/widgets.shop.example")).await;
    assert_eq!((tags().await, index().await), (before, index_before));
}

#[tokio::test]
async fn a_definition_waits_until_its_names_are_free() {
    let test = TestServer::new().await;
    test.define("", widgets(size())).await;
    let other = definition("gadgets", "widget", "Gadget", json!([version("v1", true, size())]));
    test.create(DEFINITIONS, other).await;
    let waiting = test.condition("", "gadgets.shop.example", "NamesAccepted", "False").await;
    let reported = &waiting["status"]["conditions"];
    assert_eq!(
        (&reported[0]["reason"], &reported[1]["reason"]),
        (&json!("SingularConflict"), &json!("NotAccepted"))
    );
    assert_eq!(test.get("/apis/shop.example/v1/gadgets").await.code, 404);
    test.send("DELETE", &format!("{DEFINITIONS}/widgets.shop.example"), Value::Null).await;
    test.condition("", "gadgets.shop.example", "Established", "True").await;
    assert_eq!(test.get("/apis/shop.example/v1/gadgets").await.code, 200);
}

/// An object is stored in one version and read in another.
#[tokio::test]
async fn an_object_is_returned_in_every_served_version() {
    let test = TestServer::new().await;
    let versions = json!([version("v1", true, size()), version("v1beta1", false, size())]);
    test.define("", definition("widgets", "widget", "Widget", versions)).await;
    test.create(WIDGETS, widget("a")).await;
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let path = format!("{DEFINITIONS}/widgets.shop.example");
    for (path, version) in [(WIDGETS, "shop.example/v1"), (&*beta, "shop.example/v1beta1")] {
        assert_eq!(test.get(&format!("{path}/a")).await.body["apiVersion"], version);
        let list = test.get(path).await.body;
        assert_eq!(
            (&list["apiVersion"], &list["items"][0]["apiVersion"]),
            (&json!(version), &json!(version))
        );
    }
    // From now on the other version is stored; existing objects stay, and look as before.
    let versions = json!([version("v1", false, size()), version("v1beta1", true, size())]);
    let definition = test.merge(&path, json!({ "spec": { "versions": versions } })).await;
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    assert_eq!(test.get(&format!("{WIDGETS}/a")).await.body["apiVersion"], "shop.example/v1");
    assert_eq!(test.get(&format!("{beta}/a")).await.body["apiVersion"], "shop.example/v1beta1");
}

#[tokio::test]
async fn a_watch_ends_when_its_version_is_no_longer_served() {
    let test = TestServer::new().await;
    let versions = json!([version("v1", true, size()), version("v1beta1", false, size())]);
    test.define("", definition("widgets", "widget", "Widget", versions)).await;
    let mut beta = test.watch("/apis/shop.example/v1beta1/widgets?watch=1").await;
    test.create(WIDGETS, widget("a")).await;
    assert_eq!(beta.next().await.unwrap()["object"]["apiVersion"], "shop.example/v1beta1");
    let mut versions = json!([version("v1", true, size()), version("v1beta1", false, size())]);
    versions[1]["served"] = json!(false);
    test.merge(&format!("{DEFINITIONS}/widgets.shop.example"), json!({ "spec": { "versions": versions } }))
        .await;
    assert_eq!(beta.remaining_events().await, [""; 0]);
    assert_eq!(test.get("/apis/shop.example/v1beta1/widgets").await.code, 404);
    assert_eq!(test.get("/apis/shop.example/v1/widgets").await.code, 200);
}
