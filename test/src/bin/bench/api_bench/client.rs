//! A client of plain Kubernetes REST in JSON over HTTP/2 and TLS, which checks the responses.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::target::BenchTarget;

/// Clients that share a connection, as the informers of one program do.
const STREAMS_PER_CONNECTION: usize = 8;
/// How much a server may send before the client reads it: a large page on every stream, so that it never waits for a
/// window update.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;

/// One connection, shared by its clones.
#[derive(Clone, Debug)]
pub(crate) struct BenchConnection {
    sender: http2::SendRequest<Full<Bytes>>,
    /// `https://127.0.0.1:6443/clusters/root`
    base: String,
    token: Option<Arc<str>>,
}

impl BenchConnection {
    pub(crate) async fn open(target: &BenchTarget) -> Result<BenchConnection> {
        let stream = TcpStream::connect(&target.address).await?;
        stream.set_nodelay(true)?;
        let (host, _) = target.address.rsplit_once(':').context("the address has no port")?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(target.tls.clone()).connect(name, stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await?;
        // This task ends when the last clone is dropped.
        tokio::spawn(connection);
        let base = format!("https://{}{}", target.address, target.prefix);
        Ok(BenchConnection { sender, base, token: target.token.clone() })
    }

    /// Returns a connection for each of so many clients; several clients share one.
    pub(crate) async fn open_for(target: &BenchTarget, clients: usize) -> Result<Vec<BenchConnection>> {
        let mut connections: Vec<BenchConnection> = Vec::with_capacity(clients);
        for client in 0..clients {
            connections.push(match client % STREAMS_PER_CONNECTION {
                0 => BenchConnection::open(target).await?,
                _ => connections[client - 1].clone(),
            });
        }
        Ok(connections)
    }

    /// Sends a request and returns the response once its head has arrived. Any status but success is an error.
    pub(crate) async fn send_request(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        // The benchmark sends no patch but apply.
        let media = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = request.header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, media);
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request.body(Full::new(body))?).await?;
        let code = response.status();
        if !code.is_success() {
            let error_body = response.into_body().collect().await?.to_bytes();
            bail!("{path}: {code}: {}", String::from_utf8_lossy(&error_body));
        }
        Ok(response)
    }

    /// Sends a request and returns the whole response body.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        Ok(self.send_request(method, path, body).await?.into_body().collect().await?.to_bytes())
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Bytes> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn create_namespace(&mut self, name: &str) -> Result<()> {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        self.send(Method::POST, "/api/v1/namespaces", body.to_string().into()).await?;
        Ok(())
    }
}

/// The part of an object that is checked in every response; skipping the rest costs the client little.
#[derive(Deserialize, Debug)]
pub(crate) struct ResponseHead<'a> {
    kind: &'a str,
    #[serde(borrow)]
    pub(crate) metadata: HeadMetadata<'a>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct HeadMetadata<'a> {
    #[serde(default)]
    name: &'a str,
    #[serde(rename = "resourceVersion")]
    pub(crate) version: &'a str,
}

impl<'a> ResponseHead<'a> {
    /// Parses a response, which must have this kind and this name; the name of a list is empty.
    pub(crate) fn of(response: &'a [u8], kind: &str, name: &str) -> Result<ResponseHead<'a>> {
        let head: ResponseHead = serde_json::from_slice(response).context("the response is not an object")?;
        let kind_and_name = (head.kind, head.metadata.name);
        ensure!(kind_and_name == (kind, name), "{kind_and_name:?} instead of {kind} {name}");
        Ok(head)
    }
}
