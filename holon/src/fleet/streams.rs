//! `kubectl logs`, `exec`, `attach`, `port-forward`, `cp`, `debug`, `proxy` and `top`: requests for running pods,
//! forwarded to the physical cluster that runs them.
//!
//! ```text
//!   client ─► Holon: authorized, the pod exists ─► target: where it runs ─► tunnel ─► the physical cluster's API ─► kubelet
//!          ◄──────────────────── bytes, both ways, not read by Holon ────────────────────►
//! ```
//!
//! The physical cluster sees the identity of its syncer. A stream ends when the client loses its access, which the API
//! server watches, and when the tunnel closes.

mod metrics;
mod target;
mod top;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::cluster::Id;
use api::metrics::METRICS;
use api::names::{GROUP, SYNCER_ACCOUNT};
use apiserver::authn::credential::Credential;
use apiserver::authn::identity::Identity;
use apiserver::endpoints::connect::{Connect, ConnectRequest, Part, Upgrade};
use apiserver::http::body::{Body, Broken, whole};
use bytes::Bytes;
use controller::remote::Remote;
use controller::tasks::StreamTasks;
use futures::{StreamExt, stream};
use http::header::{CONNECTION, LOCATION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use kube::Client;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::Boxed;
use tunnel::protocol::{
    PROTOCOL, TUNNEL_SUBRESOURCE, is_forwarded, is_request_header_forwarded, is_response_header_forwarded,
};
use tunnel::{
    DialedConnection, OpenTunnel, ResponseBody, StreamPermit, TunnelError, Tunnels, copy_headers, splice,
};

use self::target::{StreamTarget, UserPod};

/// Forwards requests for running pods: it serves the subresources that the API server cannot answer itself.
#[derive(Default)]
pub(crate) struct PodStreams {
    tunnels: Tunnels,
    /// Upgraded connections, and the tunnels that syncers dialled.
    tasks: StreamTasks,
    /// A client that reads mailboxes, while this server runs the fleet.
    server: Arc<Mutex<Option<Remote>>>,
}

impl fmt::Debug for PodStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tunnels.fmt(f)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the Status for a request that a tunnel cannot carry.
fn status(error: TunnelError) -> Status {
    match error {
        TunnelError::TooManyStreams => Status::too_many_requests(error.to_string(), 1),
        TunnelError::NotConnected | TunnelError::Failed(_) => Status::unavailable(error.to_string()),
    }
}

impl PodStreams {
    /// Opens a tunnel to a physical cluster that this server connects to.
    pub(crate) fn open_push(&self, mailbox: Id, downstream: Client) -> OpenTunnel {
        let opened = self.tunnels.open_push(mailbox, downstream);
        let (connection, server) = (opened.connection().clone(), self.server.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                never = metrics::keep_served(&connection, mailbox, &server) => match never {},
                () = connection.closed() => {}
            }
        });
        opened
    }

    /// Sets or removes the client for mailboxes.
    pub(crate) fn set_server(&self, server: Option<Remote>) {
        *lock(&self.server) = server;
    }

    async fn forward(&self, request: ConnectRequest) -> Result<Response<Body>, Status> {
        if request.part == TUNNEL_SUBRESOURCE {
            return self.accept_tunnel(request);
        }
        let server = lock(&self.server).clone();
        if request.group == METRICS.0 && self.tunnels.get(request.cluster).is_err() {
            let query = top::MetricsQuery::of(&request)?;
            drop(request);
            return top::respond(&self.tunnels, server.ok_or_else(target::no_server)?, query).await;
        }
        let target = match UserPod::of(&request) {
            Some(pod) => pod.find(&self.tunnels.mailboxes(), server).await?,
            None => {
                let target = StreamTarget::of(&request)?;
                target.verify(server).await?;
                target
            }
        };
        let connection = self.tunnels.get(target.mailbox).map_err(status)?;
        // Held until the last byte has been copied.
        let permit = connection.acquire_stream().map_err(status)?;
        let protocol = request.upgrade.as_ref().and_then(|_| request.headers.get(UPGRADE).cloned());
        let downstream = downstream_request(&request, &target)?;
        let response = connection.send(downstream, protocol.as_ref()).await.map_err(status)?;
        match (response.status(), request.upgrade, protocol) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(client), Some(protocol)) => {
                Ok(self.upgrade(client, response, &request.part, protocol, permit))
            }
            (StatusCode::SWITCHING_PROTOCOLS, ..) => Err(Status::unavailable(
                "the physical cluster upgraded the connection although the client did not request it",
            )),
            _ => Ok(stream_response(response, &request.part, &target, permit)),
        }
    }

    /// Responds that the connection is upgraded, and copies bytes both ways.
    fn upgrade(
        &self,
        client: Upgrade,
        mut response: Response<ResponseBody>,
        subresource: &str,
        protocol: HeaderValue,
        mut permit: StreamPermit,
    ) -> Response<Body> {
        let downstream = hyper::upgrade::on(&mut response);
        self.tasks.spawn(async move {
            let (Ok(client), Ok(downstream)) = tokio::join!(client.open(), downstream) else { return };
            let lost = client.lost();
            splice(client, TokioIo::new(downstream), (lost, permit.closed())).await;
        });
        upgraded(response.headers(), subresource, protocol)
    }

    /// Accepts the tunnel that a syncer dials.
    fn accept_tunnel(&self, request: ConnectRequest) -> Result<Response<Body>, Status> {
        if !is_syncer(&request.identity, request.cluster) {
            return Err(Status::bad_request(
                "only the syncer of the mailbox may open a tunnel, with the token of its service account",
            ));
        }
        let protocol = request.headers.get(UPGRADE).filter(|protocol| *protocol == PROTOCOL).cloned();
        let (Some(upgrade), Some(protocol)) = (request.upgrade, protocol) else {
            return Err(Status::bad_request(format!("a tunnel needs the header Upgrade: {PROTOCOL}")));
        };
        let (tunnels, server, mailbox) = (self.tunnels.clone(), self.server.clone(), request.cluster);
        self.tasks.spawn(async move {
            let served = async {
                let (dialed, connection) = DialedConnection::open(upgrade.open().await?).await?;
                let mut connection = std::pin::pin!(connection);
                tokio::select! {
                    probed = dialed.probe() => probed?,
                    ended = &mut connection => return ended,
                }
                let opened = tunnels.open_pull(mailbox, dialed);
                tracing::info!(%mailbox, "opened a tunnel");
                tokio::select! {
                    never = metrics::keep_served(opened.connection(), mailbox, &server) => match never {},
                    ended = connection => ended,
                }
            };
            match served.await {
                Ok(()) => tracing::info!(%mailbox, "the syncer closed its tunnel"),
                Err(error) => tracing::info!(%mailbox, %error, "a tunnel broke"),
            }
        });
        Ok(upgraded(&HeaderMap::new(), TUNNEL_SUBRESOURCE, protocol))
    }
}

impl Connect for PodStreams {
    fn leads(&self, part: Part<'_>) -> bool {
        match part.group {
            "" => is_forwarded(part.plural, part.part),
            GROUP => part.plural == "physicalclusters" && part.part == TUNNEL_SUBRESOURCE,
            group => group == METRICS.0 && part.part.is_empty(),
        }
    }

    fn runs(&self, cluster: Id, who: &Identity, object: &Value) -> bool {
        // A controller that projects a pod writes the subresources of the projection in this store, as they are
        // downstream.
        let projects = who.has_controller_role() || crate::authz::reserved::is_syncer_of(who, cluster);
        let is_connected = || target::is_projection_for_user(object) || self.tunnels.get(cluster).is_ok();
        !projects && target::runs_downstream(object) && is_connected()
    }

    fn connect(&self, request: ConnectRequest) -> Boxed<'_, Result<Response<Body>, Status>> {
        Box::pin(self.forward(request))
    }
}

/// Returns whether the caller is the service account of a mailbox's syncer, proved by a token. Impersonation does not
/// count: an administrator who impersonates the syncer would act as the physical cluster towards every client.
fn is_syncer(identity: &Identity, mailbox: Id) -> bool {
    let Identity::User(user) = identity else { return false };
    let name = format!("system:serviceaccount:kube-system:{SYNCER_ACCOUNT}");
    user.name == name
        && user.home == Some(mailbox)
        && matches!(user.credential, Credential::ServiceAccount(_))
}

/// Returns the request that is sent to the physical cluster.
fn downstream_request(request: &ConnectRequest, target: &StreamTarget) -> Result<Request<Bytes>, Status> {
    if request.group == METRICS.0 && request.method != Method::GET {
        return Err(Status::wrong_method());
    }
    let query: String = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(request.query.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .finish();
    let separator = if query.is_empty() { "" } else { "?" };
    let uri = format!("{}{}{separator}{query}", target.path, request.rest);
    let downstream = Request::builder().method(request.method.clone()).uri(uri).body(request.body.clone());
    let mut downstream = downstream.map_err(|error| Status::bad_request(error.to_string()))?;
    let passes = |name: &str| is_request_header_forwarded(&request.part, name);
    copy_headers(&request.headers, downstream.headers_mut(), passes);
    Ok(downstream)
}

/// Streams the response. If the physical cluster or the tunnel breaks it off, this response breaks off too: a client
/// that saved half a log would otherwise take it for complete.
fn stream_response(
    response: Response<ResponseBody>,
    subresource: &str,
    target: &StreamTarget,
    permit: StreamPermit,
) -> Response<Body> {
    let (head, body) = response.into_parts();
    let start = Some((body.into_data_stream(), permit));
    let frames = stream::unfold(start, async |state| {
        let (mut chunks, mut permit) = state?;
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk?.map_err(|error| tracing::debug!(error, "a response broke off")),
            () = permit.closed() => Err(()),
        };
        Some(match chunk {
            Ok(chunk) => (Ok(Frame::data(chunk)), Some((chunks, permit))),
            Err(()) => (Err(Broken), None),
        })
    });
    let mut streamed = Response::new(StreamBody::new(frames).boxed_unsync());
    *streamed.status_mut() = head.status;
    let passes = |name: &str| is_response_header_forwarded(subresource, name);
    copy_headers(&head.headers, streamed.headers_mut(), passes);
    // A redirect contains a path of the physical cluster; the client needs the path in this server.
    let location = head.headers.get(LOCATION).and_then(|location| target.client_location(location));
    if let Some(location) = location {
        streamed.headers_mut().insert(LOCATION, location);
    }
    streamed
}

fn upgraded(headers: &HeaderMap, subresource: &str, protocol: HeaderValue) -> Response<Body> {
    let mut response = Response::new(whole(Empty::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let passes = |name: &str| is_response_header_forwarded(subresource, name);
    copy_headers(headers, response.headers_mut(), passes);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, protocol);
    response
}
