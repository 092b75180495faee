//! `kubectl logs`, `exec`, `attach`, `port-forward` and `cp` on a pod in a mailbox, led to the physical cluster it runs on.
//!
//! ```text
//!   client ─► Holon: who may ─► the pod is there ─► tunnel ─► the physical cluster's API ─► kubelet
//!          ◄────────────── bytes, both ways, whatever they mean ──────────────►
//! ```
//!
//! The physical cluster is asked as its syncer, so nothing the client says about itself goes along. A connection that is
//! upgraded is not looked into: what is spoken on it is between the client and the kubelet.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::cluster::Id;
use api::names::BELOW_UID;
use apiserver::connect::{Connect, Wish};
use apiserver::server::Body;
use futures::StreamExt;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube::Client;
use openapi::status::Status;
use storage::Boxed;
use tokio::io::copy_bidirectional;
use tokio::task::JoinSet;

/// The parts of a pod that are led on.
const PARTS: [&str; 4] = ["log", "exec", "attach", "portforward"];
/// Headers that say what is wanted, and how it is to be spoken. No others go along.
const CARRIED: [&str; 7] = [
    "accept",
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
];
/// The same of an answer.
const RETURNED: [&str; 6] = [
    "content-type",
    "upgrade",
    "connection",
    "sec-websocket-accept",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
];

/// The ways to physical clusters, by the mailbox of each.
#[derive(Default)]
pub(crate) struct Tunnels {
    ways: Mutex<HashMap<Id, Client>>,
    /// Connections that were upgraded.
    open: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ways", lock(&self.ways).len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tunnels {
    pub(crate) fn open(&self, mailbox: Id, below: Client) {
        lock(&self.ways).insert(mailbox, below);
    }

    pub(crate) fn close(&self, mailbox: Id) {
        lock(&self.ways).remove(&mailbox);
    }

    async fn lead(&self, mut wish: Wish) -> Result<Response<Body>, Status> {
        let text = |field: &str| wish.pod["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        if wish.pod["metadata"]["annotations"][BELOW_UID].is_null() {
            return Err(Status::bad_request(format!("pod {name:?} does not run on a physical cluster")));
        }
        let below = lock(&self.ways).get(&wish.cluster).cloned();
        let below = below.ok_or_else(|| unavailable("its physical cluster is not connected"))?;
        let query: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(wish.query.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .finish();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/{}?{query}", wish.part);
        let mut request = Request::builder().method(wish.method.clone()).uri(path);
        for (name, value) in chosen(&wish.headers, &CARRIED) {
            request = request.header(name, value);
        }
        let body = kube::client::Body::from(std::mem::take(&mut wish.body).to_vec());
        let request = request.body(body).map_err(|error| Status::bad_request(error.to_string()))?;
        let answer = below.send(request).await.map_err(|error| unavailable(&error.to_string()))?;
        match (answer.status(), wish.upgrade) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(client)) => Ok(self.splice(client, answer)),
            (StatusCode::SWITCHING_PROTOCOLS, None) => {
                Err(unavailable("it talks otherwise than it was asked to"))
            }
            _ => Ok(passed(answer)),
        }
    }

    /// Answers that the connection is upgraded, and leads bytes both ways for as long as either side likes.
    fn splice(&self, client: OnUpgrade, mut answer: Response<kube::client::Body>) -> Response<Body> {
        let below = hyper::upgrade::on(&mut answer);
        let mut open = lock(&self.open);
        // Those that have ended are not kept.
        while open.try_join_next().is_some() {}
        open.spawn(async move {
            let (Ok(client), Ok(below)) = tokio::join!(client, below) else { return };
            // Either side may break off; the other then sees the end.
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(below)).await;
        });
        respond(&answer, http_body_util::Empty::new().boxed_unsync())
    }
}

impl Connect for Tunnels {
    fn parts(&self) -> &[&str] {
        &PARTS
    }

    fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>> {
        Box::pin(self.lead(wish))
    }
}

fn unavailable(why: &str) -> Status {
    Status::unavailable(why)
}

fn chosen<'h>(
    headers: &'h HeaderMap,
    names: &'h [&'h str],
) -> impl Iterator<Item = (&'h HeaderName, &'h http::HeaderValue)> {
    headers.iter().filter(|(name, _)| names.contains(&name.as_str()))
}

/// The answer as it comes, piece by piece. One that breaks off ends here, too.
fn passed(answer: Response<kube::client::Body>) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let pieces = body.into_data_stream().take_while(|piece| std::future::ready(piece.is_ok()));
    let frames = pieces.filter_map(async |piece| piece.ok().map(|piece| Ok(Frame::data(piece))));
    let body = StreamBody::new(frames).boxed_unsync();
    respond(&Response::from_parts(head, ()), body)
}

fn respond<B>(answer: &Response<B>, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = answer.status();
    let upgraded = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in chosen(answer.headers(), &RETURNED) {
        if upgraded || ![CONNECTION, UPGRADE].contains(name) {
            response.headers_mut().append(name, value.clone());
        }
    }
    response
}
