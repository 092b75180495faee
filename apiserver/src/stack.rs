//! The layers of the server, from a request to its response.
//!
//! ```text
//!   id ─► authn ─► limits ─► deadline ─► probe? ─► logical cluster ─► authz ─► resource ─► endpoint
//!   log, audit, metrics ◄── response encoding ◄──────────────────────────────────── response ◄─┘
//! ```
//!
//! Each layer around the endpoints is a file ([`request_log`](crate::http::request_log), [`limits`](crate::http::limits),
//! [`deadline`], [`authorization`], [`encoding`](crate::response::encoding),
//! [`metrics`](crate::endpoints::metrics)), put together in one place: [`Stack::respond`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::cluster::Id;
use bytes::Bytes;
use controller::tasks::Stop;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use openapi::catalog::resource_info::{ResourceInfo, Verb};
use openapi::meta::status::{GroupResource, Status};
use openapi::publish::tables::IncludeObject;
use openapi::schema::Origin;
use storage::{Page, Range, ReadError, Store};
use tokio::runtime::Handle;

use crate::admission::guard::{Guard, Guarded};
use crate::audit::Audit;
use crate::audit::context::AuditContext;
use crate::authn::credential::Authenticators;
use crate::authn::identity;
use crate::authn::identity::Identity;
use crate::authn::service_accounts::{Accounts, NotFound};
use crate::authn::token_file::Tokens;
use crate::authz::access::Access;
use crate::authz::authorization;
use crate::authz::authorization::Authorization;
use crate::clusters::{logical_cluster, records};
use crate::endpoints;
use crate::endpoints::connect::Connect;
use crate::endpoints::health;
use crate::endpoints::health::HealthState;
use crate::endpoints::metrics::{Metrics, StoreMetrics};
use crate::endpoints::openid;
use crate::endpoints::token_request;
use crate::endpoints::{connect, discovery, version};
use crate::endpoints::{create, delete, get, list, patch, update, watch};
use crate::http::body::Body;
use crate::http::connections::OpenConnection;
use crate::http::deadline;
use crate::http::incoming::Incoming;
use crate::http::limits::{Limits, RequestSlot, Tenant};
use crate::http::request_log::RequestLog;
use crate::http::server::Handler;
use crate::kinds::reviews::Review;
use crate::kinds::{DEFINITIONS, Kinds, Registry};
use crate::objects::store_errors::unreadable;
use crate::registry::call::Call;
use crate::registry::warnings;
use crate::request::attributes;
use crate::request::attributes::Attributes;
use crate::request::info;
use crate::request::info::Reach;
use crate::request::info::RequestInfo;
use crate::request::negotiation;
use crate::request::negotiation::Encoding;
use crate::request::options;
use crate::request::path::{Cluster, Resource, Target};
use crate::response::encoding::ResponseEncoding;
use crate::response::render;
use crate::response::render::Style;

/// The server's own state: a store, and whether it is ready.
#[derive(Debug)]
pub struct Stack {
    store: Arc<dyn Store>,
    /// What each logical cluster serves.
    kinds: Arc<Registry>,
    /// Where clients reach it, as discovery says.
    address: String,
    ready: AtomicBool,
    authenticators: Authenticators,
    access: Arc<Access>,
    audit: Option<Audit>,
    /// Answers for running pods, if the program has one.
    connect: Option<Arc<dyn Connect>>,
    /// Decides about writes to guarded objects.
    guard: Guarded,
    limits: Limits,
    metrics: Metrics,
    /// The commit of the program that serves; empty if it is unknown.
    commit: &'static str,
    /// Ends watches, which would otherwise go on for as long as their clients like.
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
            guard: Guarded::default(),
            limits: Limits::default(),
            metrics: Metrics::default(),
            commit: "",
            stop,
        }
    }

    /// Serves what this registry says, which others may know too.
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

    /// Also knows clients by these tokens.
    pub fn with_tokens(mut self, tokens: Tokens) -> Stack {
        self.authenticators.tokens = Arc::new(tokens);
        self
    }

    /// Notes who changed what, and who was refused.
    pub fn with_audit(mut self, audit: Audit) -> Stack {
        self.audit = Some(audit);
        self
    }

    /// Sends those who want something of what runs there.
    pub fn with_connect(mut self, connect: Arc<dyn Connect>) -> Stack {
        self.connect = Some(connect);
        self
    }

    /// Keeps what it guards from others.
    pub fn with_guard(mut self, guard: Arc<dyn Guard>) -> Stack {
        self.guard = Guarded::by(guard);
        self
    }

    /// Knows service accounts by what these vouch for.
    pub fn with_accounts(mut self, accounts: Arc<Accounts>) -> Stack {
        self.authenticators.accounts = accounts;
        self
    }

    /// Decides by these policies, instead of finding them all in the store.
    pub fn with_access(mut self, access: Arc<Access>) -> Stack {
        self.access = access;
        self
    }

    /// From now on the probe says that no new requests should come here.
    pub fn retire(&self) {
        self.ready.store(false, Ordering::Relaxed);
    }

    /// The answer to a request, wherever it came from: it always has one. `peer` is who the connection belongs to.
    pub async fn respond(&self, peer: Identity, request: Request<impl Incoming>) -> Response<Body> {
        let (head, incoming) = request.into_parts();
        let (info, request_log) = (RequestInfo::of(&head), RequestLog::begin(&head.headers));
        let response_encoding = ResponseEncoding::of(&info, &head.headers);
        let encoding = negotiation::encoding(&head.headers);
        let identity = self.identify(peer, &head.headers).await;
        let tenant = self.tenant(identity.as_ref().unwrap_or(&Identity::Anonymous)).await;
        if let (Ok(Identity::User(_)), Some(connection)) =
            (&identity, head.extensions.get::<Arc<OpenConnection>>())
        {
            connection.authenticated(&tenant);
        }
        let (context, id) = (AuditContext::default(), request_log.id());
        let answered = self.admitted((&identity, &tenant), &context, &info, head.headers, incoming).await;
        let resource = context.resource();
        let response = answered.unwrap_or_else(|status| refused(&info, resource, &status, encoding));
        let mut response = response_encoding.apply(deprecated(&info, resource, response)).await;
        if info.method == Method::HEAD {
            render::behead(&mut response);
        }
        let took = request_log.end(&info, identity.as_ref().map_or("", Identity::name), &mut response);
        if let Some(audit) = &self.audit {
            audit.note(&id, &info, &identity, &context, (response.status(), took));
        }
        self.metrics.count(self.kinds.common(), &info, took, &mut response);
        response
    }

    /// Authenticates a request: by certificate, by the token file, or as a service account.
    async fn identify(&self, peer: Identity, headers: &HeaderMap) -> Result<Identity, Status> {
        match (Identity::of_request(peer, headers, &self.authenticators.tokens), identity::bearer(headers)) {
            (Err(_), Some(token)) => {
                let accounts = &self.authenticators.accounts;
                let _place =
                    if accounts.has_seen(token) { None } else { Some(self.limits.begin_verification()?) };
                match accounts.find(token, &[]).await {
                    Ok(found) => Ok(found.identity),
                    Err(NotFound::Unreadable(error)) => Err(unreadable(error)),
                    // The sender of a token that was valid once may know that it has expired.
                    Err(NotFound::Expired) => Err(Status::token_expired()),
                    Err(NotFound::Foreign | NotFound::Invalid(_)) => Err(Status::unauthorized()),
                }
            }
            (Ok(known), _) if known.is_expired(Timestamp::now().as_second()) => Err(Status::unauthorized()),
            (known, _) => known,
        }
    }

    /// The tenant whose share of the server an identity takes.
    async fn tenant(&self, identity: &Identity) -> Tenant {
        match (identity, identity.home()) {
            (Identity::Anonymous, _) => Tenant::Anonymous,
            (Identity::User(user), None) => Tenant::User(user.name.as_str().into()),
            // A store that cannot be read is reported by whatever the request goes on to do.
            (Identity::User(_), Some(home)) => {
                Tenant::Cluster(self.access.tenant(home).await.unwrap_or(home))
            }
        }
    }

    /// Answers a request with a valid credential or none, within the limits and its deadline.
    async fn admitted(
        &self,
        (identity, tenant): (&Result<Identity, Status>, &Tenant),
        context: &AuditContext,
        info: &RequestInfo,
        headers: HeaderMap,
        incoming: impl Incoming,
    ) -> Result<Response<Body>, Status> {
        let identity = identity.as_ref().map_err(Status::clone)?;
        let mut place = self.limits.enter(tenant, identity, info)?;
        let answer = self.answer(identity, context, info, headers, (&mut place, incoming));
        let answered = deadline::within(info, answer).await;
        match answered {
            // Who has proved nothing is asked to, whatever is or is not there.
            Err(status) if *identity == Identity::Anonymous && [403, 404].contains(&status.code) => {
                Err(Status::unauthorized())
            }
            answered => answered,
        }
    }

    async fn answer(
        &self,
        identity: &Identity,
        context: &AuditContext,
        info: &RequestInfo,
        headers: HeaderMap,
        (place, incoming): (&mut RequestSlot<'_>, impl Incoming),
    ) -> Result<Response<Body>, Status> {
        let wanted = Attributes::of(info);
        let stranger = *identity == Identity::Anonymous;
        if stranger && !attributes::is_open(&wanted) && !attributes::can_be_opened(&wanted) {
            return Err(Status::unauthorized());
        }
        // A client that tries unknown paths is worth a line in the audit log.
        let refuse = || {
            context.refuse();
            if let Some(wanted) = authorization::wants_to_act_as(&headers) {
                context.acts_as(&wanted);
            }
        };
        let address = info.address.as_ref().map_err(|_| Status::unknown_path());
        let (cluster, target) = address.inspect_err(|_| refuse())?;
        match target {
            Target::Health { endpoint, check } => {
                let state =
                    HealthState { store: &*self.store, stopping: !self.ready.load(Ordering::Relaxed) };
                return Ok(health::answer(state, *endpoint, check.as_deref(), &info.query).await);
            }
            Target::Version if is_read(&info.method) => {
                return Ok(render::value(StatusCode::OK, &version::document(self.commit)));
            }
            _ => {}
        }
        let (id, reach) = self.find(cluster, identity).await.inspect_err(|_| refuse())?;
        if self.audit.is_some() && reach == Reach::One {
            let is_said = matches!(cluster, Cluster::Path(_));
            let path = if is_said { None } else { self.access.path(id).await.ok().flatten() };
            context.is_for(id, path);
        }
        let authorization = Authorization::authorize(&self.access, id, identity, &headers, wanted).await;
        let authorization = authorization.inspect_err(|_| refuse())?;
        context.acts_as(authorization.identity());
        authorization.pace()?;
        // Rights in the root are not rights in all logical clusters.
        if reach == Reach::Every && !authorization.identity().is_at_home_everywhere() {
            context.refuse();
            return Err(Status::unknown_path());
        }
        let Target::Resource(named) = target else {
            if reach == Reach::Every && !is_read(&info.method) {
                return Err(Status::wrong_method());
            }
            return self.document(authorization.identity(), id, target, info, headers).await;
        };
        let resource = self.resource(id, reach, named).await.map_err(unreadable)?;
        let resource = resource.ok_or_else(Status::unknown_path)?;
        context.names(&resource);
        let call = Call {
            cluster: id,
            reach,
            resource,
            namespace: named.namespace.clone(),
            name: named.name.clone(),
            subresource: named.subresource.clone(),
            query: info.query.clone(),
            headers,
            identity: authorization.identity().clone(),
            authorization,
            guard: self.guard.clone(),
        };
        if let Some(target) = connect::find(self.connect.as_deref(), &*self.store, &call, named).await? {
            return target.answer(&self.authenticators, &self.stop, &call, info, place, incoming).await;
        }
        let verb = verb_of(&call, named, info)?;
        let bytes = match verb {
            Verb::Get | Verb::List | Verb::Watch => Bytes::new(),
            _ => place.receive(incoming).await?,
        };
        let style = self.style(verb, &call)?;
        let applies = verb == Verb::Patch && patch::Media::of(&call)? == patch::Media::Apply;
        options::check(verb, &call.query, applies)?;
        match Review::of(&call.resource) {
            Some(review) => review.answer(&call, &style, &self.authenticators, &bytes).await,
            None if token_request::is_one(&call) => {
                self.authenticators.accounts.request(&call, &style, &bytes).await
            }
            None => self.run(verb, &call, &style, info, &bytes).await,
        }
    }

    /// Answers paths that are not resources: discovery, OpenAPI, keys, metrics.
    async fn document(
        &self,
        identity: &Identity,
        id: Id,
        target: &Target,
        info: &RequestInfo,
        headers: HeaderMap,
    ) -> Result<Response<Body>, Status> {
        if let Target::Keys = target {
            return openid::keys(&self.authenticators.accounts, id, &info.method).await;
        }
        if !is_read(&info.method) {
            return Err(Status::wrong_method());
        }
        match target {
            Target::Issuer => return Ok(openid::configuration(&self.authenticators.accounts, id)),
            // They are about all tenants, so the root decides; and cost a walk over the store.
            Target::Metrics if id == Id::ROOT || identity.is_administrator() => {
                return Ok(self.metrics.answer(&self.limits, self.figures().await));
            }
            Target::Metrics => {
                let why = format!("User {:?} cannot get path \"/metrics\"", identity.name());
                return Err(Status::forbidden(GroupResource::new("", ""), "", &why));
            }
            _ => {}
        }
        let kinds = self.kinds.fresh(id).await.map_err(unreadable)?;
        let (target, query, address) = (target.clone(), info.query.clone(), self.address.clone());
        // The first request for a document waits for it to be made, and blocks no other meanwhile.
        let made = tokio::task::spawn_blocking(move || {
            discovery::answer(&kinds, &target, &query, &headers, &address)
        });
        made.await.map_err(|error| Status::internal(&error.to_string()))?
    }

    /// The resource that is named. A request for all logical clusters gets it as one of them serves it.
    async fn resource(
        &self,
        id: Id,
        reach: Reach,
        named: &Resource,
    ) -> Result<Option<Arc<ResourceInfo>>, ReadError> {
        let Resource { group, version, resource, .. } = named;
        let find = |kinds: &Kinds| kinds.find(group, version, resource).cloned();
        if reach == Reach::One {
            return self.kinds.find(id, find).await;
        }
        match find(self.kinds.common()).or_else(|| self.kinds.anywhere(group, version, resource)) {
            Some(resource) => Ok(Some(resource)),
            None => {
                self.kinds.load().await?;
                Ok(self.kinds.anywhere(group, version, resource))
            }
        }
    }

    async fn run(
        &self,
        verb: Verb,
        call: &Call,
        style: &Style,
        info: &RequestInfo,
        bytes: &Bytes,
    ) -> Result<Response<Body>, Status> {
        let store = &*self.store;
        if let Some(answer) = endpoints::apart(store, verb, call, style, bytes).await {
            return answer;
        }
        let answer = match verb {
            Verb::Get => get::get(store, call, style).await,
            Verb::List => list::list(&self.store, call, style).await,
            Verb::Watch => {
                let stop = self.stop.clone();
                watch::watch(&self.store, &self.kinds, &self.authenticators, call, style, info, stop).await
            }
            Verb::Create => create::create(store, call, style, bytes).await,
            Verb::Update => update::update(store, call, style, bytes).await,
            Verb::Patch => patch::patch(store, call, style, bytes).await,
            Verb::Delete => delete::delete(store, call, style, bytes).await,
            Verb::DeleteCollection => delete::delete_collection(store, call, style, bytes).await,
        };
        // A client that changes a definition finds it changed with its next request.
        if call.collection() == DEFINITIONS && !matches!(verb, Verb::Get | Verb::List | Verb::Watch) {
            // What is written is written, even if it cannot be read back just now; the watch delivers it later.
            if let Err(error) = self.kinds.fresh(call.cluster).await {
                tracing::warn!(%error, cluster = %call.cluster, "cannot read back a custom resource definition that was just written");
            }
        }
        answer
    }

    /// How to write the answer.
    fn style(&self, verb: Verb, call: &Call) -> Result<Style, Status> {
        let (api_version, kind) = call.shown_kind();
        let form = match verb {
            Verb::Watch => negotiation::events(&call.headers, &api_version, &kind)?,
            Verb::List => negotiation::lists(&call.headers, &api_version, &kind)?,
            _ => negotiation::objects(&call.headers, &api_version, &kind)?,
        };
        let word = call.query.text("includeObject");
        let include = IncludeObject::parse(word).ok_or_else(|| {
            Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {word:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))
        })?;
        // Objects of one name need not be of one kind in all logical clusters.
        let is_theirs = call.resource.origin == Origin::Custom && !self.kinds.common().has(&call.resource);
        let elsewhere = (call.reach == Reach::Every && is_theirs).then(|| self.kinds.clone());
        Ok(Style { form, resource: call.resource.clone(), include, reach: call.reach, elsewhere })
    }

    /// Counts what the store holds. That walks over all of it, so away from those who wait for answers.
    async fn figures(&self) -> Option<StoreMetrics> {
        let (store, runtime) = (self.store.clone(), Handle::current());
        let counted = tokio::task::spawn_blocking(move || {
            runtime
                .block_on(store.list(Range::all(), Page { limit: Some(0), count: true, ..Page::default() }))
        });
        let counted = counted.await.ok()?.ok()?;
        let entries = counted.value.remaining.unwrap_or_default();
        Some(StoreMetrics { revision: counted.revision.0, entries })
    }

    /// Which logical cluster is meant, and whether all of them are. Who may not use ids or look at all of them
    /// is not told that there is such a way.
    async fn find(&self, cluster: &Cluster, identity: &Identity) -> Result<(Id, Reach), Status> {
        let store = &*self.store;
        let found = match cluster {
            Cluster::Bare => Some(identity.home().unwrap_or(Id::ROOT)),
            Cluster::Path(path) => logical_cluster::find(store, path).await.map_err(unreadable)?,
            Cluster::Id(id) if identity.home() == Some(*id) => Some(*id),
            Cluster::Id(_) | Cluster::All if !identity.is_at_home_everywhere() => None,
            Cluster::Id(id) => records::find(store, *id).await.map_err(unreadable)?.map(|_| *id),
            Cluster::All => return Ok((Id::ROOT, Reach::Every)),
        };
        Ok((found.ok_or_else(Status::unknown_path)?, Reach::One))
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
}

/// What can be done at an address. Across namespaces objects are read, never created or deleted: a client that leaves
/// out the namespace by mistake must not empty all of them.
fn verbs_at(resource: &ResourceInfo, named: &Resource) -> Vec<Verb> {
    let verbs = match &named.subresource {
        Some(part) => resource.subresource(part).map_or(&[][..], |part| &part.verbs),
        None => &resource.verbs,
    };
    let across = resource.namespaced && named.namespace.is_none();
    let can = |verb: &&Verb| !across || matches!(verb, Verb::List | Verb::Watch);
    verbs.iter().filter(can).copied().collect()
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The verb of a request, if its resource supports it.
fn verb_of(call: &Call, named: &Resource, info: &RequestInfo) -> Result<Verb, Status> {
    let resource = &call.resource;
    // A path with a namespace leads to kinds that have one, and to no others.
    if call.namespace.is_some() && !resource.namespaced
        || call.name.is_some() && resource.namespaced && call.namespace.is_none()
    {
        return Err(Status::unknown_path());
    }
    // Only proxies lead further than a subresource, and this one is not served.
    let is_known = |part: &str| resource.subresource(part).is_some() && named.rest.is_empty();
    if call.subresource.as_deref().is_some_and(|part| !is_known(part)) {
        return Err(Status::unknown_path());
    }
    let verb = info.verb().filter(|verb| verbs_at(resource, named).contains(verb));
    let verb = verb.ok_or_else(Status::wrong_method)?;
    // A write is for one logical cluster, and so is a look at one object: names repeat in others.
    if call.reach == Reach::Every && !matches!(verb, Verb::List | Verb::Watch) {
        return Err(Status::wrong_method());
    }
    Ok(verb)
}

/// The answer to a request that did not work. If it was the method, it says which methods would.
fn refused(
    info: &RequestInfo,
    resource: Option<&ResourceInfo>,
    status: &Status,
    encoding: Encoding,
) -> Response<Body> {
    let mut response = render::status(status, encoding);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_str(&methods(info, resource).join(", "));
        response.headers_mut().insert(ALLOW, allowed.expect("methods are made of letters"));
    }
    response
}

/// Adds the warning for deprecated resources.
fn deprecated(
    info: &RequestInfo,
    resource: Option<&ResourceInfo>,
    response: Response<Body>,
) -> Response<Body> {
    let strangers = [StatusCode::UNAUTHORIZED, StatusCode::METHOD_NOT_ALLOWED];
    let defined = resource.and_then(|resource| resource.custom.as_ref()?.warning.as_deref());
    match info.resource().and_then(warnings::deprecated).or(defined) {
        Some(text) if !strangers.contains(&response.status()) => create::warned(response, &[text.to_owned()]),
        _ => response,
    }
}

/// The methods that mean something for what is named.
fn methods(info: &RequestInfo, resource: Option<&ResourceInfo>) -> Vec<&'static str> {
    let (Some(named), Some(resource)) = (info.resource(), resource) else { return vec!["GET", "HEAD"] };
    let verbs = verbs_at(resource, named);
    let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    let means = |method: &&str| {
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        info::verb(&method, named, false)
    };
    all.into_iter().filter(|method| means(method).is_some_and(|verb| verbs.contains(&verb))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::identity::User;

    /// `DELETE /api/v1/configmaps` used to delete the ConfigMaps of all namespaces.
    #[test]
    fn nothing_is_written_across_namespaces() {
        let check = |line: &str, expected: &[&str]| {
            let info = RequestInfo::line(line);
            let named = info.resource().unwrap();
            let resource = Kinds::built_in().find(&named.group, &named.version, &named.resource);
            assert_eq!(methods(&info, resource.map(|resource| &**resource)), expected, "{line}");
        };
        check("DELETE /api/v1/configmaps", &["GET", "HEAD"]);
        check("DELETE /api/v1/namespaces/shop/configmaps", &["GET", "HEAD", "POST", "DELETE"]);
        check("PUT /api/v1/nodes", &["GET", "HEAD", "POST", "DELETE"]);
        check("POST /api/v1/namespaces/shop/pods/web/status", &["GET", "HEAD", "PUT", "PATCH"]);
    }

    /// A tenant that could reach another logical cluster by its id could read all secrets.
    #[tokio::test]
    async fn only_the_privileged_see_more_than_one_logical_cluster() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        let (there, missing) = (Id::new(1), Id::new(2));
        records::write(&*store, there, &records::LogicalClusterRecord::new(Id::ROOT, "there")).await.unwrap();
        let stack = Stack::new(store, String::new(), tasks.stop());
        let user = |group: &str| {
            Identity::known(User { name: "u".to_owned(), groups: vec![group.to_owned()], ..User::default() })
        };
        let (tenant, master) = (user("system:authenticated"), user("system:masters"));
        for cluster in [Cluster::Id(there), Cluster::Id(Id::ROOT), Cluster::Id(missing), Cluster::All] {
            assert_eq!(stack.find(&cluster, &tenant).await, Err(Status::unknown_path()), "{cluster:?}");
        }
        assert_eq!(stack.find(&Cluster::Id(there), &master).await, Ok((there, Reach::One)));
        assert_eq!(stack.find(&Cluster::Id(missing), &master).await, Err(Status::unknown_path()));
        assert_eq!(stack.find(&Cluster::All, &master).await, Ok((Id::ROOT, Reach::Every)));
    }
}
