//! The way to a physical cluster that nobody reaches from outside: dialled from inside, asked from outside.
//!
//! ```text
//!   here ── GET …/physicalclusters/<name>/tunnel, Upgrade ─► Holon        one connection, ours
//!        ◄─ HTTP/2: logs of this pod, that command there … ─               each a stream of its own
//!        ─► the physical cluster's API
//! ```
//!
//! The connection is opened as every other one to the mailbox is, so load balancers and proxies that let those through let
//! it through. HTTP/2 keeps streams apart: who does not read holds up nobody else. Whatever breaks it, it is dialled again.
//!
//! What is asked is asked of the physical cluster as the syncer, and only what [`api::tunnel`] says may be: a tunnel is no
//! way to objects.

mod errand;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::fleet::PhysicalCluster;
use api::names::{GROUP, VERSION};
use api::tunnel::{PART, PROTOCOL, STREAMS_MAX};
use controller::tasks::Stop;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use errand::Errands;

/// Between tries, at first and at most.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A tunnel that stood for so long was a good one: the next is tried at once.
const STEADY: Duration = Duration::from_secs(60);
/// Until the other end answers.
const DIAL_LIMIT: Duration = Duration::from_secs(20);
/// Less than what load balancers give a connection on which nothing happens, commonly a minute.
const PING_EVERY: Duration = Duration::from_secs(20);
/// What one stream may have under way without having been read: as much as flows in a twentieth of a second at 5 MB/s.
const STREAM_BYTES: u32 = 256 << 10;
/// All of them together, so that those nobody reads from leave room for the others.
const TUNNEL_BYTES: u32 = STREAM_BYTES * STREAMS_MAX;
/// Of what a server says that does not want us.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the server cannot be reached: {0}")]
    Dial(#[from] kube::Error),
    #[error("no answer within {DIAL_LIMIT:?}")]
    Silent,
    #[error("the server does not want it: {0}")]
    Refused(String),
    #[error("it broke: {0}")]
    Broke(#[from] hyper::Error),
    #[error("the server closed it")]
    Closed,
}

/// Keeps a tunnel open.
pub struct Tunnel {
    mailbox: Client,
    path: String,
    errands: Arc<Errands>,
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tunnel {
    /// `mailbox` leads to the mailbox of the physical cluster of this name, `below` to the physical cluster.
    pub fn new(mailbox: Client, below: Client, name: &str) -> Tunnel {
        let plural = PhysicalCluster::RESOURCE.plural;
        let path = format!("/apis/{GROUP}/{VERSION}/{plural}/{name}/{PART}");
        Tunnel { mailbox, path, errands: Arc::new(Errands::new(below)) }
    }

    /// Runs until told to stop.
    pub async fn run(self, mut stop: Stop) -> Result<(), Infallible> {
        let mut wait = WAIT_MIN;
        loop {
            let begun = Instant::now();
            let broken = tokio::select! {
                broken = self.hold() => broken,
                () = stop.requested() => return Ok(()),
            };
            if begun.elapsed() > STEADY {
                wait = WAIT_MIN;
            }
            tracing::info!(error = %broken, "there is no tunnel; dialling again");
            // Not all at once, when the server was away for everybody.
            let spread = wait.mul_f64(rand::random_range(0.5..1.0));
            tokio::select! {
                () = tokio::time::sleep(spread) => {}
                () = stop.requested() => return Ok(()),
            }
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Dials, and answers what is asked for as long as that goes well.
    async fn hold(&self) -> Broken {
        let held = async {
            let connection = timeout(DIAL_LIMIT, self.dial()).await.map_err(|_| Broken::Silent)??;
            tracing::info!("the tunnel is open");
            self.serve(connection).await?;
            Err::<Infallible, Broken>(Broken::Closed)
        };
        match held.await {
            Err(broken) => broken,
            Ok(never) => match never {},
        }
    }

    async fn dial(&self) -> Result<Upgraded, Broken> {
        let request = Request::get(&self.path).header(CONNECTION, "Upgrade").header(UPGRADE, PROTOCOL);
        let request = request.body(kube::client::Body::empty()).map_err(kube::Error::HttpError)?;
        let mut answer = self.mailbox.send(request).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let status = answer.status();
            let said = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect().await;
            let said = said.map(|body| body.to_bytes()).unwrap_or_default();
            let said: Value = serde_json::from_slice(&said).unwrap_or_default();
            return Err(Broken::Refused(format!(
                "{status}: {}",
                said["message"].as_str().unwrap_or_default()
            )));
        }
        Ok(hyper::upgrade::on(&mut answer).await?)
    }

    async fn serve(&self, connection: Upgraded) -> Result<(), hyper::Error> {
        let service = service_fn(|request| {
            let errands = self.errands.clone();
            async move { Ok::<_, Infallible>(errands.answer(request).await) }
        });
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .enable_connect_protocol()
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_BYTES)
            .initial_connection_window_size(TUNNEL_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .serve_connection(connection, service)
            .await
    }
}
