//! The front door: TLS, connections, and letting them go.
//!
//! ```text
//!   accept ─► handshake (10 s at most) ─► who is it ─► HTTP/1.1 or HTTP/2 ─► Handler
//! ```
//!
//! Who a client is comes from its certificate, checked by TLS against our authority, and from nothing it says.
//! When told to stop, the door closes, connections finish what they are doing, and those that do not are cut.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use controller::tasks::Stop;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::identity::Identity;

/// What an answer is made of.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A client that has not shown its greeting by then is let go: connections without one cost memory.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Streams of one connection at a time. Informer-heavy clients open some hundred watches on one connection.
const STREAMS_MAX: u32 = 1000;
/// Streams of one connection that a client has reset before we took them up. Whoever opens and resets in a loop, so that
/// none ever counts against the limit above, is cut off here.
const RESETS_MAX: usize = 20;
/// Streams of one connection that we had to reset because of what the client sent.
const FAULTS_MAX: usize = 1024;
/// Connections at a time. One costs some 50 KiB in TLS and HTTP/2 buffers before it has asked for anything, so all of
/// them together about 400 MiB; what comes on top waits in the kernel's queue.
const CONNECTIONS_MAX: usize = 8192;
/// Headers of one request. Tokens and cookies are a few kilobytes.
const HEADER_BYTES_MAX: u32 = 64 << 10;
/// How long requests under way may take to finish once the door is closed.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        identity: Identity,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handler: Arc<impl Handler>,
    mut stop: Stop,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors, or the client is gone already: neither is a reason to stop serving.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop.requested() => break,
            Some(ended) = connections.join_next() => {
                log_end(ended);
                continue;
            }
        };
        connections.spawn(connection(stream, acceptor.clone(), handler.clone(), graceful.watcher()));
    }
    drop(listener);
    finish(graceful, connections).await;
    Ok(())
}

async fn finish(graceful: GracefulShutdown, mut connections: JoinSet<io::Result<()>>) {
    let told = async {
        graceful.shutdown().await;
        while let Some(ended) = connections.join_next().await {
            log_end(ended);
        }
    };
    if tokio::time::timeout(DRAIN_LIMIT, told).await.is_err() {
        tracing::warn!("some connections did not finish within {DRAIN_LIMIT:?}; cutting them");
    }
}

fn log_end(ended: Result<io::Result<()>, tokio::task::JoinError>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended"),
        Err(error) => tracing::error!(%error, "a connection ended in a panic"),
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handler: Arc<impl Handler>,
    graceful: Watcher,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake within the limit"))??;
    let identity = Identity::of(stream.get_ref().1.peer_certificates());
    let service = service_fn(move |request| {
        let (handler, identity) = (handler.clone(), identity.clone());
        async move { Ok::<_, Infallible>(handler.handle(identity, request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_LIMIT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(FAULTS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(30));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    graceful.watch(connection).await.map_err(io::Error::other)
}
