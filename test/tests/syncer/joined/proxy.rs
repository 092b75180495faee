//! A proxy as in company networks: a client requests a connection with CONNECT, and the proxy then copies bytes that it
//! cannot read. If the proxy itself uses TLS, the CONNECT request is encrypted too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::front::Authority;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    scheme: &'static str,
    carried: Carried,
    _carrying: JoinSet<()>,
}

/// The traffic to a server, by its port.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Traffic {
    /// The number of open connections.
    pub(crate) open: usize,
    /// The number of bytes received from the server.
    pub(crate) bytes: u64,
}

#[derive(Clone, Default)]
struct Carried(Arc<Mutex<BTreeMap<u16, Traffic>>>);

impl Carried {
    fn note(&self, port: u16, change: impl FnOnce(&mut Traffic)) {
        change(self.0.lock().unwrap().entry(port).or_default());
    }
}

impl Proxy {
    pub(crate) async fn start() -> Result<Proxy> {
        Proxy::speaking("http", None).await
    }

    /// Starts a proxy that uses TLS with a certificate of this authority.
    pub(crate) async fn start_with(authority: &Authority) -> Result<Proxy> {
        Proxy::speaking("https", Some(authority.acceptor()?)).await
    }

    async fn speaking(scheme: &'static str, tls: Option<TlsAcceptor>) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, carried) = (listener.local_addr()?.port(), Carried::default());
        let mut carrying = JoinSet::new();
        carrying.spawn(accept(listener, tls, carried.clone()));
        Ok(Proxy { port, scheme, carried, _carrying: carrying })
    }

    pub(crate) fn url(&self, host: &str) -> String {
        format!("{}://{host}:{}", self.scheme, self.port)
    }

    /// Returns the traffic to a port.
    pub(crate) fn to(&self, port: u16) -> Traffic {
        self.carried.0.lock().unwrap().get(&port).copied().unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, carried: Carried) {
    let mut open = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (tls, carried) = (tls.clone(), carried.clone());
        open.spawn(async move {
            let served = async {
                match tls {
                    Some(tls) => serve(tls.accept(client).await?, &carried).await,
                    None => serve(client, &carried).await,
                }
            };
            if let Err(error) = served.await {
                println!("the proxy: {error:#}");
            }
        });
    }
}

async fn serve(client: impl AsyncRead + AsyncWrite + Unpin, carried: &Carried) -> Result<()> {
    let mut client = BufReader::new(client);
    let mut asked = String::new();
    client.read_line(&mut asked).await?;
    let target = asked.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let target = target.with_context(|| format!("asked for {asked:?}"))?.to_owned();
    while asked.trim_end() != "" {
        asked.clear();
        ensure!(client.read_line(&mut asked).await? > 0, "it ended before it said all");
    }
    let port: u16 = target.rsplit(':').next().unwrap_or_default().parse()?;
    let mut server = TcpStream::connect(&target).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    carried.note(port, |traffic| traffic.open += 1);
    let (from_server, to_server) = server.split();
    let (from_client, to_client) = tokio::io::split(client);
    // When one direction ends, both do.
    let _ = tokio::select! {
        ended = pump(from_client, to_server, |_| {}) => ended,
        ended = pump(from_server, to_client, |read| carried.note(port, |traffic| traffic.bytes += read)) => ended,
    };
    carried.note(port, |traffic| traffic.open -= 1);
    Ok(())
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    note: impl Fn(u64),
) -> std::io::Result<()> {
    let mut piece = vec![0; 16 << 10];
    loop {
        match from.read(&mut piece).await? {
            0 => return Ok(()),
            read => {
                note(read as u64);
                to.write_all(&piece[..read]).await?;
            }
        }
    }
}
