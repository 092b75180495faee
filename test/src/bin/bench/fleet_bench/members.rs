//! Joins physical clusters as `holon join` does, and creates objects in their mailboxes.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::api_bench::client::BenchConnection;

const PATIENCE: Duration = Duration::from_secs(600);

/// Registers a physical cluster and the kubeconfig for it.
pub(super) async fn join(root: &mut BenchConnection, name: &str, kubeconfig: &str) -> Result<()> {
    let secret =
        json!({ "metadata": { "name": name }, "data": { "kubeconfig": STANDARD.encode(kubeconfig) } });
    post(root, "/api/v1/namespaces/kube-system/secrets", &secret).await?;
    let reference = json!({ "namespace": "kube-system", "name": name });
    let object = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster", "metadata": { "name": name },
        "spec": { "connection": { "push": { "secretRef": reference } } },
    });
    post(root, "/apis/holon.dev/v1alpha1/physicalclusters", &object).await?;
    let (path, begun) = (format!("{}/api/v1/namespaces/default", mailbox(name)), Instant::now());
    while root.get(&path).await.is_err() {
        if begun.elapsed() > PATIENCE {
            bail!("{name} has no mailbox after {PATIENCE:?}");
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Returns the path prefix of its mailbox.
pub(super) fn mailbox(name: &str) -> String {
    format!("/clusters/root:mailbox-{name}")
}

pub(super) async fn post(connection: &mut BenchConnection, path: &str, object: &Value) -> Result<()> {
    let created = connection.send(Method::POST, path, object.to_string().into()).await;
    created.map(drop).with_context(|| format!("creating {object}"))
}

pub(super) async fn read(connection: &mut BenchConnection, path: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&connection.get(path).await?)?)
}

pub(super) async fn until(description: &str, mut predicate: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !predicate().await? {
        if begun.elapsed() > PATIENCE {
            bail!("timed out after {PATIENCE:?} waiting until {description}");
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Returns the labels of an object that the syncer applies to the physical cluster.
pub(super) fn placed() -> Value {
    json!({ "holon.dev/placed": "true" })
}

pub(super) fn namespace() -> Value {
    json!({ "metadata": { "name": "shop", "labels": placed() } })
}

pub(super) fn map(name: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": placed() }, "data": { "settings": "x".repeat(1000) } })
}

pub(super) fn deployment(name: &str, replicas: u64) -> Value {
    let labels = json!({ "app": name });
    json!({
        "metadata": { "name": name, "labels": placed() },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "main:1" }] } },
        },
    })
}

pub(super) fn service(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": placed() },
        "spec": { "selector": { "app": name }, "ports": [{ "port": 80 }] },
    })
}
