//! From a request to an answer.
//!
//! ```text
//!   path ─► probe?  ─► who is it ─► which logical cluster ─► which resource ─► verb ─► answer
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::cluster::Id;
use bytes::Bytes;
use controller::tasks::Stop;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use openapi::resource::Verb;
use openapi::status::{Grouped, Status};
use openapi::table::Include;
use serde_json::json;
use storage::Store;

use crate::call::{Call, unreadable};
use crate::identity::Identity;
use crate::negotiate::{self, Form};
use crate::query::Query;
use crate::render::{self, Style};
use crate::request::{self, Cluster, Health, Target};
use crate::server::{Body, Handler};
use crate::verbs::{create, delete, get, list, patch, update, watch};
use crate::{body, clusters, emptying, publish};

/// Kubernetes as which we speak, and who we are.
const KUBERNETES: (&str, &str, &str) = ("1", "36", concat!("v1.36.4+holon-", env!("CARGO_PKG_VERSION")));

/// Why a body could not be read.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The server's own state: a store, and whether it is ready.
#[derive(Debug)]
pub struct Stack {
    store: Arc<dyn Store>,
    /// Where clients reach it, as discovery says.
    address: String,
    ready: AtomicBool,
    /// Ends watches, which would otherwise go on for as long as their clients like.
    stop: Stop,
}

impl Stack {
    pub fn new(store: Arc<dyn Store>, address: String, stop: Stop) -> Stack {
        Stack { store, address, ready: AtomicBool::new(true), stop }
    }

    /// From now on the probe says that no new requests should come here.
    pub fn retire(&self) {
        self.ready.store(false, Ordering::Relaxed);
    }

    /// The answer to a request, wherever it came from: it always has one.
    pub async fn respond<B>(&self, identity: &Identity, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let is_head = request.method() == Method::HEAD;
        let mut response = match self.answer(identity, request).await {
            Ok(response) => response,
            Err(status) => render::status(&status),
        };
        if is_head {
            *response.body_mut() = render::nothing();
        }
        response
    }

    async fn answer<B>(&self, identity: &Identity, request: Request<B>) -> Result<Response<Body>, Status>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (head, incoming) = request.into_parts();
        let (cluster, target) = request::parse(head.uri.path()).map_err(|_| Status::unknown_path())?;
        match &target {
            Target::Health { endpoint, .. } => return Ok(self.health(*endpoint)),
            Target::Version => return Ok(version()),
            _ => {}
        }
        if *identity == Identity::Anonymous {
            return Err(Status::unauthorized());
        }
        let id = self.find(&cluster).await?;
        let Target::Resource(resource) = target else {
            if !matches!(head.method, Method::GET | Method::HEAD) {
                return Err(not_allowed(Grouped::new("", ""), &head.method));
            }
            let address = self.address.clone();
            // The first to ask for a document waits for it to be made, and holds up nobody else meanwhile.
            let made = tokio::task::spawn_blocking(move || publish::answer(&target, &head.headers, &address));
            return made.await.map_err(|error| Status::internal(&error.to_string()))?;
        };
        let row = publish::find(&resource.group, &resource.version, &resource.resource)
            .ok_or_else(Status::unknown_path)?;
        let call = Call {
            cluster: id,
            row: row.clone(),
            namespace: resource.namespace,
            name: resource.name,
            subresource: resource.subresource,
            query: Query::parse(head.uri.query()),
            headers: head.headers,
        };
        // A path with a namespace leads to kinds that have one, and to no others.
        if call.namespace.is_some() && !row.namespaced
            || call.name.is_some() && row.namespaced && call.namespace.is_none()
        {
            return Err(Status::unknown_path());
        }
        if call.subresource.as_deref().is_some_and(|part| row.subresource(part).is_none()) {
            return Err(Status::unknown_path());
        }
        let verb = verb(&head.method, &call).ok_or_else(|| not_allowed(call.grouped(), &head.method))?;
        let bytes = match verb {
            Verb::Get | Verb::List | Verb::Watch => Bytes::new(),
            _ => body::read(incoming).await?,
        };
        self.run(verb, &call, &bytes).await
    }

    async fn run(&self, verb: Verb, call: &Call, bytes: &Bytes) -> Result<Response<Body>, Status> {
        let store = &*self.store;
        let form = negotiate::answer(&call.headers, |form| {
            matches!(form, Form::Json | Form::Table | Form::Partial)
        })?;
        let include = Include::parse(call.query.text("includeObject"))
            .ok_or_else(|| Status::bad_request("includeObject must be None, Metadata or Object"))?;
        let style = &Style { form, row: &call.row, include };
        let response = match verb {
            Verb::Get => return get::get(store, call, style).await,
            Verb::List => return list::list(store, call, style).await,
            Verb::Watch => return watch::watch(store, call, style, self.stop.clone()).await,
            Verb::Create => return create::create(store, call, style, bytes).await,
            Verb::Update => update::update(store, call, style, bytes).await?,
            Verb::Patch => patch::patch(store, call, style, bytes).await?,
            Verb::Delete => delete::delete(store, call, style, bytes).await?,
            Verb::DeleteCollection => delete::delete_collection(store, call, style, bytes).await?,
        };
        // The object is as the client wanted it; what follows from that goes on with the next request if it
        // cannot now.
        if let Err(status) = emptying::settle(store, call).await {
            tracing::warn!(message = status.message, "what is leaving could not be emptied");
        }
        Ok(response)
    }

    async fn find(&self, cluster: &Cluster) -> Result<Id, Status> {
        match cluster {
            Cluster::Bare => Ok(Id::ROOT),
            Cluster::Path(path) => {
                clusters::find(&*self.store, path).await.map_err(unreadable)?.ok_or_else(Status::unknown_path)
            }
            // Ids and "all of them" are for privileged callers, of whom there are none yet.
            Cluster::Id(_) | Cluster::All => Err(Status::unknown_path()),
        }
    }

    /// A server that is stopping is well, but nobody should come any more.
    fn health(&self, endpoint: Health) -> Response<Body> {
        match endpoint != Health::Readyz || self.ready.load(Ordering::Relaxed) {
            true => render::text(StatusCode::OK, "ok"),
            false => render::text(StatusCode::SERVICE_UNAVAILABLE, "shutting down"),
        }
    }
}

impl Handler for Stack {
    async fn handle(self: Arc<Self>, identity: Identity, request: Request<Incoming>) -> Response<Body> {
        self.respond(&identity, request).await
    }
}

/// What a method means for what the path names.
fn verb(method: &Method, call: &Call) -> Option<Verb> {
    let named = call.name.is_some();
    let verb = match (method, named) {
        (&Method::GET | &Method::HEAD, true) => Verb::Get,
        (&Method::GET | &Method::HEAD, false) if call.query.flag("watch") => Verb::Watch,
        (&Method::GET | &Method::HEAD, false) => Verb::List,
        (&Method::POST, false) => Verb::Create,
        (&Method::PUT, true) => Verb::Update,
        (&Method::PATCH, true) => Verb::Patch,
        (&Method::DELETE, true) => Verb::Delete,
        (&Method::DELETE, false) => Verb::DeleteCollection,
        _ => return None,
    };
    let verbs = match &call.subresource {
        None => &call.row.verbs,
        Some(part) => &call.row.subresource(part)?.verbs,
    };
    verbs.contains(&verb).then_some(verb)
}

fn not_allowed(what: Grouped<'_>, method: &Method) -> Status {
    Status::method_not_allowed(what, &method.as_str().to_lowercase())
}

/// The processor, in the words clients know.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn version() -> Response<Body> {
    let (major, minor, version) = KUBERNETES;
    render::value(
        StatusCode::OK,
        &json!({
            "major": major, "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
        }),
    )
}
