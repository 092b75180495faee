//! Subresources with a path of their own, and updates that create.

use serde_json::{Value, json};
use testkit::Server;

use crate::common::HOLON;
use crate::wire::{JSON, WireClient};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn deployment(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    })
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }] },
    })
}

#[test]
fn a_scale_is_read_and_written_in_every_way() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    client.create(DEPLOYMENTS, &deployment("web"));
    let path = format!("{DEPLOYMENTS}/web/scale");
    let scale = client.get(&path).json();
    assert_eq!(
        (&scale["kind"], &scale["spec"], &scale["status"]),
        (&json!("Scale"), &json!({ "replicas": 2 }), &json!({ "replicas": 0, "selector": "app=web" }))
    );

    let mut update = scale.clone();
    update["spec"]["replicas"] = 3.into();
    let written = client.ask("PUT", &path, &update);
    assert_eq!((written.code, &written.json()["spec"]["replicas"]), (200, &json!(3)), "{}", written.text());
    // The subresource has the version of its object, which has changed.
    assert_eq!(client.ask("PUT", &path, &update).json()["reason"], "Conflict");
    let patches = [
        ("application/merge-patch+json", r#"{"spec":{"replicas":4}}"#, 4),
        ("application/strategic-merge-patch+json", r#"{"spec":{"replicas":5}}"#, 5),
        ("application/json-patch+json", r#"[{"op":"replace","path":"/spec/replicas","value":6}]"#, 6),
    ];
    for (media_type, patch, replicas) in patches {
        let answer = client.send("PATCH", &path, (media_type, patch.as_bytes()), "");
        assert_eq!(
            (answer.code, &answer.json()["spec"]["replicas"]),
            (200, &json!(replicas)),
            "{}",
            answer.text()
        );
    }
    let web = client.get(&format!("{DEPLOYMENTS}/web")).json();
    assert_eq!((&web["spec"]["replicas"], &web["metadata"]["generation"]), (&json!(6), &json!(5)));

    let refused =
        |body: Value| client.ask("PUT", &path, &body).json()["message"].as_str().unwrap().to_owned();
    assert_eq!(
        refused(json!({ "metadata": { "name": "web" }, "spec": { "replicas": -1 } })),
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    assert_eq!(
        refused(json!({ "metadata": { "name": "b" } })),
        "the name of the object (b) does not match the name on the URL (web)"
    );
    assert_eq!(
        refused(json!({})),
        "the name of the object (web based on URL) was undeterminable: name must be provided"
    );
    let table = client.get_as(&path, &format!("{JSON};as=Table;g=meta.k8s.io;v=v1")).json();
    assert_eq!(table["columnDefinitions"][1]["name"], "Desired");
    assert_eq!(table["rows"][0]["cells"][1], 6);
    assert_eq!(client.ask("DELETE", &path, &Value::Null).code, 405);
    assert_eq!(client.get(&format!("{DEPLOYMENTS}/other/scale")).json()["details"]["kind"], "deployments");
}

#[test]
fn a_pod_is_bound_debugged_resized_and_evicted() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    client.create(PODS, &pod("p"));
    let path = |subresource: &str| format!("{PODS}/p/{subresource}");
    let binding = json!({ "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "east" } });
    let bound = client.ask("POST", &path("binding"), &binding);
    assert_eq!((bound.code, &bound.json()["status"]), (201, &json!("Success")), "{}", bound.text());
    let second_binding = client.ask("POST", "/api/v1/namespaces/default/bindings", &binding).json();
    assert_eq!(
        second_binding["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"east\""
    );

    let added = json!({ "metadata": { "labels": { "x": "y" } }, "spec": { "ephemeralContainers": [{ "name": "d", "image": "i" }] } });
    let added = client.ask("PATCH", &path("ephemeralcontainers"), &added).json();
    assert_eq!(
        (&added["metadata"]["labels"], &added["metadata"]["generation"]),
        (&json!({ "app": "p" }), &json!(2))
    );
    let removed =
        client.ask("PATCH", &path("ephemeralcontainers"), &json!({ "spec": { "ephemeralContainers": [] } }));
    assert_eq!(removed.code, 422, "{}", removed.text());
    let larger = json!({ "spec": { "containers": [{ "name": "c", "image": "j", "resources": { "requests": { "cpu": "2" } } }] } });
    let resized = client.ask("PATCH", &path("resize"), &larger).json();
    let container = &resized["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["resources"]["requests"]["cpu"]), (&json!("i"), &json!("2")));

    let other = client.ask("POST", &path("eviction"), &json!({ "metadata": { "name": "q" } }));
    assert_eq!(other.json()["message"], "name in URL does not match name in Eviction object");
    let status =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(client.ask("PATCH", &path("status"), &status).code, 200);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    client.create(budgets, &json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "p" } } } }));
    let set_allowed_disruptions = |allowed: u32| {
        let status = json!({ "status": { "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 } });
        let answer = client.ask("PATCH", &format!("{budgets}/b/status"), &status);
        assert_eq!(answer.code, 200, "{}", answer.text());
    };
    let eviction = json!({ "metadata": { "name": "p" }, "deleteOptions": { "gracePeriodSeconds": 0 } });
    set_allowed_disruptions(0);
    let refused = client.ask("POST", &path("eviction"), &eviction);
    assert_eq!(
        (refused.code, &refused.json()["details"]["causes"][0]["reason"]),
        (429, &json!("DisruptionBudget")),
        "{}",
        refused.text()
    );
    set_allowed_disruptions(1);
    let evicted = client.ask("POST", &path("eviction"), &eviction);
    assert_eq!((evicted.code, &evicted.json()["status"]), (201, &json!("Success")), "{}", evicted.text());
    let budget = client.get(&format!("{budgets}/b")).json();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string(), "{budget}");
}

#[test]
fn some_kinds_can_be_created_by_an_update() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let put = |path: &str, body: Value| {
        let answer = client.ask("PUT", path, &body);
        (answer.code, answer.json())
    };
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    assert_eq!(put(lease, json!({ "metadata": { "name": "l", "resourceVersion": "5" }, "spec": {} })).0, 201);
    let (code, status) =
        put(lease, json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "x" } }));
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    let other = "/apis/coordination.k8s.io/v1/namespaces/default/leases/m";
    assert_eq!(put(other, json!({ "metadata": { "name": "m", "uid": "u" }, "spec": {} })).0, 409);
    assert_eq!(put("/api/v1/namespaces/default/configmaps/a", json!({ "metadata": { "name": "a" } })).0, 404);
    assert_eq!(put("/api/v1/namespaces/nowhere/endpoints/e", json!({ "metadata": { "name": "e" } })).0, 404);
}

#[test]
fn only_the_finalize_subresource_changes_namespace_finalizers() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    client.create("/api/v1/namespaces", &json!({ "metadata": { "name": "shop" } }));
    let finalize = |finalizers: Value| {
        let body = json!({ "metadata": { "name": "shop" }, "spec": { "finalizers": finalizers } });
        client.ask("PUT", "/api/v1/namespaces/shop/finalize", &body)
    };
    let more = finalize(json!(["kubernetes", "x.io/y"]));
    assert_eq!(
        (more.code, &more.json()["spec"]["finalizers"]),
        (200, &json!(["kubernetes", "x.io/y"])),
        "{}",
        more.text()
    );
    let body = json!({ "metadata": { "name": "shop" }, "spec": { "finalizers": [] } });
    let ignored = client.ask("PUT", "/api/v1/namespaces/shop", &body).json();
    assert_eq!(ignored["spec"]["finalizers"], json!(["kubernetes", "x.io/y"]));
}
