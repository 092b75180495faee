//! Requests across all logical clusters, for users who may send them.

use openapi::codec::protobuf;
use serde_json::{Value, json};
use testkit::Server;

use crate::common::HOLON;
use crate::wire::{JSON, PROTOBUF, WireClient};

const CLUSTERS: &str = "/apis/holon.dev/v1alpha1/logicalclusters";
const LOGICAL_CLUSTER: &str = "holon.dev/logical-cluster";

fn maps(cluster: &str) -> String {
    format!("/clusters/{cluster}/api/v1/namespaces/default/configmaps")
}

/// Returns a server with two logical clusters that each have a ConfigMap of the same name, and their ids.
fn start_with_two_clusters() -> (Server, WireClient, [String; 2]) {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let ids = ["a", "b"].map(|name| {
        let created = client.create(CLUSTERS, &json!({ "metadata": { "name": name } }));
        let annotations = json!({ "who": name, LOGICAL_CLUSTER: "~bbbbbbbbbbbbbbbb" });
        let map =
            json!({ "metadata": { "name": "m", "labels": { "in": name }, "annotations": annotations } });
        client.create(&maps(&format!("root:{name}")), &map);
        created["status"]["id"].as_str().unwrap().to_owned()
    });
    (server, client, ids)
}

fn logical_cluster(object: &Value) -> &str {
    object["metadata"]["annotations"][LOGICAL_CLUSTER]
        .as_str()
        .unwrap_or_else(|| panic!("no annotation: {object}"))
}

#[test]
fn a_list_across_all_logical_clusters_names_the_cluster_of_each_object() {
    let (server, client, ids) = start_with_two_clusters();
    let all = "/clusters/*/api/v1/configmaps?labelSelector=in";
    let list = client.get(all).json();
    let mut found: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (logical_cluster(item), item["metadata"]["labels"]["in"].as_str().unwrap()))
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
    assert!(ids.contains(&logical_cluster(&partial["items"][0]).to_owned()));
    let table = client.get_as(all, &format!("{JSON};as=Table;g=meta.k8s.io;v=v1")).json();
    assert!(ids.contains(&logical_cluster(&table["rows"][0]["object"]).to_owned()));
    let binary = protobuf::decode(&client.get_as(all, PROTOBUF).body).unwrap().value;
    assert!(ids.contains(&logical_cluster(&binary["items"][1]).to_owned()));

    let first = client.get(&format!("{all}&limit=1")).json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = client.get(&format!("{all}&limit=5&continue={token}")).json();
    assert_ne!(logical_cluster(&first["items"][0]), logical_cluster(&rest["items"][0]));
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
fn a_watch_across_all_logical_clusters_has_one_order() {
    let (server, client, ids) = start_with_two_clusters();
    let from = client.get("/clusters/*/api/v1/configmaps").json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    for cluster in ["root:b", "root:a", "root"] {
        client.create(&maps(cluster), &json!({ "metadata": { "name": "n" } }));
    }
    assert_eq!(client.ask("DELETE", &format!("{}/m", maps("root:a")), &Value::Null).code, 200);
    let events = client.watched(&format!("/clusters/*/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={from}&allowWatchBookmarks=true"));
    let events_seen: Vec<_> = events
        .iter()
        .map(|(kind, object)| {
            (kind.as_str(), object["metadata"]["annotations"][LOGICAL_CLUSTER].as_str().unwrap_or_default())
        })
        .collect();
    let root = "~bbbbbbbbbbbbbbbb";
    assert_eq!(
        events_seen,
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
fn an_id_selects_one_logical_cluster_and_no_write_selects_all() {
    let (_server, client, ids) = start_with_two_clusters();
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
fn a_watch_that_was_disconnected_while_a_logical_cluster_was_created_misses_nothing() {
    let (server, client, _) = start_with_two_clusters();
    let all = "/clusters/*/api/v1/namespaces";
    let from = client.get(all).json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    client.create("/apis/holon.dev/v1alpha1/logicalclusters", &json!({ "metadata": { "name": "late" } }));
    let names = |from: &str| -> Vec<(String, String)> {
        let events = client.watched(&format!("{all}?watch=1&timeoutSeconds=1&resourceVersion={from}"));
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        events.iter().map(|(_, object)| (text(object, "name"), text(object, "resourceVersion"))).collect()
    };
    let events_seen = names(&from);
    assert_eq!(events_seen.len(), 4, "{events_seen:?}");
    assert_eq!(names(&events_seen[0].1), events_seen);
    assert!(server.stop());
}
