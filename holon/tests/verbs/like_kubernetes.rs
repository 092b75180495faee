//! The same requests to a real kube-apiserver and to Holon: the responses must be the same, except for values that
//! differ between any two servers.

use serde_json::Value;
use testkit::Server;
use testkit::peers::Cluster;

use crate::common::HOLON;
use crate::wire::{JSON, MERGE, WireClient, WireResponse};

const MAPS: &str = "/api/v1/namespaces/compared/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/compared/leases";
const WEB: &str = "/apis/apps/v1/namespaces/compared/deployments/web/scale";
const LOST: &str = "/apis/apps/v1/namespaces/compared/deployments/lost/scale";
const PODS: &str = "/api/v1/namespaces/compared/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const META: &str = "g=meta.k8s.io;v=v1";

/// Objects that both servers need: path and body.
const PREREQUISITES: &[(&str, &str)] = &[
    ("/api/v1/namespaces", r#"{"metadata":{"name":"compared"}}"#),
    (MAPS, r#"{"metadata":{"name":"m","labels":{"a":"b"}},"data":{"x":"y"}}"#),
    (
        "/apis/apps/v1/namespaces/compared/deployments",
        r#"{"metadata":{"name":"web"},"spec":{"replicas":0,"paused":true,"selector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"t","operator":"In","values":["x","y"]}]},"template":{"metadata":{"labels":{"app":"web","t":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
    ),
    (
        PODS,
        r#"{"metadata":{"name":"p"},"spec":{"schedulerName":"none","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}"#,
    ),
];

/// Method, path, media type and text of the body, accepted media type.
type RequestLine = (&'static str, String, &'static str, &'static str, String);

fn line(
    method: &'static str,
    path: &str,
    media_type: &'static str,
    body: &'static str,
    accept: &str,
) -> RequestLine {
    (method, path.to_owned(), media_type, body, accept.to_owned())
}

/// Returns all requests, in the order in which they are sent.
fn request_lines() -> Vec<RequestLine> {
    [reads(), config_map_writes(), lease_creates_by_update(), scales(), pod_subresources()].concat()
}

/// Returns lists, watches and gets, with queries and representations.
fn reads() -> Vec<RequestLine> {
    let queries = [
        "limit=-1&labelSelector=none",
        "limit=abc",
        "limit=99999999999999999999",
        "timeoutSeconds=abc",
        "resourceVersion=-1",
        "resourceVersion=abc",
        "resourceVersion=99999999999999999999",
        "resourceVersion=99999999",
        "resourceVersion=99999999&resourceVersionMatch=Exact",
        "watch=1&resourceVersion=-1",
        "watch=1&resourceVersion=99999999999999999999",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Foo&resourceVersion=1",
        "sendInitialEvents=true",
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersionMatch=Exact&resourceVersion=1",
        "labelSelector=a%20in",
        "fieldSelector=data.x%3Dy",
    ];
    let mut lines: Vec<_> =
        queries.iter().map(|query| line("GET", &format!("{MAPS}?{query}"), JSON, "", "")).collect();
    for path in ["/m", "/none", "/m?resourceVersion=abc", "/m?resourceVersion=99999999"] {
        lines.push(line("GET", &format!("{MAPS}{path}"), JSON, "", ""));
    }
    let map = format!("{MAPS}/m");
    for representation in ["PartialObjectMetadata", "PartialObjectMetadataList", "Other"] {
        let accept = format!("{JSON};as={representation};{META}");
        lines.push(line("GET", &map, JSON, "", &accept));
        lines.push(line("GET", &format!("{MAPS}?labelSelector=a"), JSON, "", &accept));
    }
    lines.push(line("GET", &map, JSON, "", "text/html"));
    lines
}

fn config_map_writes() -> Vec<RequestLine> {
    let (map, missing) = (format!("{MAPS}/m"), format!("{MAPS}/none"));
    vec![
        line("PUT", &map, JSON, r#"{"metadata":{}}"#, ""),
        line("PUT", &map, JSON, r#"{"metadata":{"name":"x"}}"#, ""),
        line("PUT", &map, JSON, r#"{"metadata":{"name":"m","namespace":"x"}}"#, ""),
        line("PUT", &missing, JSON, r#"{"metadata":{"name":"none"}}"#, ""),
        line("PATCH", &map, MERGE, r#"{"metadata":{"name":"x"}}"#, ""),
        line("PATCH", &map, "text/x", "{}", ""),
        line("PATCH", &missing, MERGE, "{}", ""),
    ]
}

/// Returns updates of Leases, a kind that an update creates.
fn lease_creates_by_update() -> Vec<RequestLine> {
    let lease = |name: &str, body| line("PUT", &format!("{LEASES}/{name}"), JSON, body, "");
    vec![
        lease("l", r#"{"metadata":{"name":"l"},"spec":{}}"#),
        lease("l", r#"{"metadata":{"name":"l"},"spec":{"holderIdentity":"x"}}"#),
        lease("k", r#"{"metadata":{"name":"k","resourceVersion":"5"},"spec":{}}"#),
    ]
}

/// Returns requests for the scale subresource of a Deployment, and of one that does not exist.
fn scales() -> Vec<RequestLine> {
    vec![
        line("GET", WEB, JSON, "", ""),
        line("GET", WEB, JSON, "", &format!("{JSON};as=PartialObjectMetadata;{META}")),
        line("PUT", WEB, JSON, r#"{"metadata":{"name":"web"},"spec":{"replicas":-1}}"#, ""),
        line(
            "PUT",
            WEB,
            JSON,
            r#"{"metadata":{"name":"web","resourceVersion":"1"},"spec":{"replicas":3}}"#,
            "",
        ),
        line("PUT", WEB, JSON, r#"{"metadata":{"name":"other"},"spec":{"replicas":3}}"#, ""),
        line(
            "PUT",
            WEB,
            JSON,
            r#"{"metadata":{"name":"web","namespace":"other"},"spec":{"replicas":3}}"#,
            "",
        ),
        line("PUT", WEB, JSON, r#"{"spec":{"replicas":3}}"#, ""),
        line("PUT", WEB, JSON, r#"{"metadata":{"name":"web"},"spec":{}}"#, ""),
        line("PATCH", WEB, MERGE, r#"{"spec":{"replicas":-2}}"#, ""),
        line("PATCH", WEB, STRATEGIC, r#"{"metadata":{"resourceVersion":"1"},"spec":{"replicas":5}}"#, ""),
        line("DELETE", WEB, JSON, "", ""),
        line("GET", LOST, JSON, "", ""),
        line("PATCH", LOST, MERGE, "{}", ""),
        line("PUT", LOST, JSON, r#"{"metadata":{"name":"lost"}}"#, ""),
    ]
}

/// Returns bindings and evictions of a pod, and of one that does not exist.
fn pod_subresources() -> Vec<RequestLine> {
    let post = |path: &str, body| line("POST", &format!("{PODS}/{path}"), JSON, body, "");
    vec![
        post("p/binding", r#"{"target":{"kind":"Node","name":"n"}}"#),
        post("p/binding", r#"{"metadata":{"name":"p"},"target":{"kind":"Nod"}}"#),
        post("p/binding", r#"{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}"#),
        post("p/binding", r#"{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}"#),
        post("none/binding", r#"{"metadata":{"name":"none"},"target":{"kind":"Node","name":"n"}}"#),
        post("p/eviction", "{}"),
        post("p/eviction", r#"{"metadata":{"name":"p"}}"#),
        post("none/eviction", r#"{"metadata":{"name":"none"}}"#),
    ]
}

/// Returns a response without the values that differ between servers.
fn comparable(answer: &WireResponse) -> String {
    let body = serde_json::from_slice::<Value>(&answer.body).map(|body| without_server_values(&body));
    format!("{} {} {}", answer.code, answer.media_type, body.map_or(answer.text(), |body| body.to_string()))
}

pub(crate) fn without_server_values(value: &Value) -> Value {
    let server_values = ["uid", "resourceVersion", "creationTimestamp", "managedFields"];
    match value {
        Value::Object(map) => {
            let rest = map.iter().filter(|(key, _)| !server_values.contains(&key.as_str()));
            rest.map(|(key, value)| (key.clone(), without_server_values(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_server_values).collect(),
        // The current revision differs between servers.
        Value::String(text) => text.split(", current: ").next().unwrap_or_default().into(),
        leaf => leaf.clone(),
    }
}

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn kubernetes_responds_the_same() {
    let cluster = Cluster::start(&[]);
    let theirs = WireClient::of(&std::fs::read_to_string(cluster.kubeconfig()).unwrap());
    let server = Server::start(HOLON);
    let ours = WireClient::new(&server);
    for (path, object) in PREREQUISITES {
        let object: Value = serde_json::from_str(object).unwrap();
        ours.create(path, &object);
        // A pod needs its service account, which a controller creates after the namespace.
        let is_created = |_: &u32| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            theirs.ask("POST", path, &object).code == 201
        };
        assert!((0..100).any(|turn| is_created(&turn)), "{path}");
    }
    let mut different = Vec::new();
    for (method, path, media_type, body, accept) in request_lines() {
        let response_of = |client: &WireClient| {
            comparable(&client.send(method, &path, (media_type, body.as_bytes()), &accept))
        };
        let (expected, found) = (response_of(&theirs), response_of(&ours));
        // Holon answers 400 where Kubernetes answers 500, if the client's request was wrong.
        let is_blamed = expected.starts_with("500 ") && found.starts_with("400 ");
        if expected != found && !is_blamed {
            different.push(format!("{method} {path} {body} {accept}\n  they {expected}\n  we   {found}"));
        }
    }
    assert!(different.is_empty(), "{} responses differ:\n{}", different.len(), different.join("\n"));
}
