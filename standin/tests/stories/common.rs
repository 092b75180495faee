//! A client that sends plain JSON and waits for expected states.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use standin::{Options, Standin};

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const APPS: &str = "/apis/apps/v1/namespaces/default";
pub(crate) const BATCH: &str = "/apis/batch/v1/namespaces/default";
pub(crate) const CORE: &str = "/api/v1/namespaces/default";

pub(crate) struct TestCluster {
    pub(crate) standin: Standin,
    pub(crate) client: kube::Client,
}

impl TestCluster {
    /// Starts a stand-in without delays.
    pub(crate) async fn new() -> TestCluster {
        TestCluster::with(Options::new("east")).await
    }

    pub(crate) async fn with(options: Options) -> TestCluster {
        let standin = Standin::start(options).await.unwrap();
        TestCluster { client: standin.client(), standin }
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: Value) -> Result<Value, kube::Error> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request =
            Request::builder().method(method).uri(path).header("content-type", kind).body(bytes).unwrap();
        self.client.request(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.request("GET", path, Value::Null).await.unwrap_or_default()
    }

    pub(crate) async fn create(&self, collection: &str, object: Value) -> Value {
        self.request("POST", collection, object).await.unwrap()
    }

    pub(crate) async fn merge(&self, path: &str, patch: Value) -> Value {
        self.request("PATCH", path, patch).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.request("DELETE", path, Value::Null).await.unwrap();
    }

    /// Polls until the object has the expected state.
    pub(crate) async fn until(&self, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let poll = async {
            loop {
                let object = self.get(path).await;
                if is_right(&object) {
                    return object;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(TIMEOUT, poll).await {
            Ok(object) => object,
            Err(_) => panic!("{path} is still {:#}", self.get(path).await),
        }
    }

    pub(crate) async fn until_deleted(&self, path: &str) {
        self.until(path, Value::is_null).await;
    }

    /// Returns the body of a response that is not JSON.
    pub(crate) async fn text(&self, path: &str) -> Result<String, kube::Error> {
        self.client.request_text(Request::get(path).body(Vec::new()).unwrap()).await
    }

    pub(crate) async fn names(&self, collection: &str) -> Vec<String> {
        let listed = self.get(collection).await;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

pub(crate) fn template(app: &str, image: &str, annotations: Value) -> Value {
    json!({
        "metadata": { "labels": { "app": app }, "annotations": annotations },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    })
}

pub(crate) fn deployment(name: &str, replicas: i64, annotations: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": template(name, "nginx:1", annotations),
        },
    })
}

pub(crate) fn job(name: &str, spec: Value, annotations: Value) -> Value {
    let mut job =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": spec });
    job["spec"]["template"] = template(name, "busybox", annotations);
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    job
}
