//! A client of which either all requests share connections, or each opens its own.
//!
//! ```text
//!   watch pods      ─┬─► HTTP/2 ─► one TCP connection, one TLS session ─► API server
//!   watch services  ─┘
//!   apply web       ───► HTTP/2 ─► another                             ─►
//!                          pings: a connection without answers is closed
//! ```
//!
//! A syncer watches many kinds, and each watch is a request that does not end. Over HTTP/1 each would need its own
//! connection, which servers and firewalls limit. A server without HTTP/2 gets HTTP/1. A proxy on the way carries each
//! connection through a CONNECT tunnel. [`pool`](super::pool) decides which requests share a connection.
//!
//! Requests that share a connection also share its failure, which can go unnoticed after the peer has disappeared. So
//! the client pings its connections.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::rt::{Read, Write};
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tower::util::option_layer;
use tower::{BoxError, Service, ServiceExt, service_fn};

use super::pool::ConnectionPool;
use super::proxy::authorization;

/// Two unanswered pings take a little longer than a call waits for its response.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// How requests use connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionUse {
    /// Calls share one connection, watches share others. None can be upgraded.
    Shared,
    /// Each request has its own connection, which can be upgraded.
    Exclusive,
}

pub(super) fn client(config: &Config, connections: ConnectionUse) -> Result<Client> {
    let Some(proxy) = config.proxy_url.clone() else { return client_over(config, tcp(config), connections) };
    // Inside the tunnel the connection is the same as without a proxy.
    match proxy.scheme_str() {
        Some("http") => client_over(config, tunnel(proxy, tcp(config)), connections),
        // The proxy itself speaks HTTP/1.
        Some("https") => {
            let tls = HttpsConnectorBuilder::new().with_tls_config(tls_with_proxy(config)).https_only();
            client_over(config, tunnel(proxy, tls.enable_http1().wrap_connector(tcp(config))), connections)
        }
        // The URL may contain a password, so only its scheme is printed.
        other => bail!("a proxy is http://… or https://…, not {}://…", other.unwrap_or_default()),
    }
}

/// Returns the TLS configuration for a proxy, which is a server of its own. It trusts the system's certificate
/// authorities and that of the API server, because a company may have one for all. It does not send the client
/// certificate to the proxy.
fn tls_with_proxy(config: &Config) -> ClientConfig {
    let mut trusted = RootCertStore::empty();
    // The system's authorities, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let server_authorities = config.root_cert.iter().flatten().map(|der| CertificateDer::from(der.clone()));
    trusted.add_parsable_certificates(server_authorities);
    ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth()
}

fn tcp(config: &Config) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    tcp
}

fn tunnel<C>(proxy: Uri, to_proxy: C) -> Tunnel<C> {
    let authorization = authorization(&proxy);
    let tunnel = Tunnel::new(proxy, to_proxy);
    match authorization {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    }
}

fn tls(config: &Config) -> Result<HttpsConnectorBuilder<WantsProtocols1>> {
    let tls = config.rustls_client_config()?;
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http())
}

/// Returns a client over this connector.
fn client_over<C>(config: &Config, connector: C, connections: ConnectionUse) -> Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let tls = tls(config)?;
    let tls = match &config.tls_server_name {
        Some(name) => {
            let name = name.clone().try_into().context("tls-server-name is not a valid name")?;
            tls.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => tls,
    };
    let connector = match connections {
        ConnectionUse::Shared => tls.enable_all_versions().wrap_connector(connector),
        ConnectionUse::Exclusive => tls.enable_http1().wrap_connector(connector),
    };
    let make = move || -> legacy::Client<_, Body> {
        legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_ANSWERED_WITHIN)
            .http2_keep_alive_while_idle(true)
            .build(connector.clone())
    };
    match connections {
        ConnectionUse::Exclusive => with_middleware(config, make().map_err(BoxError::from)),
        ConnectionUse::Shared => {
            let pool = Arc::new(ConnectionPool::new(make));
            let http = service_fn(move |request: Request<Body>| {
                let connection = pool.pick(&request);
                async move {
                    let response =
                        connection.send(connection.client.request(request)).await.map_err(BoxError::from)?;
                    // The request counts for its connection until its response ends or is dropped.
                    Ok::<_, BoxError>(response.map(|body| {
                        body.map_err(move |error| {
                            connection.mark_broken();
                            error
                        })
                    }))
                }
            });
            with_middleware(config, http)
        }
    }
}

/// Adds to each request the base URL, the credentials and the headers of the configuration.
fn with_middleware<S, B>(config: &Config, http: S) -> Result<Client>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let client = ClientBuilder::new(http, config.default_namespace.clone())
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .build();
    Ok(client)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use apiserver::http::pki::Authority;
    use controller::remote::Remote;
    use futures::AsyncReadExt;
    use futures::future::join_all;
    use http_body_util::StreamBody;
    use http_body_util::combinators::UnsyncBoxBody;
    use hyper::body::Frame;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// The limit of kube-apiserver for one connection.
    const STREAMS: u32 = 100;

    /// A server that answers every request with success, and never ends a watch.
    async fn serve(listener: TcpListener, acceptor: TlsAcceptor, connections: Arc<AtomicUsize>) {
        let mut open = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, connections) = (acceptor.clone(), connections.clone());
            open.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let first = futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("{}")))]);
                    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch"));
                    let rest = futures::stream::pending();
                    let body: UnsyncBoxBody<Bytes, Infallible> = match is_watch {
                        true => StreamBody::new(futures::StreamExt::chain(first, rest)).boxed_unsync(),
                        false => StreamBody::new(first).boxed_unsync(),
                    };
                    Ok::<_, Infallible>(Response::new(body))
                });
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.max_concurrent_streams(STREAMS);
                connections.fetch_add(1, Ordering::Relaxed);
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    fn acceptor(authority: &Authority) -> TlsAcceptor {
        let identity = authority.serving(&["127.0.0.1".to_owned()]).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// With six kinds in seventeen namespaces, each watched separately, every call waited for a watch to end.
    #[tokio::test]
    async fn calls_do_not_wait_behind_any_number_of_watches() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, acceptor(&authority), connections.clone()));
        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        let trusted = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap();
        config.root_cert = Some(vec![trusted.to_vec()]);

        let client = client(&config, ConnectionUse::Shared).unwrap();
        let watches = join_all((0..STREAMS + 2).map(|_| async {
            let request = Request::get("/api/v1/pods?watch=true").body(Vec::new()).unwrap();
            let mut stream = Box::pin(client.request_stream(request).await.unwrap());
            stream.read_exact(&mut [0; 2]).await.unwrap();
            stream
        }));
        let within = Duration::from_secs(20);
        let watches = tokio::time::timeout(within, watches).await.expect("all watches are begun");
        let read = tokio::time::timeout(within, Remote::new(client.clone()).read("/version")).await;
        read.expect("a call does not wait").unwrap();
        // One for calls, and three for watches, although all watches began at once.
        assert_eq!(connections.load(Ordering::Relaxed), 4);
        drop(watches);
    }
}
