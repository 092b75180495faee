//! Does what was planned, through the server's own API: every write is admitted, filled and checked as anybody's.

use std::sync::Arc;

use apiserver::authn::identity::{Identity, User};
use apiserver::stack::Stack;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::containers::Files;
use crate::kind::Kind;
use crate::logs::Logs;
use crate::object::{controller, count, name, namespace, text, time, uid};
use crate::plan::{Event, Write};

/// Who the simulated components are. They may do everything.
const USER: &str = "standin";

/// What came of a write, for the owner it was made for.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Done,
    /// An owner got what it wanted.
    Granted {
        owner: String,
    },
    /// An owner could not have it; this is what it was told.
    Refused {
        owner: String,
        told: String,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Hands {
    stack: Arc<Stack>,
    logs: Arc<Logs>,
    files: Arc<Files>,
    clock: Clock,
}

impl Hands {
    pub(crate) fn new(stack: Arc<Stack>, logs: Arc<Logs>, files: Arc<Files>, clock: Clock) -> Hands {
        Hands { stack, logs, files, clock }
    }

    pub(crate) async fn perform(&self, write: Write) -> Outcome {
        match write {
            Write::Create { kind, object, announced } => return self.create(kind, object, announced).await,
            Write::Update { kind, object } => self.put(kind, object, "").await,
            Write::Status { kind, object } => self.put(kind, object, "/status").await,
            Write::Delete { kind, namespace, name, uid, grace_s } => {
                let path = format!("{}/{name}", kind.row().path(&namespace));
                let mut options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                    "preconditions": { "uid": uid },
                });
                if let Some(grace_s) = grace_s {
                    options["gracePeriodSeconds"] = grace_s.into();
                }
                self.expect(Method::DELETE, &path, options).await;
            }
            Write::Bind { namespace, name, uid, node } => {
                let path = format!("{}/{name}/binding", Kind::Pods.row().path(&namespace));
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name, "namespace": namespace, "uid": uid },
                    "target": { "apiVersion": "v1", "kind": "Node", "name": node },
                });
                self.expect(Method::POST, &path, binding).await;
            }
            Write::Event(event) => self.tell(event).await,
            Write::Log { pod, container, restarts, line } => {
                self.logs.write(&pod, &container, restarts, self.clock.now(), line);
            }
        }
        Outcome::Done
    }

    /// Has more kinds served.
    pub(crate) async fn define(&self, definitions: impl IntoIterator<Item = Value>) {
        for definition in definitions {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            self.expect(Method::POST, path, definition).await;
        }
    }

    /// Throws away what the containers of a pod wrote and had that is gone.
    pub(crate) fn forget(&self, pod: &str) {
        self.logs.forget(pod);
        self.files.forget(pod);
    }

    async fn create(&self, kind: Kind, object: Value, announced: Option<Event>) -> Outcome {
        let row = kind.row();
        let owner = controller(&object).map(|owner| text(owner, "/uid").to_owned());
        let path = format!("{}?fieldManager={USER}", row.path(namespace(&object)));
        let (code, answer) = self.ask(Method::POST, &path, &object).await;
        match (code.is_success(), announced) {
            (true, Some(mut event)) => {
                event.message = event.message.replace("{}", name(&answer));
                self.tell(event).await;
            }
            // Somebody else was faster, or was here before: the next look will tell.
            _ if code.is_success() || text(&answer, "/reason") == "AlreadyExists" => {}
            (_, announced) => {
                let told = text(&answer, "/message").to_owned();
                tracing::debug!(kind = row.kind, %told, "could not be made");
                if let Some(event) = announced {
                    let message = format!("Error creating: {told}");
                    self.tell(Event { is_warning: true, reason: "FailedCreate", message, ..event }).await;
                }
                return owner.map_or(Outcome::Done, |owner| Outcome::Refused { owner, told });
            }
        }
        owner.map_or(Outcome::Done, |owner| Outcome::Granted { owner })
    }

    async fn put(&self, kind: Kind, object: Value, part: &str) {
        let row = kind.row();
        let place = format!("{}/{}{part}?fieldManager={USER}", row.path(namespace(&object)), name(&object));
        self.expect(Method::PUT, &place, object).await;
    }

    /// Asks for something that works, unless the world has changed meanwhile.
    async fn expect(&self, method: Method, path: &str, body: Value) {
        let (code, answer) = self.ask(method.clone(), path, &body).await;
        if !code.is_success() && !matches!(code, StatusCode::CONFLICT | StatusCode::NOT_FOUND) {
            tracing::warn!(%method, path, told = text(&answer, "/message"), "a simulated controller was refused");
        }
    }

    /// Tells an Event. One that was told before counts once more.
    async fn tell(&self, event: Event) {
        let about = &event.about;
        let space = if namespace(about).is_empty() { "default" } else { namespace(about) };
        let same = format!("{}/{}/{}/{}", uid(about), event.reason, event.message, event.field);
        let told = format!("{}.{:016x}", name(about), xxhash_rust::xxh3::xxh3_64(same.as_bytes()));
        let now = time(self.clock.now());
        let row = event.kind.row();
        let mut involved = json!({
            "apiVersion": row.api_version(), "kind": row.kind, "name": name(about), "uid": uid(about),
            "resourceVersion": about["metadata"]["resourceVersion"],
        });
        for (field, value) in [("namespace", namespace(about)), ("fieldPath", event.field.as_str())] {
            if !value.is_empty() {
                involved[field] = value.into();
            }
        }
        let mut source = json!({ "component": event.source });
        if !event.host.is_empty() {
            source["host"] = event.host.as_str().into();
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": told, "namespace": space },
            "involvedObject": involved, "reason": event.reason, "message": event.message,
            "type": if event.is_warning { "Warning" } else { "Normal" },
            "source": source, "reportingComponent": event.source, "reportingInstance": event.host,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        let path = format!("/api/v1/namespaces/{space}/events");
        let (code, _) = self.ask(Method::POST, &path, &object).await;
        if code == StatusCode::CONFLICT {
            let path = format!("{path}/{told}");
            let (found, mut old) = self.ask(Method::GET, &path, &Value::Null).await;
            if found.is_success() {
                old["count"] = (count(&old, "/count") + 1).into();
                old["lastTimestamp"] = now;
                self.ask(Method::PUT, &path, &old).await;
            }
        }
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .header("user-agent", USER)
            .body(Full::new(bytes));
        let request = request.expect("paths are made of names, which have only letters that paths may have");
        let answer = self.stack.respond(identity(), request).await;
        let code = answer.status();
        let body = answer.into_body().collect().await.ok();
        let read = body.and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
        (code, read.unwrap_or_default())
    }
}

/// Somebody who may do everything.
pub(crate) fn identity() -> Identity {
    let groups = vec!["system:masters".to_owned()];
    Identity::known(User { name: USER.to_owned(), groups, ..User::default() })
}
