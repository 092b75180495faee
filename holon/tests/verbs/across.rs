//! Requests across all logical clusters, for users who may send them.

use openapi::codec::protobuf;
use serde_json::{Value, json};
use testkit::Server;

use crate::common::HOLON;
use crate::wire::{Client, JSON, PROTOBUF};

const CLUSTERS: &str = "/apis/holon.dev/v1alpha1/logicalclusters";
const HOME: &str = "holon.dev/logical-cluster";

fn maps(cluster: &str) -> String {
    format!("/clusters/{cluster}/api/v1/namespaces/default/configmaps")
}

/// Returns a server with two logical clusters that each have a ConfigMap of the same name, and their ids.
fn started() -> (Server, Client, [String; 2]) {
    let server = Server::start(HOLON);
    let client = Client::new(&server);
    let ids = ["a", "b"].map(|name| {
        let made = client.make(CLUSTERS, &json!({ "metadata": { "name": name } }));
        let annotations = json!({ "who": name, HOME: "~bbbbbbbbbbbbbbbb" });
        let map =
            json!({ "metadata": { "name": "m", "labels": { "in": name }, "annotations": annotations } });
        client.make(&maps(&format!("root:{name}")), &map);
        made["status"]["id"].as_str().unwrap().to_owned()
    });
    (server, client, ids)
}

fn home(object: &Value) -> &str {
    object["metadata"]["annotations"][HOME].as_str().unwrap_or_else(|| panic!("no home: {object}"))
}

#[test]
fn a_list_of_everything_says_where_each_object_lives() {
    let (server, client, ids) = started();
    let all = "/clusters/*/api/v1/configmaps?labelSelector=in";
    let list = client.get(all).json();
    let mut found: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (home(item), item["metadata"]["labels"]["in"].as_str().unwrap()))
        .collect();
    found.sort_by_key(|(_, name)| *name);
    assert_eq!(found, [(ids[0].as_str(), "a"), (ids[1].as_str(), "b")]);
    assert!(
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["metadata"]["annotations"]["who"].is_string())
    );

    let partial =
        client.get_as(all, &format!("{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")).json();
    assert!(ids.contains(&home(&partial["items"][0]).to_owned()));
    let table = client.get_as(all, &format!("{JSON};as=Table;g=meta.k8s.io;v=v1")).json();
    assert!(ids.contains(&home(&table["rows"][0]["object"]).to_owned()));
    let binary = protobuf::decode(&client.get_as(all, PROTOBUF).body).unwrap().value;
    assert!(ids.contains(&home(&binary["items"][1]).to_owned()));

    let first = client.get(&format!("{all}&limit=1")).json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = client.get(&format!("{all}&limit=5&continue={token}")).json();
    assert_ne!(home(&first["items"][0]), home(&rest["items"][0]));
    // A namespace selects the namespaces of that name in all logical clusters.
    assert_eq!(client.get(&format!("{}?labelSelector=in", maps("*"))).names(), ["m", "m"]);
    assert!(client.get("/clusters/*/api/v1/namespaces/other/configmaps").names().is_empty());
    assert_eq!(
        client.get("/clusters/*/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault").names().len(),
        3
    );
    // A read in one logical cluster does not add the annotation with its id.
    let own = client.get(&format!("{}/m", maps("root:a"))).json();
    assert_eq!(own["metadata"]["annotations"], json!({ "who": "a" }));
    assert!(server.stop());
}

#[test]
fn a_watch_of_everything_is_one_order() {
    let (server, client, ids) = started();
    let from = client.get("/clusters/*/api/v1/configmaps").json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    for cluster in ["root:b", "root:a", "root"] {
        client.make(&maps(cluster), &json!({ "metadata": { "name": "n" } }));
    }
    assert_eq!(client.ask("DELETE", &format!("{}/m", maps("root:a")), &Value::Null).code, 200);
    let events = client.watched(&format!("/clusters/*/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={from}&allowWatchBookmarks=true"));
    let seen: Vec<_> = events
        .iter()
        .map(|(kind, object)| {
            (kind.as_str(), object["metadata"]["annotations"][HOME].as_str().unwrap_or_default())
        })
        .collect();
    let root = "~bbbbbbbbbbbbbbbb";
    assert_eq!(
        seen,
        [
            ("ADDED", ids[1].as_str()),
            ("ADDED", &ids[0]),
            ("ADDED", root),
            ("DELETED", &ids[0]),
            ("BOOKMARK", "")
        ]
    );
    let begin = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let events = client.watched(&format!("{}?{begin}&fieldSelector=metadata.name%3Dn", maps("*")));
    let kinds: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "ADDED", "ADDED", "BOOKMARK", "BOOKMARK"]);
    // A kubeconfig names a logical cluster by its path, not by its id.
    assert!(server.kubeconfig("root:a").contains("/clusters/root:a\n"));
}

#[test]
fn ids_lead_to_one_logical_cluster_and_nothing_is_written_to_all() {
    let (_server, client, ids) = started();
    assert_eq!(client.get(&format!("{}?labelSelector=in", maps(&ids[0]))).names(), ["m"]);
    assert_eq!(client.get(&format!("{}/m", maps(&ids[1]))).json()["metadata"]["labels"]["in"], "b");
    let map = json!({ "metadata": { "name": "x" } });
    for (method, path) in [
        ("POST", maps("*")),
        ("PUT", maps("*") + "/m"),
        ("PATCH", maps("*") + "/m"),
        ("DELETE", maps("*") + "/m"),
        ("DELETE", maps("*")),
        ("GET", maps("*") + "/m"),
    ] {
        assert_eq!(client.ask(method, &path, &map).code, 405, "{method} {path}");
    }
    for path in [maps("~x"), maps("~bbbbbbbbbbbbbbbz"), maps("~BBBBBBBBBBBBBBBB"), maps("root:*"), maps("**")]
    {
        assert_eq!(client.get(&path).code, 404, "{path}");
    }
}

/// All bootstrap objects of a new logical cluster have one resource version. A client that received only the first of
/// them and was disconnected resumed after that version, and never saw the rest.
#[test]
fn a_watch_that_was_cut_off_while_a_logical_cluster_was_created_misses_nothing() {
    let (server, client, _) = started();
    let all = "/clusters/*/api/v1/namespaces";
    let from = client.get(all).json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    client.make("/apis/holon.dev/v1alpha1/logicalclusters", &json!({ "metadata": { "name": "late" } }));
    let names = |from: &str| -> Vec<(String, String)> {
        let events = client.watched(&format!("{all}?watch=1&timeoutSeconds=1&resourceVersion={from}"));
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        events.iter().map(|(_, object)| (text(object, "name"), text(object, "resourceVersion"))).collect()
    };
    let seen = names(&from);
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_eq!(names(&seen[0].1), seen);
    assert!(server.stop());
}
