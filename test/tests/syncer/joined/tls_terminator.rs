//! A TLS terminator in front of a server, like a load balancer: its certificate is signed by another authority than the
//! server's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A certificate authority that is not trusted by default.
pub(crate) struct Authority {
    authority: apiserver::http::pki::Authority,
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Result<Authority> {
        let dir = tempfile::tempdir()?;
        Ok(Authority { authority: apiserver::http::pki::Authority::open(dir.path())?, dir })
    }

    /// Returns the path of its own certificate, as PEM.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// Returns an acceptor for a server on this machine, without HTTP/2.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let identity = self.authority.serving(&["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A TLS terminator on a port of its own.
pub(crate) struct TlsTerminator {
    pub(crate) port: u16,
    _forwarding: JoinSet<()>,
}

impl TlsTerminator {
    /// Starts a terminator in front of a server with this authority, as PEM.
    pub(crate) async fn of(server: SocketAddr, theirs: &str, ours: &Authority) -> Result<TlsTerminator> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, mut forwarding) = (listener.local_addr()?.port(), JoinSet::new());
        forwarding.spawn(forward(listener, ours.acceptor()?, server, connector(theirs)?));
        Ok(TlsTerminator { port, _forwarding: forwarding })
    }
}

fn connector(authority: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn forward(listener: TcpListener, ours: TlsAcceptor, server: SocketAddr, theirs: TlsConnector) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (ours, theirs) = (ours.clone(), theirs.clone());
        connections.spawn(async move {
            let forwarded = async {
                let mut client = ours.accept(client).await?;
                let server = theirs.connect(server_name(server), TcpStream::connect(server).await?).await;
                copy_bidirectional(&mut client, &mut server?).await
            };
            if let Err(error) = forwarded.await {
                println!("the TLS terminator: {error}");
            }
        });
    }
}

fn server_name(server: SocketAddr) -> rustls::pki_types::ServerName<'static> {
    server.ip().into()
}
