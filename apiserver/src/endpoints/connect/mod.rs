//! Subresources that are forwarded to running pods: `log`, `exec`, `attach`, `portforward`, `proxy`.
//!
//! ```text
//!   …/pods/web-1/log ─► authorized ─► the pod exists ─► Connect ─► the node of the container
//!                         └──── stream guard ──────────────┘ bytes, both ways
//! ```
//!
//! A logical cluster has no nodes, so this server cannot answer these requests. The program that embeds the server may
//! pass a [`Connect`] that can. Authentication, authorization and the look-up of the logical cluster and the object are
//! the same as for any other request. The bytes on the connection after that are not parsed. The connection ends when
//! the client is no longer authorized ([`stream_guard`]).

mod stream_guard;

use std::fmt;

use api::cluster::Id;
use bytes::Bytes;
use controller::tasks::Stop;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::{Boxed, Store};

use crate::authn::credential::Authenticators;
use crate::authn::identity::Identity;
use crate::http::body::Body;
use crate::http::incoming::Incoming;
use crate::http::limits::RequestSlot;
use crate::http::websocket;
use crate::objects::store_errors::unreadable;
use crate::registry::call::Call;
use crate::request::info::Reach;
use crate::request::info::RequestInfo;
use crate::request::path::Resource;

pub use crate::endpoints::connect::stream_guard::{Connection, Upgrade};
use crate::endpoints::connect::stream_guard::{GuardedBody, StreamGuard};

/// The subresource that may have a longer path, and a port in the name of the object.
const PROXY: &str = "proxy";

/// Answers requests that lead to running pods.
pub trait Connect: Send + Sync + fmt::Debug {
    /// Reports whether it answers requests for this subresource.
    fn leads(&self, part: Part<'_>) -> bool;

    /// Reports whether it answers for this object, if the server could answer too.
    fn runs(&self, _cluster: Id, _who: &Identity, _object: &Value) -> bool {
        true
    }

    /// Answers a request. The response may be a stream without end.
    fn connect(&self, request: ConnectRequest) -> Boxed<'_, Result<Response<Body>, Status>>;
}

/// A subresource of a resource, or the resource itself if `part` is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    pub group: &'a str,
    pub plural: &'a str,
    pub part: &'a str,
}

/// A request for a subresource of an object, already authorized.
#[derive(Debug)]
pub struct ConnectRequest {
    pub cluster: Id,
    /// The user, after impersonation.
    pub identity: Identity,
    pub group: String,
    pub plural: String,
    pub namespace: String,
    /// Empty for a whole collection.
    pub name: String,
    /// The current object. Null if objects of this kind are not stored here.
    pub object: Value,
    pub part: String,
    pub port: Port,
    /// The path up to the subresource, as the client sent it.
    pub address: String,
    /// The path after that, for proxies: empty, or a slash and more.
    pub rest: String,
    pub method: Method,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The connection, if the client asks to upgrade it.
    pub upgrade: Option<Upgrade>,
}

impl ConnectRequest {
    /// Returns the first value of a parameter. Empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.query.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// Returns all values of a parameter, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The scheme and port of a proxied request, from names such as `https:web:8443`. Empty if the client omits them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    pub scheme: String,
    pub port: String,
}

impl Port {
    /// Splits the name of a proxied object into port and name.
    fn split(name: &str) -> Option<(Port, &str)> {
        let port = |scheme: &str, port: &str| Port { scheme: scheme.to_owned(), port: port.to_owned() };
        match *name.split(':').collect::<Vec<_>>() {
            [name] => Some((Port::default(), name)),
            [name, number] if !number.is_empty() => Some((port("", number), name)),
            [scheme @ ("http" | "https"), name, number] => Some((port(scheme, number), name)),
            _ => None,
        }
    }

    /// Adds the port to another name.
    pub fn join(&self, name: &str) -> String {
        match (&*self.scheme, &*self.port) {
            ("", "") => name.to_owned(),
            ("", port) => format!("{name}:{port}"),
            (scheme, port) => format!("{scheme}:{name}:{port}"),
        }
    }
}

/// The `Connect` that answers a call, and the object of the call.
pub(crate) struct ConnectTarget<'a> {
    connect: &'a dyn Connect,
    name: String,
    port: Port,
    object: Value,
}

/// Returns the `Connect` that answers the call, if the server does not answer it itself.
pub(crate) async fn find<'a>(
    connect: Option<&'a dyn Connect>,
    store: &dyn Store,
    call: &Call,
    requested: &Resource,
) -> Result<Option<ConnectTarget<'a>>, Status> {
    let part = call.subresource.as_deref().unwrap_or_default();
    let led = Part { group: &call.resource.group, plural: &call.resource.plural, part };
    let is_one = call.reach == Reach::One && (requested.rest.is_empty() || part == PROXY);
    let Some(connect) = connect.filter(|connect| is_one && connect.leads(led)) else { return Ok(None) };
    let name = call.name.as_deref().unwrap_or_default();
    // The resource itself is forwarded if its objects are not stored here.
    if part.is_empty() {
        return Ok(Some(ConnectTarget {
            connect,
            name: name.to_owned(),
            port: Port::default(),
            object: Value::Null,
        }));
    }
    if call.resource.namespaced && call.namespace.is_none() {
        return Ok(None);
    }
    let (port, name) = match part {
        PROXY => Port::split(name).ok_or_else(|| {
            Status::bad_request(format!("invalid {} request {name:?}", call.resource.singular))
        })?,
        _ => (Port::default(), name),
    };
    let found = store.get(&call.key(name)).await.map_err(unreadable)?;
    let object = call.tree(&found.value.ok_or_else(|| call.not_found(name))?)?;
    if is_kubelet_endpoint(part) && !connect.runs(call.cluster, call.authorization.identity(), &object) {
        return Ok(None);
    }
    Ok(Some(ConnectTarget { connect, name: name.to_owned(), port, object }))
}

/// Reports whether the server could answer for this subresource too.
fn is_kubelet_endpoint(part: &str) -> bool {
    part == "ephemeralcontainers"
}

impl ConnectTarget<'_> {
    pub(crate) async fn answer(
        self,
        authenticators: &Authenticators,
        stop: &Stop,
        call: &Call,
        info: &RequestInfo,
        place: &mut RequestSlot,
        incoming: impl Incoming,
    ) -> Result<Response<Body>, Status> {
        let guard = async || StreamGuard::new(call, authenticators, stop.clone()).await;
        let (body, upgrade) = match &info.upgrade {
            // After an upgrade the client sends no body.
            Some(upgrade) => {
                websocket::check_page(&call.headers)?;
                (Bytes::new(), Some(Upgrade::new(upgrade.clone(), guard().await?)))
            }
            None => (place.receive(incoming).await?, None),
        };
        let rest = rest(info);
        let request = ConnectRequest {
            cluster: call.cluster,
            identity: call.authorization.identity().clone(),
            group: call.resource.group.to_string(),
            plural: call.resource.plural.to_string(),
            namespace: call.namespace.clone().unwrap_or_default(),
            name: self.name,
            object: self.object,
            part: call.subresource.clone().unwrap_or_default(),
            port: self.port,
            address: info.path.strip_suffix(&rest).unwrap_or(&info.path).to_owned(),
            rest,
            method: info.method.clone(),
            query: info.query.pairs().to_vec(),
            headers: call.headers.clone(),
            body,
            upgrade,
        };
        let answer = self.connect.connect(request).await?;
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => Ok(answer),
            // The response may be a stream, so the guard applies here too.
            _ => {
                let guard = guard().await?;
                Ok(answer.map(|body| GuardedBody::new(body, guard).boxed_unsync()))
            }
        }
    }
}

/// Returns the path after `proxy`. `/api/v1/namespaces/shop/pods/web/proxy` has seven segments. Other subresources have
/// at most a trailing slash, which is ignored.
fn rest(info: &RequestInfo) -> String {
    if info.resource().and_then(|requested| requested.subresource.as_deref()) != Some(PROXY) {
        return String::new();
    }
    info.path_inside().splitn(9, '/').nth(8).map(|rest| format!("/{rest}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;
    use http_body_util::{BodyExt, Full};
    use serde_json::json;

    use super::*;
    use crate::authn::identity::Identity;
    use crate::clusters::records;
    use crate::clusters::records::LogicalClusterRecord;
    use crate::http::body::whole;
    use crate::keys::Collection;
    use crate::objects::stored;
    use crate::stack::Stack;

    /// Answers with the request it received.
    #[derive(Debug)]
    struct Mirror;

    impl Connect for Mirror {
        fn leads(&self, part: Part<'_>) -> bool {
            part == Part { group: "", plural: "pods", part: "log" }
        }

        fn connect(&self, request: ConnectRequest) -> Boxed<'_, Result<Response<Body>, Status>> {
            let name = request.object["metadata"]["name"].as_str().unwrap_or_default();
            let response = format!("{name} {} {}", request.part, request.text("container"));
            Box::pin(async { Ok(Response::new(whole(Full::from(response)))) })
        }
    }

    #[tokio::test]
    async fn only_authorized_clients_connect_and_only_to_existing_pods() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        records::write(&*store, Id::ROOT, &LogicalClusterRecord::root()).await.unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "uid": "u"}});
        let key = Collection { group: "", plural: "pods" }.key(Id::ROOT, Some("shop"), "web");
        let put = storage::Change::Put(stored::encode(&pod));
        store.commit(key, storage::Expect::Absent, put).await.unwrap();
        let without = Arc::new(Stack::new(store.clone(), String::new(), tasks.stop()));
        let with = Stack::new(store, String::new(), tasks.stop()).with_connect(Arc::new(Mirror));
        let with = Arc::new(with);
        let admin = Identity::user("admin", &["system:masters"]);
        let check =
            async |stack: &Arc<Stack>, identity: &Identity, path: &str, code: u16, body: Option<&str>| {
                let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
                let answer = stack.respond(identity.clone(), request).await;
                assert_eq!(answer.status(), code, "{path} for {identity:?}");
                let bytes = answer.into_body().collect().await.unwrap().to_bytes();
                assert!(body.is_none_or(|body| body.as_bytes() == bytes), "{path}: {bytes:?}");
            };
        let log = "/api/v1/namespaces/shop/pods/web/log?container=main";
        check(&with, &admin, log, 200, Some("web log main")).await;
        check(&with, &admin, "/api/v1/namespaces/shop/pods/none/log", 404, None).await;
        check(&with, &admin, "/api/v1/namespaces/shop/pods/web/exec", 404, None).await;
        check(&with, &admin, "/api/v1/namespaces/shop/services/web/log", 404, None).await;
        // A user without access to the logical cluster must not learn that the object exists.
        check(&with, &Identity::user("eve", &[]), log, 404, None).await;
        check(&with, &Identity::Anonymous, log, 401, None).await;
        check(&without, &admin, log, 404, None).await;
    }

    #[test]
    fn a_proxy_request_names_an_object_and_a_port() {
        let check = |name: &str, expected: Option<(&str, &str, &str)>| {
            let found = Port::split(name);
            let parsed = found.as_ref().map(|(port, name)| (&*port.scheme, *name, &*port.port));
            assert_eq!(parsed, expected, "{name}");
            if let Some((port, object)) = found {
                assert_eq!(port.join(object), name);
            }
        };
        check("web", Some(("", "web", "")));
        check("web:80", Some(("", "web", "80")));
        check("web:http", Some(("", "web", "http")));
        check("https:web:8443", Some(("https", "web", "8443")));
        check("https:web:", Some(("https", "web", "")));
        check("web:", None);
        check("ftp:web:21", None);
        check("a:b:c:d", None);
    }

    #[test]
    fn the_path_after_proxy_is_kept_as_written() {
        let check = |path: &str, expected: &str| {
            assert_eq!(rest(&RequestInfo::line(&format!("GET {path}"))), expected, "{path}");
        };
        check("/api/v1/namespaces/shop/pods/web/proxy", "");
        check("/api/v1/namespaces/shop/pods/web/proxy/", "/");
        check("/clusters/root:a/api/v1/namespaces/shop/pods/web:80/proxy/a%20b/c/?x=1", "/a%20b/c/");
        check("/api/v1/namespaces/shop/pods/web/log/", "");
    }
}
