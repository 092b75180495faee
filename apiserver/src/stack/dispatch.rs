//! From a request within its limits to its endpoint.
//!
//! ```text
//!   address ─► health, version
//!          └─► logical cluster ─► authorization ─► resource ─► verb, or a forwarded connection
//!                                               └► discovery, OpenAPI, keys, metrics
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::cluster::Id;
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use openapi::catalog::resource_info::{ResourceInfo, Verb};
use openapi::meta::status::{GroupResource, Status};
use openapi::publish::tables::IncludeObject;
use openapi::schema::Origin;
use storage::{Page, Range, ReadError, Store};
use tokio::runtime::Handle;

use super::Stack;
use super::context::{LimitedRequest, RequestContext};
use crate::authn::identity::Identity;
use crate::authz::authorization;
use crate::authz::authorization::Authorization;
use crate::clusters::{logical_cluster, records};
use crate::endpoints;
use crate::endpoints::health;
use crate::endpoints::health::HealthState;
use crate::endpoints::metrics::StoreMetrics;
use crate::endpoints::openid;
use crate::endpoints::token_request;
use crate::endpoints::{connect, discovery, version};
use crate::endpoints::{create, delete, get, list, patch, update, watch};
use crate::http::body::Body;
use crate::http::incoming::Incoming;
use crate::http::limits::RequestSlot;
use crate::kinds::reviews::Review;
use crate::kinds::{DEFINITIONS, Kinds};
use crate::objects::store_errors::unreadable;
use crate::registry::call::Call;
use crate::request::attributes;
use crate::request::attributes::Attributes;
use crate::request::info;
use crate::request::info::Reach;
use crate::request::info::RequestInfo;
use crate::request::negotiation;
use crate::request::options;
use crate::request::path::{Cluster, Resource, Target};
use crate::response::render;
use crate::response::render::Style;

impl Stack {
    /// Answers a request within its limits.
    pub(super) async fn dispatch(
        self: &Arc<Self>,
        request: LimitedRequest<impl Incoming>,
    ) -> Result<Response<Body>, Status> {
        let LimitedRequest { context, identity, slot, headers, body } = request;
        let context = &context;
        let attributes = Attributes::of(&context.info);
        let may_be_public = attributes::is_public(&attributes) || attributes::can_be_public(&attributes);
        if *identity == Identity::Anonymous && !may_be_public {
            return Err(Status::unauthorized());
        }
        let address = context.info.address.as_ref().map_err(|_| Status::unknown_path());
        let (cluster, target) = address.inspect_err(|_| note_refusal(context, &headers))?;
        if let Some(response) = self.answer_probe(target, &context.info).await {
            return Ok(response);
        }
        let found = self.find(cluster, &identity).await;
        let (id, reach) = found.inspect_err(|_| note_refusal(context, &headers))?;
        self.note_cluster(context, cluster, id, reach).await;
        let authorized = Authorization::authorize(&self.access, id, &identity, &headers, attributes).await;
        let authorization = authorized.inspect_err(|_| note_refusal(context, &headers))?;
        if authorization.identity() != &*identity {
            context.facts().acting = Some(authorization.identity().clone());
        }
        context.facts().is_authorized = true;
        authorization.pace()?;
        // Rights in the root are not rights in all logical clusters.
        if reach == Reach::Every && !authorization.identity().is_at_home_everywhere() {
            context.facts().is_refused = true;
            return Err(Status::unknown_path());
        }
        let Target::Resource(requested) = target else {
            if reach == Reach::Every && !is_read(&context.info.method) {
                return Err(Status::wrong_method());
            }
            return self.document(authorization.identity(), id, target, &context.info, headers).await;
        };
        let resource = self.resource(id, reach, requested).await.map_err(unreadable)?;
        let resource = resource.ok_or_else(Status::unknown_path)?;
        context.facts().resource = Some(resource.clone());
        let call = Call {
            cluster: id,
            reach,
            resource,
            namespace: requested.namespace.clone(),
            name: requested.name.clone(),
            subresource: requested.subresource.clone(),
            query: context.info.query.clone(),
            headers,
            identity: authorization.identity().clone(),
            authorization,
            admission: self.admission.clone(),
        };
        self.call(call, requested, context, (slot, body)).await
    }

    /// Answers health checks and the version, before anything is looked up.
    async fn answer_probe(&self, target: &Target, info: &RequestInfo) -> Option<Response<Body>> {
        match target {
            Target::Health { endpoint, check } => {
                let state =
                    HealthState { store: &*self.store, stopping: !self.ready.load(Ordering::Relaxed) };
                Some(health::answer(state, *endpoint, check.as_deref(), &info.query).await)
            }
            Target::Version if is_read(&info.method) => {
                Some(render::value(StatusCode::OK, &version::document(self.commit)))
            }
            _ => None,
        }
    }

    /// Records the logical cluster for the audit log, with its path if the request does not name it.
    async fn note_cluster(&self, context: &RequestContext, cluster: &Cluster, id: Id, reach: Reach) {
        if self.audit.is_none() || reach == Reach::Every {
            return;
        }
        let path = match cluster {
            Cluster::Path(_) => None,
            _ => self.access.path(id).await.ok().flatten(),
        };
        context.facts().cluster = Some((id, path));
    }

    /// Answers a request for a resource.
    async fn call(
        self: &Arc<Self>,
        call: Call,
        requested: &Resource,
        context: &Arc<RequestContext>,
        (mut slot, body): (RequestSlot, impl Incoming),
    ) -> Result<Response<Body>, Status> {
        let info = &context.info;
        if let Some(target) = connect::find(self.connect.as_deref(), &*self.store, &call, requested).await? {
            return target.answer(&self.authenticators, &self.stop, &call, info, &mut slot, body).await;
        }
        let verb = verb_of(&call, requested, info)?;
        let bytes = match verb {
            Verb::Get | Verb::List | Verb::Watch => Bytes::new(),
            _ => slot.receive(body).await?,
        };
        let style = self.style(verb, &call)?;
        let applies = verb == Verb::Patch && patch::Media::of(&call)? == patch::Media::Apply;
        options::check(verb, &call.query, applies)?;
        match Review::of(&call.resource) {
            Some(review) => review.answer(&call, &style, &self.authenticators, &bytes).await,
            None if token_request::is_one(&call) => {
                self.authenticators.accounts.request(&call, &style, &bytes).await
            }
            None if matches!(verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) => {
                let (stack, info) = (self.clone(), context.clone());
                self.detach(context, |store| async move {
                    // Its slot is taken until the write has ended.
                    let _slot = slot;
                    stack.run(&store, verb, &call, &style, &info.info, &bytes).await
                })
                .await
            }
            None => self.run(&*self.store, verb, &call, &style, info, &bytes).await,
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
            // Metrics concern all tenants and cost a walk over the store, so rights in the root are required.
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
        // The first request for a document waits until it is rendered. Other requests do not wait.
        let made = tokio::task::spawn_blocking(move || {
            discovery::answer(&kinds, &target, &query, &headers, &address)
        });
        made.await.map_err(|error| Status::internal(&error.to_string()))?
    }

    /// Returns the resource of a path. For a request to all logical clusters it is the resource of one that serves it.
    async fn resource(
        &self,
        id: Id,
        reach: Reach,
        requested: &Resource,
    ) -> Result<Option<Arc<ResourceInfo>>, ReadError> {
        let Resource { group, version, resource, .. } = requested;
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
        store: &dyn Store,
        verb: Verb,
        call: &Call,
        style: &Style,
        info: &RequestInfo,
        bytes: &Bytes,
    ) -> Result<Response<Body>, Status> {
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
        // The next request of a client that changes a definition sees the change.
        if call.collection() == DEFINITIONS && !matches!(verb, Verb::Get | Verb::List | Verb::Watch) {
            // The write succeeded, even if the definition cannot be read back now; the watch delivers it later.
            if let Err(error) = self.kinds.fresh(call.cluster).await {
                tracing::warn!(%error, cluster = %call.cluster, "cannot read back a custom resource definition that was just written");
            }
        }
        answer
    }

    /// Returns the form of the response.
    fn style(&self, verb: Verb, call: &Call) -> Result<Style, Status> {
        let (api_version, kind) = call.response_kind();
        let form = match verb {
            Verb::Watch => negotiation::events(&call.headers, &api_version, &kind)?,
            Verb::List => negotiation::lists(&call.headers, &api_version, &kind)?,
            _ => negotiation::objects(&call.headers, &api_version, &kind)?,
        };
        let parameter = call.query.text("includeObject");
        let include = IncludeObject::parse(parameter).ok_or_else(|| {
            Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {parameter:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))
        })?;
        // A custom resource may have different kinds in different logical clusters.
        let is_theirs = call.resource.origin == Origin::Custom && !self.kinds.common().has(&call.resource);
        let elsewhere = (call.reach == Reach::Every && is_theirs).then(|| self.kinds.clone());
        Ok(Style { form, resource: call.resource.clone(), include, reach: call.reach, elsewhere })
    }

    /// Counts the entries of the store. It walks over all of them, so it runs on a blocking thread.
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

    /// Returns the logical cluster of a request, and whether it reads all of them. A client that may not use ids or
    /// read all logical clusters gets the response of an unknown path.
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

/// Records that access was denied, also to an unknown path, and the identity that the client requested to impersonate.
fn note_refusal(context: &RequestContext, headers: &HeaderMap) {
    let mut facts = context.facts();
    facts.is_refused = true;
    if let Some(identity) = authorization::requested_impersonation(headers) {
        facts.acting = Some(identity);
    }
}

/// Returns the verbs that an address supports. Objects of all namespaces can be read together, never created or
/// deleted: a client that leaves out the namespace by mistake must not delete all of them.
fn verbs_at(resource: &ResourceInfo, requested: &Resource) -> Vec<Verb> {
    let verbs = match &requested.subresource {
        Some(subresource) => {
            resource.subresource(subresource).map_or(&[][..], |subresource| &subresource.verbs)
        }
        None => &resource.verbs,
    };
    let across = resource.namespaced && requested.namespace.is_none();
    let can = |verb: &&Verb| !across || matches!(verb, Verb::List | Verb::Watch);
    verbs.iter().filter(can).copied().collect()
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns the verb of a request, if its resource supports it.
fn verb_of(call: &Call, requested: &Resource, info: &RequestInfo) -> Result<Verb, Status> {
    let resource = &call.resource;
    // Only namespaced kinds have paths with a namespace.
    if call.namespace.is_some() && !resource.namespaced
        || call.name.is_some() && resource.namespaced && call.namespace.is_none()
    {
        return Err(Status::unknown_path());
    }
    // Only proxy subresources have longer paths, and those are answered before.
    let is_known =
        |subresource: &str| resource.subresource(subresource).is_some() && requested.rest.is_empty();
    if call.subresource.as_deref().is_some_and(|subresource| !is_known(subresource)) {
        return Err(Status::unknown_path());
    }
    let verb = info.verb().filter(|verb| verbs_at(resource, requested).contains(verb));
    let verb = verb.ok_or_else(Status::wrong_method)?;
    // Writes, and reads of one object, need one logical cluster: names repeat in others.
    if call.reach == Reach::Every && !matches!(verb, Verb::List | Verb::Watch) {
        return Err(Status::wrong_method());
    }
    Ok(verb)
}

/// Returns the methods that the address supports.
pub(super) fn methods(info: &RequestInfo, resource: Option<&ResourceInfo>) -> Vec<&'static str> {
    let (Some(requested), Some(resource)) = (info.resource(), resource) else { return vec!["GET", "HEAD"] };
    let verbs = verbs_at(resource, requested);
    let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    let verb_of_method = |method: &&str| {
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        info::verb(&method, requested, false)
    };
    all.into_iter()
        .filter(|method| verb_of_method(method).is_some_and(|verb| verbs.contains(&verb)))
        .collect()
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
            let requested = info.resource().unwrap();
            let resource = Kinds::built_in().find(&requested.group, &requested.version, &requested.resource);
            assert_eq!(methods(&info, resource.map(|resource| &**resource)), expected, "{line}");
        };
        check("DELETE /api/v1/configmaps", &["GET", "HEAD"]);
        check("DELETE /api/v1/namespaces/shop/configmaps", &["GET", "HEAD", "POST", "DELETE"]);
        check("PUT /api/v1/nodes", &["GET", "HEAD", "POST", "DELETE"]);
        check("POST /api/v1/namespaces/shop/pods/web/status", &["GET", "HEAD", "PUT", "PATCH"]);
    }

    /// A tenant that could reach another logical cluster by its id could read all secrets.
    #[tokio::test]
    async fn only_privileged_clients_read_across_logical_clusters() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        let (existing, missing) = (Id::new(1), Id::new(2));
        records::write(&*store, existing, &records::LogicalClusterRecord::new(Id::ROOT, "there"))
            .await
            .unwrap();
        let stack = Stack::new(store, String::new(), tasks.stop());
        let user = |group: &str| {
            Identity::known(User { name: "u".to_owned(), groups: vec![group.to_owned()], ..User::default() })
        };
        let (tenant, master) = (user("system:authenticated"), user("system:masters"));
        for cluster in [Cluster::Id(existing), Cluster::Id(Id::ROOT), Cluster::Id(missing), Cluster::All] {
            assert_eq!(stack.find(&cluster, &tenant).await, Err(Status::unknown_path()), "{cluster:?}");
        }
        assert_eq!(stack.find(&Cluster::Id(existing), &master).await, Ok((existing, Reach::One)));
        assert_eq!(stack.find(&Cluster::Id(missing), &master).await, Err(Status::unknown_path()));
        assert_eq!(stack.find(&Cluster::All, &master).await, Ok((Id::ROOT, Reach::Every)));
    }
}
