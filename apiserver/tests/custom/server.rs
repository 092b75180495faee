//! A server without sockets: a store in memory, the controllers, and a client.

use std::sync::Arc;
use std::time::Duration;

use apiserver::authn::identity::{Identity, User};
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::controllers::Controllers;
use apiserver::kinds::{Own, Registry};
use apiserver::stack::Stack;
use bytes::Bytes;
use controller::tasks::Tasks;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use storage::Store;
use storage::memory::Memory;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) struct TestServer {
    pub(crate) stack: Arc<Stack>,
    /// Another server on the same store, which runs no controllers.
    pub(crate) second: Arc<Stack>,
    _tasks: Tasks,
}

/// A response.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl TestServer {
    pub(crate) async fn new() -> TestServer {
        TestServer::with_own(Own::default()).await
    }

    /// Like `new`, with these built-in kinds.
    pub(crate) async fn with_own(own: Own) -> TestServer {
        let inner_store: Arc<dyn Store> = Arc::new(Memory::new());
        let address = "192.0.2.10:6443".parse().unwrap();
        let objects = bootstrap::objects(&BootstrapOptions { authority: "a certificate", address });
        let store = BootstrapStore::open(inner_store.clone(), objects).await.unwrap();
        let mut tasks = Tasks::new();
        let mut server = || {
            let kinds = Arc::new(Registry::new(inner_store.clone()).with_own(own.clone()));
            tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
            (
                kinds.clone(),
                Arc::new(Stack::new(store.clone(), String::new(), tasks.stop()).with_kinds(kinds)),
            )
        };
        let ((kinds, stack), (_, second)) = (server(), server());
        let controllers =
            Controllers::new(store.clone(), inner_store, "a certificate".to_owned()).with_kinds(kinds);
        tasks.spawn("controllers", controllers.run(tasks.stop()));
        TestServer { stack, second, _tasks: tasks }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        send(&self.stack, method, path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, Value::Null).await
    }

    /// Creates an object, which must succeed.
    pub(crate) async fn create(&self, path: &str, body: Value) -> Value {
        let answer = self.send("POST", path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body
    }

    /// Merge-patches an object, which must succeed.
    pub(crate) async fn merge(&self, path: &str, patch: Value) -> Value {
        let answer = self.patch(path, "application/merge-patch+json", patch).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        answer.body
    }

    pub(crate) async fn patch(&self, path: &str, media: &str, patch: Value) -> Answer {
        let request = request("PATCH", path, &patch).header("content-type", media);
        answer(&self.stack, request.body(Full::new(patch.to_string().into())).unwrap()).await
    }

    /// Defines a kind in a logical cluster (`""`, `/clusters/root:a`), and waits until it is served.
    pub(crate) async fn define(&self, within: &str, definition: Value) {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        self.create(&format!("{within}{DEFINITIONS}"), definition).await;
        self.condition(within, &name, "Established", "True").await;
    }

    /// Waits until a definition has this condition, and returns the definition.
    pub(crate) async fn condition(&self, within: &str, name: &str, kind: &str, status: &str) -> Value {
        let path = format!("{within}{DEFINITIONS}/{name}");
        self.until(&path, |answer| {
            let mut conditions = answer.body["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == kind && condition["status"] == status)
        })
        .await
        .body
    }

    /// Repeats a read until the response is as expected.
    pub(crate) async fn until(&self, path: &str, is_right: impl Fn(&Answer) -> bool) -> Answer {
        let requesting = async {
            loop {
                let answer = self.get(path).await;
                if is_right(&answer) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, requesting).await {
            Ok(answer) => answer,
            Err(_) => panic!("{path} is still {}", self.get(path).await.body),
        }
    }

    pub(crate) async fn until_deleted(&self, path: &str) {
        self.until(path, |answer| answer.code == 404).await;
    }

    /// Begins a watch; [`Watched::remaining_events`] returns its events.
    pub(crate) async fn watch(&self, path: &str) -> Watched {
        let request = request("GET", path, &Value::Null).body(Full::<Bytes>::default()).unwrap();
        let response = self.stack.respond(administrator(), request).await;
        assert_eq!(response.status(), 200);
        Watched { body: response.into_body(), read: Vec::new() }
    }
}

pub(crate) struct Watched {
    body: apiserver::http::body::Body,
    read: Vec<u8>,
}

impl Watched {
    /// Returns the next event.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame =
                tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("the watch sends no event");
            self.read.extend_from_slice(&frame?.unwrap().into_data().unwrap());
        }
    }

    /// Returns types and names of all events until the watch ends.
    pub(crate) async fn remaining_events(mut self) -> Vec<String> {
        let mut reported = Vec::new();
        while let Some(event) = self.next().await {
            reported.push(summary(&event));
        }
        reported
    }
}

pub(crate) fn summary(event: &Value) -> String {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    format!("{} {name}", event["type"].as_str().unwrap_or_default())
}

pub(crate) async fn send(stack: &Arc<Stack>, method: &str, path: &str, body: Value) -> Answer {
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    answer(stack, request(method, path, &body).body(Full::new(bytes)).unwrap()).await
}

pub(crate) async fn answer(stack: &Arc<Stack>, request: Request<Full<Bytes>>) -> Answer {
    let response = stack.respond(administrator(), request).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Answer { code: head.status.as_u16(), headers: head.headers, body }
}

pub(crate) fn request(method: &str, path: &str, body: &Value) -> http::request::Builder {
    let builder = Request::builder().method(method).uri(path);
    if body.is_null() || method == "PATCH" {
        builder
    } else {
        builder.header("content-type", "application/json")
    }
}

fn administrator() -> Identity {
    let groups = vec!["system:masters".to_owned()];
    Identity::known(User { name: "admin".to_owned(), groups, ..User::default() })
}

/// Returns a definition of `widgets` in `shop.example`, with one version, `v1`, with this schema of `spec`.
pub(crate) fn widgets(spec: Value) -> Value {
    definition("widgets", "widget", "Widget", json!([version("v1", true, spec)]))
}

pub(crate) fn definition(plural: &str, singular: &str, kind: &str, versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.shop.example") },
        "spec": {
            "group": "shop.example", "scope": "Namespaced", "versions": versions,
            "names": { "plural": plural, "singular": singular, "kind": kind },
        },
    })
}

/// Returns a served version; exactly one version of a definition is stored.
pub(crate) fn version(name: &str, is_stored: bool, spec: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": is_stored,
        "schema": { "openAPIV3Schema": {
            "type": "object", "properties": { "spec": { "type": "object", "properties": spec } },
        } },
    })
}
