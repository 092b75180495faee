//! Subresources that lead out of this server: `log`, `exec`, `attach`, `portforward` and `proxy` of a pod, for instance.
//!
//! ```text
//!   …/pods/web-1/log ─► authorized ─► the pod exists ─► Connect ─► the node of the container
//!                         └──── stream guard ──────────────┘ bytes, both ways
//! ```
//!
//! A logical cluster runs nothing, so this server cannot answer them. The program that embeds the server may pass it a [`Connect`]
//! who can. Everything before that is as for any request: who asks, whether they may, which logical cluster, whether there
//! is such an object. What is said after that, over the connection if it is upgraded, is between the client and them; it
//! ends when the client may no longer have it ([`stream_guard`]).

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

/// The one part that leads further, and may name a port beside the object.
const PROXY: &str = "proxy";

/// Answers for what runs.
pub trait Connect: Send + Sync + fmt::Debug {
    /// Whether it answers for such a part.
    fn leads(&self, part: Part<'_>) -> bool;

    /// Whether it answers for this object, where the server could do so itself.
    fn runs(&self, _cluster: Id, _who: &Identity, _object: &Value) -> bool {
        true
    }

    /// The answer, or why there is none. It may go on for as long as the client likes.
    fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>>;
}

/// A part of the objects of a resource. Empty for the objects themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    pub group: &'a str,
    pub plural: &'a str,
    pub part: &'a str,
}

/// A request for a subresource of an object that the client may reach.
#[derive(Debug)]
pub struct Wish {
    pub cluster: Id,
    /// Who asks, or whom they act as.
    pub identity: Identity,
    pub group: String,
    pub plural: String,
    pub namespace: String,
    /// Empty for all of them.
    pub name: String,
    /// The object, as it is now. Null if it is of a kind of which none are kept here.
    pub object: Value,
    pub part: String,
    pub port: Port,
    /// The path as the client wrote it, up to the part.
    pub address: String,
    /// What follows there, for proxies: empty, or a slash and more.
    pub rest: String,
    pub method: Method,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The connection itself, if the client asks to talk otherwise on it.
    pub upgrade: Option<Upgrade>,
}

impl Wish {
    /// The first value of a parameter; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.query.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// Every value of a parameter, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Which port a proxy leads to, and what is spoken there: `https:web:8443` names all there is to name. Empty where the
/// client leaves it open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    pub scheme: String,
    pub port: String,
}

impl Port {
    /// A name as proxies take it, in its parts.
    fn split(name: &str) -> Option<(Port, &str)> {
        let port = |scheme: &str, port: &str| Port { scheme: scheme.to_owned(), port: port.to_owned() };
        match *name.split(':').collect::<Vec<_>>() {
            [name] => Some((Port::default(), name)),
            [name, number] if !number.is_empty() => Some((port("", number), name)),
            [scheme @ ("http" | "https"), name, number] => Some((port(scheme, number), name)),
            _ => None,
        }
    }

    /// The same for another name.
    pub fn join(&self, name: &str) -> String {
        match (&*self.scheme, &*self.port) {
            ("", "") => name.to_owned(),
            ("", port) => format!("{name}:{port}"),
            (scheme, port) => format!("{scheme}:{name}:{port}"),
        }
    }
}

/// The `Connect` that answers a call, and the object the call is about.
pub(crate) struct Lead<'a> {
    connect: &'a dyn Connect,
    name: String,
    port: Port,
    object: Value,
}

/// Who answers, if it is not the server.
pub(crate) async fn find<'a>(
    connect: Option<&'a dyn Connect>,
    store: &dyn Store,
    call: &Call,
    named: &Resource,
) -> Result<Option<Lead<'a>>, Status> {
    let part = call.subresource.as_deref().unwrap_or_default();
    let led = Part { group: &call.resource.group, plural: &call.resource.plural, part };
    let is_one = call.reach == Reach::One && (named.rest.is_empty() || part == PROXY);
    let Some(connect) = connect.filter(|connect| is_one && connect.leads(led)) else { return Ok(None) };
    let name = call.name.as_deref().unwrap_or_default();
    // Objects themselves are led when none are kept here.
    if part.is_empty() {
        return Ok(Some(Lead { connect, name: name.to_owned(), port: Port::default(), object: Value::Null }));
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
    if is_kept(part) && !connect.runs(call.cluster, call.authorization.identity(), &object) {
        return Ok(None);
    }
    Ok(Some(Lead { connect, name: name.to_owned(), port, object }))
}

/// Whether a part is one of the object as it is kept here, too.
fn is_kept(part: &str) -> bool {
    part == "ephemeralcontainers"
}

impl Lead<'_> {
    pub(crate) async fn answer(
        self,
        authenticators: &Authenticators,
        stop: &Stop,
        call: &Call,
        info: &RequestInfo,
        place: &mut RequestSlot<'_>,
        incoming: impl Incoming,
    ) -> Result<Response<Body>, Status> {
        let guard = async || StreamGuard::new(call, authenticators, stop.clone()).await;
        let (body, upgrade) = match &info.upgrade {
            // What comes on such a connection is not a body.
            Some(on) => {
                websocket::check_page(&call.headers)?;
                (Bytes::new(), Some(Upgrade::new(on.clone(), guard().await?)))
            }
            None => (place.receive(incoming).await?, None),
        };
        let rest = rest(info);
        let wish = Wish {
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
        let answer = self.connect.connect(wish).await?;
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => Ok(answer),
            // Whatever was asked for: who is given a body is held to it.
            _ => {
                let guard = guard().await?;
                Ok(answer.map(|body| GuardedBody::new(body, guard).boxed_unsync()))
            }
        }
    }
}

/// What follows a proxy in a path: `/api/v1/namespaces/shop/pods/web/proxy` has seven segments. After others there is at
/// most a slash, which is ignored.
fn rest(info: &RequestInfo) -> String {
    if info.resource().and_then(|named| named.subresource.as_deref()) != Some(PROXY) {
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

        fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>> {
            let name = wish.object["metadata"]["name"].as_str().unwrap_or_default();
            let told = format!("{name} {} {}", wish.part, wish.text("container"));
            Box::pin(async { Ok(Response::new(whole(Full::from(told)))) })
        }
    }

    #[tokio::test]
    async fn only_who_may_reach_a_pod_that_is_there_gets_through() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        records::write(&*store, Id::ROOT, &LogicalClusterRecord::root()).await.unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "uid": "u"}});
        let key = Collection { group: "", plural: "pods" }.key(Id::ROOT, Some("shop"), "web");
        let put = storage::Change::Put(stored::encode(&pod));
        store.commit(key, storage::Expect::Absent, put).await.unwrap();
        let without = Stack::new(store.clone(), String::new(), tasks.stop());
        let with = Stack::new(store, String::new(), tasks.stop()).with_connect(Arc::new(Mirror));
        let admin = Identity::user("admin", &["system:masters"]);
        let check = async |stack: &Stack, who: &Identity, path: &str, code: u16, body: Option<&str>| {
            let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
            let answer = stack.respond(who.clone(), request).await;
            assert_eq!(answer.status(), code, "{path} for {who:?}");
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(body.is_none_or(|body| body.as_bytes() == bytes), "{path}: {bytes:?}");
        };
        let log = "/api/v1/namespaces/shop/pods/web/log?container=main";
        check(&with, &admin, log, 200, Some("web log main")).await;
        check(&with, &admin, "/api/v1/namespaces/shop/pods/none/log", 404, None).await;
        check(&with, &admin, "/api/v1/namespaces/shop/pods/web/exec", 404, None).await;
        check(&with, &admin, "/api/v1/namespaces/shop/services/web/log", 404, None).await;
        // Who has no business here is not told what there is.
        check(&with, &Identity::user("eve", &[]), log, 404, None).await;
        check(&with, &Identity::Anonymous, log, 401, None).await;
        check(&without, &admin, log, 404, None).await;
    }

    #[test]
    fn a_proxy_names_a_port_beside_the_object() {
        let check = |name: &str, expected: Option<(&str, &str, &str)>| {
            let found = Port::split(name);
            let shown = found.as_ref().map(|(port, name)| (&*port.scheme, *name, &*port.port));
            assert_eq!(shown, expected, "{name}");
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
    fn what_follows_a_proxy_stays_as_it_was_written() {
        let check = |path: &str, expected: &str| {
            assert_eq!(rest(&RequestInfo::line(&format!("GET {path}"))), expected, "{path}");
        };
        check("/api/v1/namespaces/shop/pods/web/proxy", "");
        check("/api/v1/namespaces/shop/pods/web/proxy/", "/");
        check("/clusters/root:a/api/v1/namespaces/shop/pods/web:80/proxy/a%20b/c/?x=1", "/a%20b/c/");
        check("/api/v1/namespaces/shop/pods/web/log/", "");
    }
}
