//! Parts of a pod that lead to what runs: `log`, `exec`, `attach`, `portforward`, `proxy`.
//!
//! ```text
//!   …/pods/web-1/log ─► who may ─► the pod is there ─► Connect ─► whoever has the container
//! ```
//!
//! A logical cluster runs nothing, so this server cannot answer them. Whoever puts a server together may hand it somebody
//! who can. Everything before that is as for any request: who asks, whether they may, which logical cluster, whether there
//! is such a pod. What is said after that, over the connection if it is upgraded, is between the client and them.

use std::fmt;

use api::cluster::Id;
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use hyper::upgrade::OnUpgrade;
use openapi::status::Status;
use serde_json::Value;
use storage::{Boxed, Store};

use crate::asked::Asked;
use crate::body::{self, Incoming};
use crate::call::{Call, Reach};
use crate::request::Resource;
use crate::server::Body;
use crate::verbs::get;

/// Answers for what runs.
pub trait Connect: Send + Sync + fmt::Debug {
    /// The parts it answers for.
    fn parts(&self) -> &[&str];

    /// The answer, or why there is none. It may go on for as long as the client likes.
    fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>>;
}

/// What a client wants of a pod it may reach.
#[derive(Debug)]
pub struct Wish {
    pub cluster: Id,
    /// The pod, as it is now.
    pub pod: Value,
    pub part: String,
    /// What follows in the path, for proxies.
    pub rest: Vec<String>,
    pub method: Method,
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The connection itself, if the client asks to talk otherwise on it.
    pub upgrade: Option<OnUpgrade>,
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

/// Whether a call is for a part that somebody answers for.
pub(crate) fn is_for(connect: &dyn Connect, call: &Call) -> bool {
    let part = call.subresource.as_deref().unwrap_or_default();
    let is_pod = &*call.row.plural == "pods" && call.row.group.is_empty();
    is_pod && call.reach == Reach::One && call.namespace.is_some() && connect.parts().contains(&part)
}

pub(crate) async fn answer(
    connect: &dyn Connect,
    store: &dyn Store,
    call: &Call,
    named: &Resource,
    asked: &Asked,
    incoming: impl Incoming,
) -> Result<Response<Body>, Status> {
    let pod = call.tree(&get::find(store, call).await?)?;
    let wish = Wish {
        cluster: call.cluster,
        pod,
        part: named.subresource.clone().unwrap_or_default(),
        rest: named.rest.clone(),
        method: asked.method.clone(),
        query: asked.query.pairs().to_vec(),
        headers: call.headers.clone(),
        body: match asked.upgrade {
            // What comes on such a connection is not a body.
            Some(_) => Bytes::new(),
            None => body::read(incoming).await?,
        },
        upgrade: asked.upgrade.clone(),
    };
    connect.connect(wish).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;
    use http_body_util::{BodyExt, Full};
    use serde_json::json;

    use super::*;
    use crate::births::{self, Birth};
    use crate::identity::Identity;
    use crate::keys::Collection;
    use crate::stack::Stack;
    use crate::stored;

    /// Answers with what it was asked.
    #[derive(Debug)]
    struct Mirror;

    impl Connect for Mirror {
        fn parts(&self) -> &[&str] {
            &["log"]
        }

        fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>> {
            let name = wish.pod["metadata"]["name"].as_str().unwrap_or_default();
            let told = format!("{name} {} {}", wish.part, wish.text("container"));
            Box::pin(async { Ok(Response::new(Full::from(told).boxed_unsync())) })
        }
    }

    #[tokio::test]
    async fn only_who_may_reach_a_pod_that_is_there_gets_through() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        births::write(&*store, Id::ROOT, &Birth::root()).await.unwrap();
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
}
