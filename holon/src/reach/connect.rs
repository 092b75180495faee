//! A client whose requests share one connection, or have one each.
//!
//! ```text
//!   watch pods      ─┐
//!   watch services  ─┼─► HTTP/2 ─► one TCP connection, one TLS session ─► API server
//!   apply web       ─┘    pinged: whoever does not answer is hung up on
//! ```
//!
//! A syncer follows many kinds, and each is a request that does not end. Over HTTP/1 each would take a connection of its
//! own, of which servers and firewalls allow so many. Where a server speaks no HTTP/2, it is HTTP/1 all the same. A proxy
//! between us and the server is asked to connect once, and carries that one connection.
//!
//! One connection for all is also one for all to wait on, if the other end is gone and nobody says so. So it is pinged.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::Uri;
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
use tower::{BoxError, Service, ServiceExt};

use super::proxy::authorization;

/// Two pings that are not answered take as long as a call waits for its answer, and a little more.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// How calls share connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Calls {
    /// All of them one. None can become another protocol.
    Together,
    /// Each has one to itself for as long as it takes.
    Apart,
}

pub(super) fn client(config: &Config, calls: Calls) -> Result<Client> {
    let Some(proxy) = config.proxy_url.clone() else { return over(config, tcp(config), calls) };
    // Beyond the proxy it is the same as without one.
    match proxy.scheme_str() {
        Some("http") => over(config, tunnel(proxy, tcp(config)), calls),
        // What is spoken with a proxy itself is HTTP/1.
        Some("https") => {
            let tls = HttpsConnectorBuilder::new().with_tls_config(tls_with_proxy(config)).https_only();
            over(config, tunnel(proxy, tls.enable_http1().wrap_connector(tcp(config))), calls)
        }
        // Without what may be a password in it.
        other => bail!("a proxy is http://… or https://…, not {}://…", other.unwrap_or_default()),
    }
}

/// A proxy is somebody else than the server beyond it. Who it is says one of those whom everybody here trusts, or, where a
/// company has one authority for all, the authority of the server. It is not shown who we are to the server.
fn tls_with_proxy(config: &Config) -> ClientConfig {
    let mut trusted = RootCertStore::empty();
    // Of the machine, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let of_server = config.root_cert.iter().flatten().map(|der| CertificateDer::from(der.clone()));
    trusted.add_parsable_certificates(of_server);
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

/// A client that reaches its server by such connections.
fn over<C>(config: &Config, connector: C, calls: Calls) -> Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let tls = tls(config)?;
    let tls = match &config.tls_server_name {
        Some(name) => {
            let name = name.clone().try_into().context("the name of the server for TLS")?;
            tls.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => tls,
    };
    let connector = match calls {
        Calls::Together => tls.enable_all_versions().wrap_connector(connector),
        Calls::Apart => tls.enable_http1().wrap_connector(connector),
    };
    let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_ANSWERED_WITHIN)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let http = http.map_err(BoxError::from);
    let client = ClientBuilder::new(http, config.default_namespace.clone())
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .build();
    Ok(client)
}
