//! A client of an API server, for objects of any kind.
//!
//! Objects are JSON, without typed structs in between. Every call has a timeout, and its errors are classified by how a
//! caller can react.

use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::kind::ResourceKind;

/// The default timeout of a call. Less than the time between the moment a
/// holder of a [lease](crate::lease) must stop writing and the moment another may begin.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// The media type of a list with metadata only, for [`Remote::read_as`].
pub const NAMES: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error.
    #[error("{message} ({code})")]
    Refused { code: u16, reason: String, message: String },
    #[error("no response within {0:?}")]
    Silent(Duration),
    #[error("{0}")]
    Unreachable(String),
    /// The response cannot be decoded.
    #[error("cannot decode the response: {0}")]
    Garbled(String),
}

impl CallError {
    pub fn code(&self) -> u16 {
        match self {
            CallError::Refused { code, .. } => *code,
            _ => 0,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Reports whether another write was first. The caller reads the object again.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Reports whether the server has not reached the requested version: it was restored from a backup, or is another
    /// server. Clients recognize this error by its text.
    pub fn is_ahead(&self) -> bool {
        let contains = |message: &str| message.contains("Too large resource version");
        matches!(self, CallError::Refused { code: 504, message, .. } if contains(message))
    }

    /// Reports whether the server is reachable and responded.
    pub fn is_answer(&self) -> bool {
        matches!(self, CallError::Refused { code, .. } if *code < 500 && *code != 429)
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> CallError {
        match error {
            kube::Error::Api(status) => {
                CallError::Refused { code: status.code, reason: status.reason, message: status.message }
            }
            kube::Error::SerdeError(error) => CallError::Garbled(error.to_string()),
            kube::Error::FromUtf8(error) => CallError::Garbled(error.to_string()),
            // The outermost message is kube's own; the cause is at the end of the chain.
            other => CallError::Unreachable(innermost(&other)),
        }
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The patch type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patch<'a> {
    /// Server-side apply with force.
    Apply {
        manager: &'a str,
    },
    Json,
    Merge,
}

/// The location of an object or of its subresource.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPath<'a> {
    pub kind: &'a ResourceKind,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Empty for the object itself.
    pub part: &'a str,
}

impl<'a> ObjectPath<'a> {
    pub fn new(kind: &'a ResourceKind, namespace: &'a str, name: &'a str) -> ObjectPath<'a> {
        ObjectPath { kind, namespace, name, part: "" }
    }

    pub fn part(self, part: &'a str) -> ObjectPath<'a> {
        ObjectPath { part, ..self }
    }

    fn path(&self) -> String {
        let part = if self.part.is_empty() { String::new() } else { format!("/{}", self.part) };
        format!("{}/{}{part}", self.kind.path(self.namespace), self.name)
    }
}

/// An API server, or a logical cluster of one. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    client: Client,
    /// The prefix of all paths.
    prefix: Arc<str>,
    patience: Duration,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote")
    }
}

impl Remote {
    pub fn new(client: Client) -> Remote {
        Remote { client, prefix: "".into(), patience: PATIENCE }
    }

    /// Returns a client of one logical cluster. This client must have no logical cluster in its URL.
    pub fn within(&self, cluster: Id) -> Remote {
        Remote { prefix: format!("/clusters/{cluster}").into(), ..self.clone() }
    }

    /// Returns a client with this timeout for calls.
    pub fn with_patience(&self, patience: Duration) -> Remote {
        Remote { patience, ..self.clone() }
    }

    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Gets a document.
    pub async fn read(&self, path: &str) -> Result<Value, CallError> {
        self.call(Method::GET, path, "", Vec::new()).await
    }

    /// Gets a document with this `Accept` header.
    pub async fn read_as(&self, path: &str, form: &str) -> Result<Value, CallError> {
        let request = Request::get(self.path(path)).header("accept", form).body(Vec::new());
        let request = request.map_err(|error| CallError::Garbled(error.to_string()))?;
        match timeout(self.patience, self.client.request(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(CallError::Silent(self.patience)),
        }
    }

    pub async fn get(&self, place: ObjectPath<'_>) -> Result<Option<Value>, CallError> {
        match self.read(&place.path()).await {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Creates an object.
    pub async fn create(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, CallError> {
        self.call(Method::POST, &kind.path(namespace), "application/json", object.to_string().into_bytes())
            .await
    }

    /// Posts to a subresource of an object, such as `binding`.
    pub async fn post(&self, place: ObjectPath<'_>, body: &Value) -> Result<Value, CallError> {
        self.call(Method::POST, &place.path(), "application/json", body.to_string().into_bytes()).await
    }

    pub async fn replace(&self, place: ObjectPath<'_>, object: &Value) -> Result<Value, CallError> {
        self.call(Method::PUT, &place.path(), "application/json", object.to_string().into_bytes()).await
    }

    pub async fn patch(
        &self,
        place: ObjectPath<'_>,
        patch: Patch<'_>,
        change: &Value,
    ) -> Result<Value, CallError> {
        let (form, query) = match patch {
            Patch::Apply { manager } => {
                ("application/apply-patch+yaml", format!("?fieldManager={manager}&force=true"))
            }
            Patch::Json => ("application/json-patch+json", String::new()),
            Patch::Merge => ("application/merge-patch+json", String::new()),
        };
        let path = format!("{}{query}", place.path());
        self.call(Method::PATCH, &path, form, change.to_string().into_bytes()).await
    }

    /// Deletes the object with this uid and, in the background, its dependents. Returns whether it existed.
    pub async fn delete(&self, place: ObjectPath<'_>, uid: &str) -> Result<bool, CallError> {
        self.delete_within(place, uid, None).await
    }

    /// Deletes the object like [`Remote::delete`], with this grace period.
    pub async fn delete_within(
        &self,
        place: ObjectPath<'_>,
        uid: &str,
        grace_seconds: Option<i64>,
    ) -> Result<bool, CallError> {
        let mut options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": { "uid": uid }, "propagationPolicy": "Background",
        });
        if let Some(seconds) = grace_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        let body = options.to_string().into_bytes();
        match self.call(Method::DELETE, &place.path(), "application/json", body).await {
            Ok(_) => Ok(true),
            // A conflict means that another object has its name, so this one does not exist any more.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, method: Method, path: &str, form: &str, body: Vec<u8>) -> Result<Value, CallError> {
        let text = self.text(method, path, form, body, self.patience).await?;
        serde_json::from_str(&text).map_err(|error| CallError::Garbled(error.to_string()))
    }

    /// Returns the response body.
    pub async fn text(
        &self,
        method: Method,
        path: &str,
        form: &str,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<String, CallError> {
        let request = request(method, &self.path(path), form, body)?;
        match timeout(patience, self.client.request_text(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(CallError::Silent(patience)),
        }
    }
}

pub(crate) fn request(
    method: Method,
    path: &str,
    form: &str,
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, CallError> {
    let mut request = Request::builder().method(method).uri(path).header("accept", "application/json");
    if !form.is_empty() {
        request = request.header("content-type", form);
    }
    request.body(body).map_err(|error| CallError::Garbled(error.to_string()))
}
