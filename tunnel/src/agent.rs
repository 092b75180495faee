//! The end of a tunnel in the physical cluster: it dials Holon, and serves HTTP/2 on that connection.
//!
//! ```text
//!   agent ── GET …/physicalclusters/<name>/tunnel, Upgrade ─► Holon      one connection, dialled from here
//!         ◄─ HTTP/2: logs of this pod, a command in that one … ─         a stream each
//!         ─► the physical cluster's API
//! ```
//!
//! The agent dials like every other client of the mailbox, so it passes the same load balancers and proxies. HTTP/2 has
//! flow control per stream: a client that does not read holds up its own stream only. When the connection breaks, the agent
//! dials again.
//!
//! Requests go to the physical cluster with the identity of the syncer, and only for the paths that [`protocol`](crate::protocol)
//! allows: a tunnel does not give access to objects.

mod forward;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::fleet::PhysicalCluster;
use api::names::{GROUP, VERSION};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::protocol::{PROTOCOL, STREAMS_MAX, TUNNEL_SUBRESOURCE};
use forward::Forwarder;

/// The first and the longest backoff between attempts to dial.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A tunnel that was open for this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(60);
const DIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Less than the idle timeout of load balancers, commonly a minute.
const PING_EVERY: Duration = Duration::from_secs(20);
/// The flow-control window of a stream: the bytes of a twentieth of a second at 5 MB/s.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The flow-control window of the connection: streams with a full window leave room for the others.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_MAX;
/// Maximum size of the Status with which a server refuses the tunnel.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Why a tunnel cannot be opened.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("cannot reach the server: {0}")]
    Unreachable(#[from] kube::Error),
    #[error("the server did not answer within {DIAL_TIMEOUT:?}")]
    TimedOut,
    #[error("the server refused the tunnel: {0}")]
    Refused(String),
    #[error("the connection failed: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the server closed the connection")]
    Closed,
}

/// Streams with upgraded connections, which the task of the tunnel drives. They end with the tunnel.
type SplicedSender = mpsc::UnboundedSender<BoxFuture<'static, ()>>;

/// Keeps a tunnel to Holon open, and forwards its requests to the physical cluster.
pub struct Agent {
    mailbox: Client,
    downstream: Client,
    path: String,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Agent {
    /// Creates an agent. `mailbox` is a client of the mailbox of the physical cluster `name`, `downstream` one of the
    /// physical cluster.
    pub fn new(mailbox: Client, downstream: Client, name: &str) -> Agent {
        let plural = PhysicalCluster::RESOURCE.plural;
        let path = format!("/apis/{GROUP}/{VERSION}/{plural}/{name}/{TUNNEL_SUBRESOURCE}");
        Agent { mailbox, downstream, path }
    }

    /// Runs until `stop` completes.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        tokio::select! {
            never = self.dial_repeatedly() => match never {},
            () = stop => {}
        }
    }

    async fn dial_repeatedly(&self) -> Infallible {
        let mut backoff = BACKOFF_MIN;
        loop {
            let dialed = Instant::now();
            let error = match self.dial_and_serve().await {
                Ok(()) => DialError::Closed,
                Err(error) => error,
            };
            if dialed.elapsed() > STABLE_AFTER {
                backoff = BACKOFF_MIN;
            }
            tracing::info!(%error, "the tunnel is closed; dialling again");
            // With jitter: after an outage of the server, all agents dial again.
            tokio::time::sleep(backoff.mul_f64(rand::random_range(0.5..1.0))).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    async fn dial_and_serve(&self) -> Result<(), DialError> {
        let connection = timeout(DIAL_TIMEOUT, self.dial()).await.map_err(|_| DialError::TimedOut)??;
        tracing::info!("the tunnel is open");
        // Unbounded, but HTTP/2 bounds the number of streams.
        let (spliced, streams) = mpsc::unbounded_channel();
        tokio::select! {
            never = drive(streams) => match never {},
            served = self.serve(connection, spliced) => Ok(served?),
        }
    }

    async fn dial(&self) -> Result<Upgraded, DialError> {
        let request = Request::get(&self.path).header(CONNECTION, "Upgrade").header(UPGRADE, PROTOCOL);
        let request = request.body(kube::client::Body::empty()).map_err(kube::Error::HttpError)?;
        let mut response = self.mailbox.send(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let code = response.status();
            let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            let status: Value = serde_json::from_slice(&body).unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_default();
            return Err(DialError::Refused(format!("{code}: {message}")));
        }
        Ok(hyper::upgrade::on(&mut response).await?)
    }

    async fn serve(&self, connection: Upgraded, spliced: SplicedSender) -> Result<(), hyper::Error> {
        let forwarder = Arc::new(Forwarder::new(self.downstream.clone(), spliced));
        let service = service_fn(|request| {
            let forwarder = forwarder.clone();
            async move { Ok::<_, Infallible>(forwarder.forward(request).await) }
        });
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .enable_connect_protocol()
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .serve_connection(connection, service)
            .await
    }
}

/// Drives the spliced streams of one tunnel, for as long as it is polled.
async fn drive(mut streams: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>) -> Infallible {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(stream) = streams.recv() => open.push(stream),
            Some(()) = open.next() => {}
            else => std::future::pending().await,
        }
    }
}
