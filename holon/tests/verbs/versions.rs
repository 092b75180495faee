//! One object read and written in two API versions.

use serde_json::json;
use testkit::Server;

use crate::common::HOLON;
use crate::wire::WireClient;

#[test]
fn an_event_is_one_object_under_two_groups() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let (core, other) =
        ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    client.create(core, &json!({ "metadata": { "name": "a" }, "involvedObject": { "kind": "Pod", "name": "p", "namespace": "default" }, "reason": "R", "message": "M", "type": "Normal" }));
    client.create(other, &json!({ "metadata": { "name": "b" }, "regarding": { "kind": "Pod", "name": "q", "namespace": "default" }, "reason": "R", "note": "N", "type": "Normal", "action": "A", "eventTime": "2026-11-16T06:00:00.000000Z", "reportingController": "example.com/one", "reportingInstance": "one" }));
    let seen = client.get(&format!("{other}/a")).json();
    assert_eq!(
        (&seen["note"], &seen["regarding"]["name"], seen.get("message")),
        (&json!("M"), &json!("p"), None)
    );
    let seen = client.get(&format!("{core}/b")).json();
    assert_eq!(
        (&seen["message"], &seen["involvedObject"]["name"], &seen["apiVersion"]),
        (&json!("N"), &json!("q"), &json!("v1"))
    );
    assert_eq!(client.get(&format!("{core}?fieldSelector=involvedObject.name%3Dq")).names(), ["b"]);
    assert_eq!(client.get(&format!("{other}?fieldSelector=regarding.name%3Dp")).names(), ["a"]);
    assert_eq!(client.get(&format!("{other}?fieldSelector=involvedObject.name%3Dp")).code, 400);
    let patched = client.ask("PATCH", &format!("{core}/a"), &json!({ "message": "changed" })).json();
    assert_eq!((&patched["message"], &patched["kind"]), (&json!("changed"), &json!("Event")), "{patched}");
    let events = client.watched(&format!("{core}?watch=1&timeoutSeconds=1"));
    let notes: Vec<_> =
        events.iter().map(|(kind, event)| (kind.as_str(), event["message"].as_str().unwrap())).collect();
    assert_eq!(notes, [("ADDED", "changed"), ("ADDED", "N")]);
    let events = client.watched(&format!("{other}?watch=1&timeoutSeconds=1"));
    assert!(events.iter().all(|(_, event)| event["apiVersion"] == "events.k8s.io/v1"), "{events:?}");
    assert_eq!(client.ask("DELETE", &format!("{other}/b"), &json!(null)).code, 200);
    assert_eq!(client.get(core).names(), ["a"]);
}

#[test]
fn an_autoscaler_is_one_object_in_two_versions() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let [one, two] = ["v1", "v2"]
        .map(|version| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"));
    let target = json!({ "kind": "Deployment", "name": "web", "apiVersion": "apps/v1" });
    client.create(&one, &json!({ "metadata": { "name": "a" }, "spec": { "scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 } }));
    let seen = client.get(&format!("{two}/a")).json();
    assert_eq!(
        seen["spec"]["metrics"][0]["resource"]["target"],
        json!({ "type": "Utilization", "averageUtilization": 60 })
    );
    let pods = json!({ "type": "Pods", "pods": { "metric": { "name": "rps" }, "target": { "type": "AverageValue", "averageValue": "10" } } });
    let mut metrics = seen["spec"]["metrics"].clone();
    metrics.as_array_mut().unwrap().push(pods.clone());
    assert_eq!(
        client.ask("PATCH", &format!("{two}/a"), &json!({ "spec": { "metrics": metrics } })).code,
        200
    );
    // A client that knows only the first version must preserve the fields of the second.
    let old = client.get(&format!("{one}/a")).json();
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(client.ask("PUT", &format!("{one}/a"), &old).code, 200);
    let seen = client.get(&format!("{two}/a")).json();
    assert!(seen["spec"]["metrics"].as_array().unwrap().contains(&pods), "{seen}");
    assert!(seen["metadata"].get("annotations").is_none(), "{seen}");
    let list = client.get(&one).json();
    assert_eq!(list["apiVersion"], "autoscaling/v1");
    assert_eq!(list["items"][0].get("apiVersion"), None, "only the list names the version");
}
