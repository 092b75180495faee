//! A proxy as in company networks: a client requests a connection with CONNECT, and the proxy then copies bytes that it
//! cannot read. If the proxy itself uses TLS, the CONNECT request is encrypted too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::tls_terminator::Authority;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    scheme: &'static str,
    traffic: TrafficByPort,
    _accepting: JoinSet<()>,
}

/// The traffic to a server, by its port.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Traffic {
    /// The number of open connections.
    pub(crate) connections: usize,
    /// The number of bytes received from the server.
    pub(crate) bytes: u64,
}

#[derive(Clone, Default)]
struct TrafficByPort(Arc<Mutex<BTreeMap<u16, Traffic>>>);

impl TrafficByPort {
    fn record(&self, port: u16, change: impl FnOnce(&mut Traffic)) {
        change(self.0.lock().unwrap().entry(port).or_default());
    }
}

impl Proxy {
    pub(crate) async fn start() -> Result<Proxy> {
        Proxy::start_with_scheme("http", None).await
    }

    /// Starts a proxy that uses TLS with a certificate of this authority.
    pub(crate) async fn start_with(authority: &Authority) -> Result<Proxy> {
        Proxy::start_with_scheme("https", Some(authority.acceptor()?)).await
    }

    async fn start_with_scheme(scheme: &'static str, tls: Option<TlsAcceptor>) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, traffic) = (listener.local_addr()?.port(), TrafficByPort::default());
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, traffic.clone()));
        Ok(Proxy { port, scheme, traffic, _accepting: accepting })
    }

    pub(crate) fn url(&self, host: &str) -> String {
        format!("{}://{host}:{}", self.scheme, self.port)
    }

    /// Returns the traffic to a port.
    pub(crate) fn to(&self, port: u16) -> Traffic {
        self.traffic.0.lock().unwrap().get(&port).copied().unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, traffic: TrafficByPort) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (tls, traffic) = (tls.clone(), traffic.clone());
        connections.spawn(async move {
            let served = async {
                match tls {
                    Some(tls) => serve(tls.accept(client).await?, &traffic).await,
                    None => serve(client, &traffic).await,
                }
            };
            if let Err(error) = served.await {
                println!("the proxy: {error:#}");
            }
        });
    }
}

async fn serve(client: impl AsyncRead + AsyncWrite + Unpin, traffic: &TrafficByPort) -> Result<()> {
    let mut client = BufReader::new(client);
    let mut request = String::new();
    client.read_line(&mut request).await?;
    let target = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let target = target.with_context(|| format!("not a CONNECT request: {request:?}"))?.to_owned();
    while request.trim_end() != "" {
        request.clear();
        ensure!(client.read_line(&mut request).await? > 0, "the connection ended within the request head");
    }
    let port: u16 = target.rsplit(':').next().unwrap_or_default().parse()?;
    let mut server = TcpStream::connect(&target).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    traffic.record(port, |traffic| traffic.connections += 1);
    let (from_server, to_server) = server.split();
    let (from_client, to_client) = tokio::io::split(client);
    // When one direction ends, both do.
    let _ = tokio::select! {
        result = pump(from_client, to_server, |_| {}) => result,
        result = pump(from_server, to_client, |read| traffic.record(port, |traffic| traffic.bytes += read)) => result,
    };
    traffic.record(port, |traffic| traffic.connections -= 1);
    Ok(())
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    record: impl Fn(u64),
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            read => {
                record(read as u64);
                to.write_all(&buffer[..read]).await?;
            }
        }
    }
}
