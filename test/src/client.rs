//! A test client: reads and writes one server by path, and waits until an object reaches an expected state.

use std::time::Duration;

use anyhow::{Result, bail};
use controller::remote::{CallError, Remote};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub use testkit::objects::condition;

/// How long a wait may take before it fails. Much more than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Reads and writes one server, or one of its logical clusters, by path.
#[derive(Clone, Debug)]
pub struct TestClient(pub Remote);

impl TestClient {
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        match self.0.read(path).await {
            Err(error) if error.is_not_found() => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    /// Returns the objects of a collection.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let found = self.get(path).await?.unwrap_or_default();
        Ok(found["items"].as_array().cloned().unwrap_or_default())
    }

    /// Creates an object in a collection.
    pub async fn create(&self, path: &str, object: Value) -> Result<Value> {
        self.send(Method::POST, path, "application/json", &object).await
    }

    pub async fn merge(&self, path: &str, change: Value) -> Result<Value> {
        self.send(Method::PATCH, path, "application/merge-patch+json", &change).await
    }

    /// Applies an object as kubectl does, whether or not it exists.
    pub async fn apply(&self, path: &str, object: Value) -> Result<Value> {
        let path = format!("{path}?fieldManager=user&force=true");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", &object).await
    }

    async fn send(&self, method: Method, path: &str, media_type: &str, body: &Value) -> Result<Value> {
        let text = self.0.text(method, path, media_type, body.to_string().into(), PATIENCE).await?;
        Ok(serde_json::from_str(&text)?)
    }

    pub async fn delete(&self, path: &str) -> Result<()> {
        let body = json!({ "propagationPolicy": "Background" }).to_string().into();
        self.0.text(Method::DELETE, path, "application/json", body, PATIENCE).await?;
        Ok(())
    }

    /// Sets the placement annotation of an object, a namespace or a logical cluster.
    pub async fn place(&self, path: &str, placement: &str) -> Result<Value> {
        self.merge(path, json!({ "metadata": { "annotations": { "holon.dev/placement": placement } } })).await
    }

    /// Waits until an object meets the predicate, and returns it. A missing object is `null`.
    pub async fn until(&self, path: &str, predicate: impl Fn(&Value) -> bool) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let found = match self.get(path).await {
                // Retries while the server is unreachable.
                Err(error) if error.downcast_ref::<CallError>().is_some_and(|error| !error.is_answer()) => {
                    Value::Null
                }
                found => found?.unwrap_or_default(),
            };
            if predicate(&found) {
                return Ok(found);
            }
            if begun.elapsed() > PATIENCE {
                bail!("{path} did not reach the expected state within {PATIENCE:?}: {found:#}");
            }
            sleep(POLL_EVERY).await;
        }
    }

    pub async fn until_exists(&self, path: &str) -> Result<Value> {
        self.until(path, |found| !found.is_null()).await
    }

    pub async fn until_deleted(&self, path: &str) -> Result<()> {
        self.until(path, Value::is_null).await.map(drop)
    }

    /// Waits until a Deployment has so many replicas, all updated and available, in the status of its current
    /// generation.
    pub async fn until_available(&self, path: &str, replicas: u64) -> Result<Value> {
        let predicate = |found: &Value| {
            let status = &found["status"];
            let is = |field: &str| status[field].as_u64().unwrap_or_default() == replicas;
            !found.is_null()
                && found["spec"]["replicas"].as_u64() == Some(replicas)
                && ["replicas", "updatedReplicas", "availableReplicas"].into_iter().all(is)
                && status["observedGeneration"] == found["metadata"]["generation"]
        };
        self.until(path, predicate).await
    }
}

/// Waits until any other condition is true. The description completes "waiting until …".
pub async fn until(description: &str, mut predicate: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !predicate().await? {
        if begun.elapsed() > PATIENCE {
            bail!("timed out after {PATIENCE:?} waiting until {description}");
        }
        sleep(POLL_EVERY).await;
    }
    Ok(())
}
