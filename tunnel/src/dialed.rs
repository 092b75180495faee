//! A connection that a syncer dialled: HTTP/2, with Holon as the client. [`Agent`](crate::Agent) is the other end.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::protocol::{METHOD, STREAMS_MAX};

/// Less than the idle timeout of load balancers, commonly a minute.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long a syncer may take to respond to the first request after it dialled.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// The flow-control window of a stream: the memory that a client costs that does not read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The flow-control window of the connection: streams with a full window leave room for the others.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_MAX;

/// The body of a response, streamed.
pub type ResponseBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Sends requests on a connection that a syncer dialled.
#[derive(Debug)]
pub struct DialedConnection(http2::SendRequest<Full<Bytes>>);

impl DialedConnection {
    /// Starts HTTP/2. The returned future drives the connection and returns when it ends.
    pub async fn open(
        connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<(DialedConnection, impl Future<Output = io::Result<()>>)> {
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(connection));
        let (requests, connection) = handshake.await.map_err(io::Error::other)?;
        Ok((DialedConnection(requests), async move { connection.await.map_err(io::Error::other) }))
    }

    /// Sends a first request. Its response shows that the agent's settings have arrived, extended CONNECT among them.
    pub async fn probe(&self) -> io::Result<()> {
        let request = Request::get("/version").body(Bytes::new()).map_err(io::Error::other)?;
        let probed = tokio::time::timeout(PROBE_TIMEOUT, self.send(request, None)).await;
        // The status comes from the physical cluster and does not concern the tunnel.
        let _response = probed.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(())
    }

    pub(crate) async fn send(
        &self,
        mut request: Request<Bytes>,
        protocol: Option<&HeaderValue>,
    ) -> io::Result<Response<ResponseBody>> {
        if let Some(protocol) = protocol {
            let method = HeaderValue::from_str(request.method().as_str()).map_err(io::Error::other)?;
            request.headers_mut().insert(METHOD, method);
            *request.method_mut() = Method::CONNECT;
            let protocol = protocol.to_str().map_err(io::Error::other)?;
            request.extensions_mut().insert(Protocol::from(protocol));
        }
        *request.uri_mut() = absolute(request.uri())?;
        let mut requests = self.0.clone();
        requests.ready().await.map_err(io::Error::other)?;
        let response = requests.send_request(request.map(Full::new)).await.map_err(io::Error::other)?;
        let mut response = response.map(|body| body.map_err(Into::into).boxed_unsync());
        // HTTP/2 accepts an extended CONNECT with 200.
        if protocol.is_some() && response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        }
        Ok(response)
    }
}

/// Returns an absolute URI, which HTTP/2 requires. The agent ignores its host.
fn absolute(target: &Uri) -> io::Result<Uri> {
    let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
    Uri::builder()
        .scheme("http")
        .authority("downstream")
        .path_and_query(path)
        .build()
        .map_err(io::Error::other)
}
