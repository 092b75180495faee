//! Compares decoding, defaulting, patches and selectors with a real kube-apiserver.
//!
//! A patch is compared like this: the server applies it (dry run), and we apply it to the same object and send the
//! result as a plain update (dry run). Both go through the server's defaulting and validation, so the two responses
//! must be equal.

mod bodies;
mod cluster;
mod corpus;
mod defaulted;
mod document;
mod patches;
mod texts;

use cluster::Cluster;
use document::Document;
use serde_json::{Value, json};

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn decoding_patches_and_selectors_equal_those_of_a_real_server() {
    let cluster = Cluster::start(&[]);
    let core = Document::new(&cluster.get("/openapi/v3/api/v1").body);
    let apps = Document::new(&cluster.get("/openapi/v3/apis/apps/v1").body);
    let mut differences = Vec::new();

    texts::compare_selectors(&cluster, &mut differences);
    texts::compare_quantities(&cluster, &mut differences);
    let deployment = SampledKind {
        path: "/apis/apps/v1/namespaces/default/deployments",
        kind: "Deployment",
        schema: apps.schema("io.k8s.api.apps.v1.Deployment"),
        sample: deployment(),
    };
    let service = SampledKind {
        path: "/api/v1/namespaces/default/services",
        kind: "Service",
        schema: core.schema("io.k8s.api.core.v1.Service"),
        sample: service(),
    };
    let pod = SampledKind {
        path: "/api/v1/namespaces/default/pods",
        kind: "Pod",
        schema: core.schema("io.k8s.api.core.v1.Pod"),
        sample: pod(),
    };
    bodies::compare(&cluster, &deployment, &mut differences);
    for kind in [&deployment, &service, &pod] {
        patches::compare(&cluster, kind, &mut differences);
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n\n"));
}

/// Needs no server.
#[test]
fn defaulting_twice_changes_nothing_in_odd_objects() {
    defaulted::default_odd_objects();
}

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn defaults_equal_those_of_a_real_server() {
    let cluster = Cluster::start(&[&defaulted::without_admission()]);
    let differences = defaulted::differences(&cluster);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n\n"));
}

/// A kind, and a valid object of it.
pub(crate) struct SampledKind {
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) schema: openapi::schema::SchemaRef,
    pub(crate) sample: Value,
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "sample", "labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"},
                     "finalizers": ["example.com/a", "example.com/b", "example.com/c"]},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {"name": "web", "image": "web:1", "args": ["a", "b"],
                         "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 443, "name": "https"}],
                         "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
                         "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                         "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                        {"name": "log", "image": "log:1"},
                        {"name": "mesh", "image": "mesh:1"},
                    ],
                    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "w"}}],
                    "tolerations": [{"key": "t", "operator": "Exists"}],
                    "imagePullSecrets": [{"name": "s1"}, {"name": "s2"}],
                    "nodeSelector": {"disk": "ssd"},
                },
            },
        },
    })
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "sample"},
        "spec": {"selector": {"app": "web"}, "externalIPs": ["192.0.2.1", "192.0.2.2"],
                 "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443, "targetPort": "tls"}]},
    })
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sample"},
        "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}],
                 "nodeName": "nowhere", "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["x", "y"]}],
                 "topologySpreadConstraints": [
                     {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
    })
}
