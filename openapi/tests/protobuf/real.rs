//! The same objects from a real kube-apiserver in both forms.

use std::collections::BTreeSet;

use openapi::codec::protobuf;
use serde_json::{Value, json};
use testkit::peers::Request;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

struct Cluster(testkit::peers::Cluster);

impl Cluster {
    /// Returns the content type and the body.
    fn get(&self, path: &str, accept: &str) -> (String, Vec<u8>) {
        let answer = self.0.send(Request { accept, ..Request::get(path) });
        (answer.header("content-type").unwrap_or_default().to_owned(), answer.body)
    }

    fn json(&self, path: &str) -> Value {
        let (_, body) = self.get(path, JSON);
        serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{path}: {}", String::from_utf8_lossy(&body)))
    }

    /// Returns every stored collection: those that can be listed but not watched are computed on request.
    fn collections(&self) -> Vec<String> {
        let groups = self.json("/apis");
        let groups = groups["groups"].as_array().unwrap().iter();
        let versions = groups
            .map(|group| format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap()));
        let mut found = Vec::new();
        for version in std::iter::once("/api/v1".to_owned()).chain(versions) {
            let resources = self.json(&version);
            for resource in resources["resources"].as_array().unwrap() {
                if resource["verbs"].as_array().unwrap().contains(&json!("watch")) {
                    found.push(format!("{version}/{}", resource["name"].as_str().unwrap()));
                }
            }
        }
        found
    }
}

fn populate(cluster: &Cluster) {
    let create = |arguments: &[&str]| cluster.0.run(arguments, "");
    create(&["create", "deployment", "web", "--image=web:1", "--replicas=2", "--port=80"]);
    create(&["create", "configmap", "settings", "--from-literal=colour=blue"]);
    create(&["create", "ingress", "front", "--rule=shop.example/*=web:80"]);
    create(&["create", "quota", "small", "--hard=cpu=2,memory=4Gi"]);
    create(&["create", "pdb", "web", "--selector=app=web", "--min-available=50%"]);
    create(&["expose", "deployment", "web"]);
    create(&["autoscale", "deployment", "web", "--max=5"]);
    create(&["create", "cronjob", "nightly", "--image=job:1", "--schedule=0 3 * * *"]);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "orders.shop.example"},
        "spec": {
            "group": "shop.example", "scope": "Namespaced", "names": {"plural": "orders", "kind": "Order"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {
                    "type": "object", "default": {"size": 1}, "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"size": {"type": "number", "minimum": 0, "maximum": 9.5}},
                }},
            }}}],
        },
    });
    cluster.0.run(&["create", "-f", "-"], &definition.to_string());
    create(&["rollout", "status", "deployment/web", "--timeout=60s"]);
}

/// Compares one collection. Returns whether it had any objects.
fn check_collection(cluster: &Cluster, path: &str) -> bool {
    let listed = cluster.json(path);
    let revision =
        listed["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("{path}: {listed}"));
    let same = format!("{path}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let (kind, body) = cluster.get(&same, PROTOBUF);
    assert_eq!(kind, PROTOBUF, "{path}: {}", String::from_utf8_lossy(&body));
    let decoded = protobuf::decode(&body).unwrap_or_else(|error| panic!("{path}: {error}"));
    if listed["items"] == json!([]) {
        // Protobuf does not distinguish an empty list from an absent one.
        assert_eq!(decoded.value["items"], Value::Null, "{path}");
        return false;
    }
    assert_eq!(decoded.value, listed, "{path}");
    let encoded = protobuf::encode(&listed).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(encoded == body, "{path} is encoded as\n{encoded:02x?} and not\n{body:02x?}");
    true
}

/// Compares a collection in its metadata-only form.
fn check_partial(cluster: &Cluster, path: &str) {
    let partial = |media: &str| format!("{media};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let listed: Value = serde_json::from_slice(&cluster.get(path, &partial(JSON)).1).unwrap();
    assert_eq!(listed["kind"], "PartialObjectMetadataList");
    assert_eq!(protobuf::encode(&listed).unwrap(), cluster.get(path, &partial(PROTOBUF)).1, "{path}");
}

/// Compares the frames of a watch.
fn check_watch(cluster: &Cluster, path: &str) {
    let query = format!("{path}?watch=1&timeoutSeconds=1");
    let events = cluster.get(&query, JSON).1;
    let (_, frames) = cluster.get(&query, &format!("{PROTOBUF};stream=watch"));
    let mut ours = Vec::new();
    for line in String::from_utf8(events).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let object = protobuf::encode(&event["object"]).unwrap();
        ours.extend(protobuf::watch_frame(event["type"].as_str().unwrap(), &object));
    }
    assert!(!ours.is_empty());
    assert_eq!(ours, frames, "{path}\nours:   {ours:02x?}\ntheirs: {frames:02x?}");
}

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn a_real_server_sends_equal_json_and_protobuf() {
    let cluster = Cluster(testkit::peers::Cluster::start(&[]));
    populate(&cluster);
    let collections = cluster.collections();
    // A custom kind is served as JSON, whatever the client accepts.
    let built_in = collections.iter().filter(|path| !path.contains("shop.example"));
    let compared: BTreeSet<_> = built_in.filter(|path| check_collection(&cluster, path)).collect();
    for path in [
        "/api/v1/pods",
        "/apis/apps/v1/deployments",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ] {
        assert!(compared.contains(&path.to_owned()), "{path} is among {compared:?}");
    }
    println!("{} of {} collections had objects to compare", compared.len(), collections.len());
    check_partial(&cluster, "/api/v1/namespaces/default/configmaps");
    check_watch(&cluster, "/api/v1/namespaces/default/configmaps");
    check_watch(&cluster, "/apis/apps/v1/namespaces/default/deployments");
}
