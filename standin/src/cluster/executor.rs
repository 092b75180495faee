//! Executes plans through the API of the stand-in's server: admission, defaulting and validation apply to every write.

use std::sync::Arc;

use apiserver::stack::Stack;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::containers::ContainerFiles;
use crate::containers::logs::Logs;
use crate::identity::{USER, identity};
use crate::objects::fields::{controller_reference, count, name, namespace, text, time, uid};
use crate::objects::kind::ObjectKind;
use crate::plan::{Event, Write};

/// The result of a write.
#[derive(Debug, PartialEq)]
pub(crate) enum WriteResult {
    Done,
    /// An object with a controller was created, or existed already.
    Created {
        owner: String,
    },
    /// The server rejected the create of an object with a controller.
    CreateFailed {
        owner: String,
        message: String,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Executor {
    stack: Arc<Stack>,
    logs: Arc<Logs>,
    files: Arc<ContainerFiles>,
    clock: Clock,
}

impl Executor {
    pub(crate) fn new(
        stack: Arc<Stack>,
        logs: Arc<Logs>,
        files: Arc<ContainerFiles>,
        clock: Clock,
    ) -> Executor {
        Executor { stack, logs, files, clock }
    }

    pub(crate) async fn execute(&self, write: Write) -> WriteResult {
        match write {
            Write::Create { kind, object, event } => return self.create(kind, object, event).await,
            Write::Update { kind, object } => self.put(kind, object, "").await,
            Write::Status { kind, object } => self.put(kind, object, "/status").await,
            Write::Delete { kind, namespace, name, uid, grace_s } => {
                let path = format!("{}/{name}", kind.info().path(&namespace));
                let mut options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                    "preconditions": { "uid": uid },
                });
                if let Some(grace_s) = grace_s {
                    options["gracePeriodSeconds"] = grace_s.into();
                }
                self.send(Method::DELETE, &path, options).await;
            }
            Write::Bind { namespace, name, uid, node } => {
                let path = format!("{}/{name}/binding", ObjectKind::Pods.info().path(&namespace));
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name, "namespace": namespace, "uid": uid },
                    "target": { "apiVersion": "v1", "kind": "Node", "name": node },
                });
                self.send(Method::POST, &path, binding).await;
            }
            Write::Event(event) => self.record(event).await,
            Write::Log { pod, container, restarts, line } => {
                self.logs.write(&pod, &container, restarts, self.clock.now(), line);
            }
        }
        WriteResult::Done
    }

    /// Creates CustomResourceDefinitions.
    pub(crate) async fn create_definitions(&self, definitions: impl IntoIterator<Item = Value>) {
        for definition in definitions {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            self.send(Method::POST, path, definition).await;
        }
    }

    /// Deletes the logs and files of a deleted pod's containers.
    pub(crate) fn remove_pod(&self, pod: &str) {
        self.logs.remove_pod(pod);
        self.files.remove_pod(pod);
    }

    async fn create(&self, kind: ObjectKind, object: Value, event: Option<Event>) -> WriteResult {
        let info = kind.info();
        let owner = controller_reference(&object).map(|owner| text(owner, "/uid").to_owned());
        let path = format!("{}?fieldManager={USER}", info.path(namespace(&object)));
        let (code, body) = self.request(Method::POST, &path, &object).await;
        match (code.is_success(), event) {
            (true, Some(mut event)) => {
                event.message = event.message.replace("{}", name(&body));
                self.record(event).await;
            }
            // The object exists already; the next reconcile reads it.
            _ if code.is_success() || text(&body, "/reason") == "AlreadyExists" => {}
            (_, event) => {
                let message = text(&body, "/message").to_owned();
                tracing::debug!(kind = info.kind, %message, "a simulated controller could not create an object");
                if let Some(event) = event {
                    let message = format!("Error creating: {message}");
                    self.record(Event { is_warning: true, reason: "FailedCreate", message, ..event }).await;
                }
                return owner.map_or(WriteResult::Done, |owner| WriteResult::CreateFailed { owner, message });
            }
        }
        owner.map_or(WriteResult::Done, |owner| WriteResult::Created { owner })
    }

    async fn put(&self, kind: ObjectKind, object: Value, subresource: &str) {
        let info = kind.info();
        let path =
            format!("{}/{}{subresource}?fieldManager={USER}", info.path(namespace(&object)), name(&object));
        self.send(Method::PUT, &path, object).await;
    }

    /// Sends a request, and logs a failure other than a conflict or a missing object, which mean that the cache was
    /// stale.
    async fn send(&self, method: Method, path: &str, body: Value) {
        let (code, body) = self.request(method.clone(), path, &body).await;
        if !code.is_success() && !matches!(code, StatusCode::CONFLICT | StatusCode::NOT_FOUND) {
            tracing::warn!(%method, path, message = text(&body, "/message"), "the API server refused a request of a simulated controller");
        }
    }

    /// Records an Event. A repeated one increments the count of the first.
    async fn record(&self, event: Event) {
        let object = &event.regarding;
        let ns = if namespace(object).is_empty() { "default" } else { namespace(object) };
        let identity = format!("{}/{}/{}/{}", uid(object), event.reason, event.message, event.field_path);
        let event_name = format!("{}.{:016x}", name(object), xxhash_rust::xxh3::xxh3_64(identity.as_bytes()));
        let now = time(self.clock.now());
        let info = event.kind.info();
        let mut involved = json!({
            "apiVersion": info.api_version(), "kind": info.kind, "name": name(object), "uid": uid(object),
            "resourceVersion": object["metadata"]["resourceVersion"],
        });
        for (field, value) in [("namespace", namespace(object)), ("fieldPath", event.field_path.as_str())] {
            if !value.is_empty() {
                involved[field] = value.into();
            }
        }
        let mut source = json!({ "component": event.source });
        if !event.host.is_empty() {
            source["host"] = event.host.as_str().into();
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": event_name, "namespace": ns },
            "involvedObject": involved, "reason": event.reason, "message": event.message,
            "type": if event.is_warning { "Warning" } else { "Normal" },
            "source": source, "reportingComponent": event.source, "reportingInstance": event.host,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        let path = format!("/api/v1/namespaces/{ns}/events");
        let (code, _) = self.request(Method::POST, &path, &object).await;
        if code == StatusCode::CONFLICT {
            let path = format!("{path}/{event_name}");
            let (found, mut old) = self.request(Method::GET, &path, &Value::Null).await;
            if found.is_success() {
                old["count"] = (count(&old, "/count") + 1).into();
                old["lastTimestamp"] = now;
                self.request(Method::PUT, &path, &old).await;
            }
        }
    }

    async fn request(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .header("user-agent", USER)
            .body(Full::new(bytes));
        let request = request.expect("a path of valid names is a valid URI");
        let response = self.stack.respond(identity(), request).await;
        let code = response.status();
        let body = response.into_body().collect().await.ok();
        let body = body.and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
        (code, body.unwrap_or_default())
    }
}
