//! The request path: layers of [`tower`] around the dispatcher, put in order in one place, [`Stack::respond`].
//!
//! ```text
//!   log ─► audit ─► metrics ─► encoding ─► errors ─► authentication ─► limits ─► challenge ─► deadline ─► dispatch
//!     each layer sees the response of the layers to its right
//! ```
//!
//! [`layers`] has a function per layer, [`context`] the request as it passes from one to the next, and [`dispatch`] the
//! way to the endpoint.

mod context;
mod detached;
mod dispatch;
mod layers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use controller::tasks::{Stop, StreamTasks};
use http::{HeaderMap, Request, Response};
use jiff::Timestamp;
use openapi::meta::status::Status;
use storage::Store;
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt};

use crate::admission::Admission;
use crate::admission::guard::Guard;
use crate::audit::Audit;
use crate::authn::credential::Authenticators;
use crate::authn::identity;
use crate::authn::identity::Identity;
use crate::authn::service_accounts::{Accounts, NotFound};
use crate::authn::token_file::Tokens;
use crate::authz::access::Access;
use crate::endpoints::connect::Connect;
use crate::endpoints::metrics::Metrics;
use crate::http::body::Body;
use crate::http::incoming::Incoming;
use crate::http::limits::{Limits, Tenant};
use crate::http::server::Handler;
use crate::kinds::Registry;
use crate::objects::store_errors::unreadable;
use context::{ApiRequest, RequestContext};

/// The state of the server: a store, and whether it is ready.
#[derive(Debug)]
pub struct Stack {
    store: Arc<dyn Store>,
    /// The kinds of each logical cluster.
    kinds: Arc<Registry>,
    /// The address of the server, for discovery.
    address: String,
    ready: AtomicBool,
    authenticators: Authenticators,
    access: Arc<Access>,
    audit: Option<Audit>,
    /// Answers requests for running pods, if the program has one.
    connect: Option<Arc<dyn Connect>>,
    /// Checks writes to guarded objects.
    admission: Admission,
    limits: Arc<Limits>,
    metrics: Metrics,
    /// The commit of the program that serves; empty if it is unknown.
    commit: &'static str,
    /// Writes in progress. They continue if their clients disconnect.
    writes: StreamTasks,
    /// Ends watches when the server stops.
    stop: Stop,
}

impl Stack {
    pub fn new(store: Arc<dyn Store>, address: String, stop: Stop) -> Stack {
        Stack {
            kinds: Arc::new(Registry::new(store.clone())),
            access: Arc::new(Access::plain(store.clone())),
            authenticators: Authenticators {
                tokens: Arc::default(),
                accounts: Arc::new(Accounts::new(store.clone(), format!("https://{address}"))),
            },
            store,
            address,
            ready: AtomicBool::new(true),
            audit: None,
            connect: None,
            admission: Admission::default(),
            limits: Arc::default(),
            metrics: Metrics::default(),
            commit: "",
            writes: StreamTasks::default(),
            stop,
        }
    }

    /// Serves the kinds of this registry, which may be shared.
    pub fn with_kinds(mut self, kinds: Arc<Registry>) -> Stack {
        self.kinds = kinds;
        self
    }

    /// Reports this commit as the one the program was built from.
    pub fn with_commit(mut self, commit: &'static str) -> Stack {
        self.metrics.set_build_info(commit);
        self.commit = commit;
        self
    }

    /// Also authenticates clients by these tokens.
    pub fn with_tokens(mut self, tokens: Tokens) -> Stack {
        self.authenticators.tokens = Arc::new(tokens);
        self
    }

    /// Writes an audit log.
    pub fn with_audit(mut self, audit: Audit) -> Stack {
        self.audit = Some(audit);
        self
    }

    /// Forwards requests for running pods.
    pub fn with_connect(mut self, connect: Arc<dyn Connect>) -> Stack {
        self.connect = Some(connect);
        self
    }

    /// Checks writes with a guard.
    pub fn with_guard(mut self, guard: Arc<dyn Guard>) -> Stack {
        self.admission = Admission::with_guard(guard);
        self
    }

    /// Authenticates service accounts by the tokens of these.
    pub fn with_accounts(mut self, accounts: Arc<Accounts>) -> Stack {
        self.authenticators.accounts = accounts;
        self
    }

    /// Authorizes with this policy index, instead of one of its own.
    pub fn with_access(mut self, access: Arc<Access>) -> Stack {
        self.access = access;
        self
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn kinds(&self) -> &Arc<Registry> {
        &self.kinds
    }

    /// Makes the readiness probe fail, so that no new requests are sent here.
    pub fn retire(&self) {
        self.ready.store(false, Ordering::Relaxed);
    }

    /// Answers a request. Every request gets a response. `peer` is the identity of the connection.
    pub async fn respond(
        self: &Arc<Self>,
        peer: Identity,
        request: Request<impl Incoming + Send + 'static>,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let context = Arc::new(RequestContext::of(&head));
        let connection = head.extensions.remove();
        let request = ApiRequest { context, peer, headers: head.headers, connection, body };
        let stack = self.clone();
        let layers = ServiceBuilder::new()
            .layer_fn(layers::log)
            .layer_fn(|inner| layers::audit(self.clone(), inner))
            .layer_fn(|inner| layers::metrics(self.clone(), inner))
            .layer_fn(layers::response_encoding)
            .layer_fn(layers::errors)
            // Nested types of this depth exceed what the compiler computes.
            .layer_fn(BoxCloneService::new)
            .layer_fn(|inner| layers::authentication(self.clone(), inner))
            .layer_fn(|inner| layers::limits(self.clone(), inner))
            .layer_fn(layers::challenge)
            .layer_fn(layers::deadline)
            .layer_fn(BoxCloneService::new)
            .service_fn(move |request| {
                let stack = stack.clone();
                async move { stack.dispatch(request).await }
            });
        let Ok(response) = layers.oneshot(request).await;
        response
    }

    /// Authenticates a request: by certificate, by the token file, or as a service account.
    async fn identify(&self, peer: Identity, headers: &HeaderMap) -> Result<Identity, Status> {
        match (Identity::of_request(peer, headers, &self.authenticators.tokens), identity::bearer(headers)) {
            (Err(_), Some(token)) => {
                let accounts = &self.authenticators.accounts;
                let _place =
                    if accounts.is_verified(token) { None } else { Some(self.limits.begin_verification()?) };
                match accounts.find(token, &[]).await {
                    Ok(found) => Ok(found.identity),
                    Err(NotFound::Unreadable(error)) => Err(unreadable(error)),
                    // The token was valid once, so the response may say that it has expired.
                    Err(NotFound::Expired) => Err(Status::token_expired()),
                    Err(NotFound::Foreign | NotFound::Invalid(_)) => Err(Status::unauthorized()),
                }
            }
            (Ok(identity), _) if identity.is_expired(Timestamp::now().as_second()) => {
                Err(Status::unauthorized())
            }
            (identity, _) => identity,
        }
    }

    /// Returns the tenant that requests of an identity count for.
    async fn tenant(&self, identity: &Identity) -> Tenant {
        match (identity, identity.home()) {
            (Identity::Anonymous, _) => Tenant::Anonymous,
            (Identity::User(user), None) => Tenant::User(user.name.as_str().into()),
            // If the store cannot be read, a later step of the request reports it.
            (Identity::User(_), Some(home)) => {
                Tenant::Cluster(self.access.tenant(home).await.unwrap_or(home))
            }
        }
    }
}

impl Handler for Stack {
    async fn handle(
        self: Arc<Self>,
        peer: Identity,
        request: Request<hyper::body::Incoming>,
    ) -> Response<Body> {
        self.respond(peer, request).await
    }

    async fn finish(&self) {
        self.writes.drain().await;
    }
}
