//! The administrator's client of the server that uses a data directory. Each request opens a connection of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use controller::remote::Remote;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::data_dir;
use crate::kubeconfig::{self, ADMIN};

/// How long to wait for a connection: a server accepts at once, a packet filter drops the request silently.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct AdminClient {
    data_dir: PathBuf,
    /// `https://127.0.0.1:6443`
    url: String,
    tls: Arc<ClientConfig>,
}

impl AdminClient {
    /// Returns the client of the server that runs, or last ran, with a data directory.
    pub(crate) fn open(data_dir: &Path) -> Result<AdminClient> {
        let url = data_dir::address(data_dir)?;
        let authority = data_dir::authority(data_dir)?;
        let tls = authority.client_tls(&authority.client(ADMIN.0, ADMIN.1)?)?;
        Ok(AdminClient { data_dir: data_dir.to_owned(), url, tls })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the certificate authority of the server, as PEM.
    pub(crate) fn authority(&self) -> Result<String> {
        Ok(data_dir::authority(&self.data_dir)?.certificate().to_owned())
    }

    /// Returns the same administrator's client of one logical cluster, for several requests.
    pub(crate) async fn remote(&self, path: &api::cluster::Path) -> Result<Remote> {
        let authority = data_dir::authority(&self.data_dir)?;
        let admin = authority.client(ADMIN.0, ADMIN.1)?;
        let text = kubeconfig::write(&self.url, &authority, (ADMIN.0, &admin), std::slice::from_ref(path));
        Ok(Remote::new(super::client(&text).await?))
    }

    /// Sends a request and returns the object of the response. A Status other than success is an error with the
    /// server's message.
    pub(crate) async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let (code, object) = self.send(method, path, body).await?;
        match code.is_success() {
            true => Ok(object),
            false => bail!("{}", message_of(&object)),
        }
    }

    /// Merge-patches an object.
    pub(crate) async fn patch(&self, path: &str, change: &Value) -> Result<Value> {
        self.request(Method::PATCH, path, Some(change)).await
    }

    /// Returns an object, or `None` if it does not exist.
    pub(crate) async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.send(Method::GET, path, None).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (code, object) if code.is_success() => Ok(Some(object)),
            (_, object) => bail!("{}", message_of(&object)),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let (code, bytes) = self.exchange(method, path, body).await?;
        let object = serde_json::from_slice(&bytes)
            .with_context(|| format!("{} answered {code} with a body that is not JSON", self.url))?;
        Ok((code, object))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes)> {
        let (sender, connection) = self.connect().await?;
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder().method(method).uri(path).header("host", self.host());
        if body.is_some() {
            request = request.header("content-type", content_type);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body)))?;
        // The future owns the sender, so that the connection ends with it.
        let exchange = async move {
            let mut sender = sender;
            let response = sender.send_request(request).await?;
            let code = response.status();
            Ok::<_, hyper::Error>((code, response.into_body().collect().await?.to_bytes()))
        };
        let (response, _) = tokio::join!(exchange, connection);
        response.with_context(|| format!("cannot send a request to {}", self.url))
    }

    async fn connect(
        &self,
    ) -> Result<(http1::SendRequest<Full<Bytes>>, impl Future<Output = Result<(), hyper::Error>>)> {
        let connected = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(self.host())).await;
        let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let stream = connected.map_err(|error| {
            let dir = self.data_dir.display();
            anyhow!(
                "no server answers at {} ({error}); start it with `holon start --data-dir {dir}`",
                self.url
            )
        })?;
        let (name, _) = self.host().rsplit_once(':').unwrap_or((self.host(), ""));
        let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
            .with_context(|| format!("{} is not a valid address", self.url))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await.with_context(|| {
            format!("{} has no certificate of the authority in {}", self.url, self.data_dir.display())
        })?;
        Ok(http1::handshake(TokioIo::new(stream)).await?)
    }

    fn host(&self) -> &str {
        self.url.trim_start_matches("https://")
    }
}

fn message_of(status: &Value) -> &str {
    status["message"].as_str().unwrap_or("the server gives no reason")
}
