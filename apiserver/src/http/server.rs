//! The server: accepts connections, serves HTTP on them, and drains them when it stops.
//!
//! ```text
//!   accept ─► handshake (10 s at most) ─► identity ─► first request (10 s at most) ─► HTTP/1.1 or HTTP/2 ─► Handler
//! ```
//!
//! The identity of a client comes from its certificate, which TLS verifies. A connection ends when its certificate
//! expires or the issuer is no longer trusted. When the server stops, it closes the listener and lets connections
//! finish their requests; after a limit it closes them. A [`websocket`](crate::http::websocket) watch counts as a
//! connection.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::tasks::{KeyedTasks, Stop};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authn::identity;
use crate::authn::identity::Identity;
use crate::http::body::{Body, CHUNK_BYTES};
use crate::http::connections::{CONNECTIONS_MAX, Connections, OpenConnection};
use crate::http::limits::Tenant;
use crate::http::pki::Offer;
use crate::http::preface::PrefacedStream;
use crate::http::websocket::Sequel;

/// Time limit for the TLS handshake, and again for the first request after it: connections use memory.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Concurrent streams of one connection. Clients with many informers open about a hundred watches on one connection.
const STREAMS_MAX: u32 = 1000;
/// Streams of one connection that the client reset before the server handled them. Such streams do not count against
/// the limit above, so a client that opens and resets streams in a loop is disconnected here.
const RESETS_MAX: usize = 20;
/// Streams of one connection that the server reset because of client errors.
const FAULTS_MAX: usize = 1024;
/// The number of connections to close when no more can be accepted, and the time for them to end.
const SHED: usize = 16;
const SHED_PAUSE: Duration = Duration::from_millis(10);
/// The same warning is logged at most this often.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Maximum headers of one request. Tokens and cookies take a few kilobytes.
const HEADER_BYTES_MAX: u32 = 64 << 10;
/// Bytes that TLS buffers for a client: see CHUNK_BYTES.
const TLS_BYTES_MAX: usize = CHUNK_BYTES;
/// Time limit for requests in progress when the server stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// How long writes without a client may take after that. The store answers within milliseconds.
const WRITES_LIMIT: Duration = Duration::from_secs(4);

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        identity: Identity,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Finishes what goes on without a connection.
    fn finish(&self) -> impl Future<Output = ()> + Send;
}

/// The state that all connections share.
struct ServerState<H> {
    handler: Arc<H>,
    offer: watch::Receiver<Offer>,
}

/// Serves until `stop`. The TLS configuration may change meanwhile.
pub async fn serve(
    listener: TcpListener,
    offer: watch::Receiver<Offer>,
    handler: Arc<impl Handler>,
    mut stop: Stop,
) -> io::Result<()> {
    let state = Arc::new(ServerState { handler, offer });
    let (graceful, connections) = (GracefulShutdown::new(), Connections::new());
    let (mut running, mut number) = (KeyedTasks::default(), 0_u64);
    let mut warned = None;
    loop {
        let (stream, open_connection) = tokio::select! {
            accepted = listener.accept(), if running.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, from)) => (stream, connections.open(from.ip())),
                // The client has already disconnected, or the process has no file descriptors left: then some
                // connections are closed.
                Err(error) => {
                    if warned.is_none_or(|at: Instant| at.elapsed() > WARN_EVERY) {
                        tracing::warn!(%error, "cannot accept a connection");
                        warned = Some(Instant::now());
                    }
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        (0..SHED).for_each(|_| connections.evict_one());
                    }
                    tokio::time::sleep(SHED_PAUSE).await;
                    continue;
                }
            },
            () = stop.requested() => break,
            Some((_, result)) = running.next_ended() => {
                log_end(result);
                continue;
            }
        };
        number += 1;
        running.spawn(number, connection(stream, open_connection, state.clone(), graceful.watcher()));
    }
    drop(listener);
    finish(graceful, running).await;
    if tokio::time::timeout(WRITES_LIMIT, state.handler.finish()).await.is_err() {
        tracing::warn!("stopping before writes without a client have finished");
    }
    Ok(())
}

async fn finish(graceful: GracefulShutdown, mut connections: KeyedTasks<u64, io::Result<()>>) {
    let drained = async {
        graceful.shutdown().await;
        while let Some((_, result)) = connections.next_ended().await {
            log_end(result);
        }
    };
    if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
        tracing::warn!("closing connections that did not finish within {DRAIN_LIMIT:?}");
    }
}

fn log_end(result: Result<io::Result<()>, String>) {
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "connection ended"),
        Err(error) => tracing::error!(%error, "connection task panicked"),
    }
}

async fn connection<H: Handler>(
    stream: TcpStream,
    open_connection: Arc<OpenConnection>,
    state: Arc<ServerState<H>>,
    graceful: Watcher,
) -> io::Result<()> {
    tokio::select! {
        result = serve_connection(stream, &open_connection, state, graceful) => result,
        () = open_connection.evicted() => Err(refused("evicted to make room for another connection")),
    }
}

async fn serve_connection<H: Handler>(
    stream: TcpStream,
    open_connection: &Arc<OpenConnection>,
    state: Arc<ServerState<H>>,
    graceful: Watcher,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let offer = state.offer.borrow().clone();
    let mut stream = greeted(stream, &offer).await?;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BYTES_MAX));
    let certificates = stream.get_ref().1.peer_certificates();
    let (identity, expires) = (Identity::of(certificates), identity::expires(certificates));
    if let Identity::User(user) = &identity {
        open_connection.authenticated(&Tenant::User(user.name.as_str().into()));
    }
    let served = async {
        match PrefacedStream::of(stream, HANDSHAKE_LIMIT).await? {
            Some(stream) => {
                serve_protocol(stream, identity, open_connection.clone(), state.handler.clone(), graceful)
                    .await
            }
            None => Ok(()),
        }
    };
    tokio::select! {
        result = served => result,
        () = open_connection.overdue(HANDSHAKE_LIMIT) => Err(timed_out("no request within the limit")),
        () = expired(expires) => Err(refused("the client certificate has expired")),
        () = distrusted(state.offer.clone(), &offer), if expires.is_some() => {
            Err(refused("the issuer of the client certificate is no longer trusted"))
        }
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

fn timed_out(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Performs the TLS handshake. The stream is boxed, because it is large and every future that it passes through would
/// have memory for it.
async fn greeted(stream: TcpStream, offer: &Offer) -> io::Result<Box<TlsStream<TcpStream>>> {
    let greeting = TlsAcceptor::from(offer.config.clone()).accept(stream);
    let greeted = tokio::time::timeout(HANDSHAKE_LIMIT, greeting).await;
    greeted.map_err(|_| timed_out("no TLS handshake within the limit"))?.map(Box::new)
}

async fn expired(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}

/// Returns when the trusted client authorities have changed. Clients then reconnect and authenticate again.
async fn distrusted(mut offer: watch::Receiver<Offer>, begun: &Offer) {
    if offer.wait_for(|now| now.trust != begun.trust).await.is_err() {
        std::future::pending().await
    }
}

/// Serves a connection with HTTP/1 or HTTP/2.
async fn serve_protocol(
    stream: PrefacedStream<Box<TlsStream<TcpStream>>>,
    identity: Identity,
    open_connection: Arc<OpenConnection>,
    handler: Arc<impl Handler>,
    graceful: Watcher,
) -> io::Result<()> {
    let sequel = Sequel::default();
    let shared_sequel = sequel.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (handler, identity, answering) = (handler.clone(), identity.clone(), open_connection.answer());
        let sequel = shared_sequel.clone();
        request.extensions_mut().insert(open_connection.clone());
        async move {
            // Boxed, so that its state is freed when the response begins: a watch lasts for hours after that.
            let response = Box::pin(handler.handle(identity, request)).await;
            Ok::<_, Infallible>(sequel.keep(response, answering))
        }
    });
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = if stream.is_http2() { builder.http2_only() } else { builder.http1_only() };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_LIMIT)
        // The request line may be as long as the headers.
        .max_buf_size(2 * HEADER_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(FAULTS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(30));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    graceful.watch(connection).await.map_err(io::Error::other)?;
    sequel.run().await
}
