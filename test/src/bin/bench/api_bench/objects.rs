//! The objects that are written: the same bytes to both servers, apart from names.

use bytes::Bytes;
use rand::RngExt;
use serde_json::{Value, json};

/// The size of one ConfigMap's data.
const PAYLOAD_BYTES: usize = 1024;
/// One object in so many has the label that the selector matches.
pub(crate) const RARE: usize = 1000;

/// Sorts before `kube-root-ca.crt`, which a server may add to a namespace, so that pages begin with our objects.
pub(crate) const PREFIX: &str = "entry-";

pub(crate) fn name(number: usize) -> String {
    format!("{PREFIX}{number:08}")
}

/// ConfigMaps of 1 KB.
#[derive(Clone, Debug)]
pub(crate) struct ConfigMaps {
    payload: String,
}

impl ConfigMaps {
    pub(crate) fn new() -> ConfigMaps {
        // Random letters, so that compression favors neither side.
        let mut rng = rand::rng();
        ConfigMaps { payload: (0..PAYLOAD_BYTES).map(|_| rng.random_range('a'..='z')).collect() }
    }

    pub(crate) fn body(&self, number: usize) -> Bytes {
        self.object(number, None, "0")
    }

    /// Returns the body of an update of an object at this resource version.
    pub(crate) fn changed(&self, number: usize, version: &str, step: usize) -> Bytes {
        self.object(number, Some(version), &step.to_string())
    }

    /// Returns a body that carries a word, which watches look for.
    pub(crate) fn with_word(&self, number: usize, word: &str) -> Bytes {
        self.object(number, None, word)
    }

    fn object(&self, number: usize, version: Option<&str>, word: &str) -> Bytes {
        let rare = if number.is_multiple_of(RARE) { "yes" } else { "no" };
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name(number), "labels": { "app": "bench", "rare": rare } },
            "data": { "fill": self.payload, "word": word },
        });
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = Value::from(version);
        }
        object.to_string().into()
    }
}

/// Returns a typical Deployment: one container with its ports, resources, probes and a mounted ConfigMap.
pub(crate) fn deployment(name: &str) -> Bytes {
    deployment_of(name, "registry.example/shop/web:1.4.2")
}

/// Returns the same Deployment with another image.
pub(crate) fn deployment_of(name: &str, image: &str) -> Bytes {
    let labels = json!({ "app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop" });
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "http" }, "periodSeconds": 5 });
    let container = json!({
        "name": "web",
        "image": image,
        "args": ["--listen=:8080", "--config=/etc/web/config.yaml"],
        "env": [
            { "name": "LOG_LEVEL", "value": "info" },
            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } },
        ],
        "ports": [{ "name": "http", "containerPort": 8080 }, { "name": "metrics", "containerPort": 9090 }],
        "resources": {
            "requests": { "cpu": "100m", "memory": "128Mi" },
            "limits": { "cpu": "1", "memory": "256Mi" },
        },
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "volumeMounts": [{ "name": "config", "mountPath": "/etc/web" }],
    });
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app.kubernetes.io/name": name } },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "securityContext": { "runAsNonRoot": true, "runAsUser": 1000 },
                    "containers": [container],
                    "volumes": [{ "name": "config", "configMap": { "name": "web" } }],
                },
            },
        },
    });
    object.to_string().into()
}
