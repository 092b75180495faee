//! A connection that a syncer has dialled: HTTP/2, with us as the client of whom we serve.
//!
//! [`api::tunnel`] says what is spoken; the other end is `syncer::tunnel`.

use std::io;
use std::time::Duration;

use api::tunnel::{METHOD, STREAMS_MAX};
use apiserver::connect::Connection;
use bytes::Bytes;
use http::header::HeaderValue;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::way::Answer;

/// Less than what load balancers give a connection on which nothing happens, commonly a minute.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Until a syncer that has dialled says something.
const GREET_LIMIT: Duration = Duration::from_secs(20);
/// What one stream may have under way without having been read. A client that does not read costs so much.
const STREAM_BYTES: u32 = 256 << 10;
/// All of them together, so that those nobody reads from leave room for the others.
const LINE_BYTES: u32 = STREAM_BYTES * STREAMS_MAX;

pub(super) struct Line(http2::SendRequest<Full<Bytes>>);

impl Line {
    /// A line, and what has to be polled for it to work: it returns when the line is over.
    pub(super) async fn open(
        connection: Connection,
    ) -> io::Result<(Line, impl Future<Output = io::Result<()>>)> {
        let shaken = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_BYTES)
            .initial_connection_window_size(LINE_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(connection));
        let (requests, connection) = shaken.await.map_err(io::Error::other)?;
        Ok((Line(requests), async move { connection.await.map_err(io::Error::other) }))
    }

    /// Asks something simple. Only when that was answered is it known what the other end understands.
    pub(super) async fn greet(&self) -> io::Result<()> {
        let request = Request::get("/version").body(Bytes::new()).map_err(io::Error::other)?;
        let greeted = tokio::time::timeout(GREET_LIMIT, self.ask(request, None)).await;
        let answer = greeted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        // Whether the physical cluster answered is for those to see who want something of it.
        drop(answer);
        Ok(())
    }

    pub(super) async fn ask(
        &self,
        mut request: Request<Bytes>,
        protocol: Option<&HeaderValue>,
    ) -> io::Result<Response<Answer>> {
        if let Some(protocol) = protocol {
            let method = HeaderValue::from_str(request.method().as_str()).map_err(io::Error::other)?;
            request.headers_mut().insert(METHOD, method);
            *request.method_mut() = Method::CONNECT;
            let protocol = protocol.to_str().map_err(io::Error::other)?;
            request.extensions_mut().insert(Protocol::from(protocol));
        }
        *request.uri_mut() = address(request.uri())?;
        let mut requests = self.0.clone();
        requests.ready().await.map_err(io::Error::other)?;
        let answer = requests.send_request(request.map(Full::new)).await.map_err(io::Error::other)?;
        let mut answer = answer.map(|body| body.map_err(Into::into).boxed_unsync());
        // This is how HTTP/2 says that a connection is changed over.
        if protocol.is_some() && answer.status() == StatusCode::OK {
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        }
        Ok(answer)
    }
}

/// HTTP/2 wants a whole address; nobody looks at the host.
fn address(target: &Uri) -> io::Result<Uri> {
    let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
    Uri::builder().scheme("http").authority("below").path_and_query(path).build().map_err(io::Error::other)
}
