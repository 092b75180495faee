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
