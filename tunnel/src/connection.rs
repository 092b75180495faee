//! A connection to a physical cluster, with the same interface for both transports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::dialed::{DialedConnection, ResponseBody};
use crate::protocol::STREAMS_MAX;

/// A request that fails later than this did not fail because an idle connection was closed just then.
const IDLE_CLOSE_WINDOW: Duration = Duration::from_secs(1);

/// Why a request did not reach the physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("the physical cluster is not connected to this server")]
    NotConnected,
    #[error("too many streams to this physical cluster, please try again later")]
    TooManyStreams,
    #[error("{0}")]
    Failed(String),
}

/// A connection to one physical cluster.
#[derive(Debug)]
pub struct ClusterConnection {
    transport: Transport,
    streams: Arc<Semaphore>,
    closed: watch::Receiver<()>,
}

enum Transport {
    Push(Client),
    Pull(DialedConnection),
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Transport::Push(_) => "push",
            Transport::Pull(_) => "pull",
        })
    }
}

/// Keeps a connection open. Dropping it closes the connection and ends every stream on it.
pub(crate) struct CloseGuard(
    #[allow(dead_code, reason = "receivers notice that the sender is dropped")] watch::Sender<()>,
);

/// The right to one stream of a connection, until it is dropped.
#[derive(Debug)]
pub struct StreamPermit {
    _permit: OwnedSemaphorePermit,
    closed: watch::Receiver<()>,
}

impl StreamPermit {
    /// Returns when the connection closes. Cancel-safe.
    pub async fn closed(&mut self) {
        closed(&mut self.closed).await;
    }
}

async fn closed(receiver: &mut watch::Receiver<()>) {
    // No value is ever sent; this fails once the guard is dropped.
    while receiver.changed().await.is_ok() {}
}

impl ClusterConnection {
    pub(crate) fn push(downstream: Client) -> (ClusterConnection, CloseGuard) {
        ClusterConnection::new(Transport::Push(downstream))
    }

    pub(crate) fn pull(dialed: DialedConnection) -> (ClusterConnection, CloseGuard) {
        ClusterConnection::new(Transport::Pull(dialed))
    }

    fn new(transport: Transport) -> (ClusterConnection, CloseGuard) {
        let (sender, closed) = watch::channel(());
        let streams = Arc::new(Semaphore::new(STREAMS_MAX as usize));
        (ClusterConnection { transport, streams, closed }, CloseGuard(sender))
    }

    /// Returns when the connection closes.
    pub async fn closed(&self) {
        closed(&mut self.closed.clone()).await;
    }

    /// Reserves a stream. Keep the permit until the last byte of the response was passed on.
    pub fn acquire_stream(&self) -> Result<StreamPermit, TunnelError> {
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| TunnelError::TooManyStreams)?;
        Ok(StreamPermit { _permit: permit, closed: self.closed.clone() })
    }

    /// Sends a request. With a protocol it requests an upgrade; if the physical cluster agrees, the response has the
    /// status `101` and carries the upgraded connection.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        protocol: Option<&HeaderValue>,
    ) -> Result<Response<ResponseBody>, TunnelError> {
        match &self.transport {
            Transport::Push(downstream) => push(downstream, request, protocol).await,
            Transport::Pull(dialed) => {
                let response = dialed.send(request, protocol).await;
                response.map_err(|error| TunnelError::Failed(error.to_string()))
            }
        }
    }
}

async fn push(
    downstream: &Client,
    request: Request<Bytes>,
    protocol: Option<&HeaderValue>,
) -> Result<Response<ResponseBody>, TunnelError> {
    let retry = protocol.is_none().then(|| request.clone()).filter(|request| request.method().is_safe());
    let mut request = request.map(kube::client::Body::from);
    if let Some(protocol) = protocol {
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol.clone());
    }
    let sent = Instant::now();
    let response = match (downstream.send(request).await, retry) {
        // The server may close a pooled connection just as it is used. A request that only reads is retried.
        (Err(_), Some(retry)) if sent.elapsed() < IDLE_CLOSE_WINDOW => {
            downstream.send(retry.map(kube::client::Body::from)).await
        }
        (response, _) => response,
    };
    let response = response.map_err(|error| TunnelError::Failed(error.to_string()))?;
    Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
}
