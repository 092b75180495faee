//! Mistakes that were made, here or by others, and are not to be made again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::World;
use crate::client::Client;

/// A definition of `plural.group`, ready to be created.
fn definition(plural: &str, group: &str) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "plural": plural, "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

/// A pod of a logical cluster, on no node yet.
fn pod(admin: &Client, cluster: &str, name: &str) {
    let pods = format!("{cluster}/api/v1/namespaces/default/pods");
    let body =
        json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    assert_eq!(admin.ask("POST", &pods, &body).code, 201);
}

/// Whoever may create `bindings` of a group they made up could put pods on nodes: the name was looked at without its
/// group.
#[test]
fn what_is_named_like_a_part_of_a_pod_is_none() {
    let world = World::new();
    let a = world.cluster("a");
    pod(&world.admin, &a, "web");
    let definitions = format!("{a}/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    assert_eq!(world.admin.ask("POST", &definitions, &definition("bindings", "evil.io")).code, 201);
    let binding = json!({
        "apiVersion": "evil.io/v1", "kind": "Thing", "metadata": { "name": "web" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "stolen" },
    });
    let bindings = format!("{a}/apis/evil.io/v1/namespaces/default/bindings");
    let is_served = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        world.admin.get(&bindings).code == 200
    });
    assert!(is_served);
    let made = world.admin.ask("POST", &bindings, &binding);
    assert_eq!((made.code, made.json()["kind"].as_str()), (201, Some("Thing")), "{}", made.body);
    let web = world.admin.get(&format!("{a}/api/v1/namespaces/default/pods/web")).json();
    assert_eq!(web["spec"]["nodeName"], Value::Null);
}

/// Cluster roles that select each other swapped their rules for ever, with two writes each time.
#[test]
fn roles_that_gather_each_other_are_written_once() {
    let world = World::new();
    let roles = format!("/apis/{}/v1/clusterroles", crate::GROUP);
    for (name, other) in [("a", "b"), ("b", "a")] {
        let role = json!({
            "metadata": { "name": name, "labels": { "is": name } },
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "is": other } }] },
            "rules": [{ "verbs": [name], "apiGroups": ["x"], "resources": ["y"] }],
        });
        assert_eq!(world.admin.ask("POST", &roles, &role).code, 201);
    }
    let versions = || {
        ["a", "b"].map(|name| {
            world.admin.get(&format!("{roles}/{name}")).json()["metadata"]["resourceVersion"].clone()
        })
    };
    let settled = (0..100).any(|_| {
        let before = versions();
        std::thread::sleep(Duration::from_millis(200));
        before == versions()
    });
    assert!(settled, "the rules still change: {:?}", versions());
}
