//! Real etcd members for tests, and a proxy that injects network faults.
//!
//! The programs come from `hack/peers`.

mod proxy;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

pub(crate) use proxy::Proxy;

/// Generous: the machine may be building something else meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd of one or more members. Killed when dropped.
pub(crate) struct Etcd(testkit::peers::Etcd);

impl Deref for Etcd {
    type Target = testkit::peers::Etcd;

    fn deref(&self) -> &testkit::peers::Etcd {
        &self.0
    }
}

impl DerefMut for Etcd {
    fn deref_mut(&mut self) -> &mut testkit::peers::Etcd {
        &mut self.0
    }
}

impl Etcd {
    /// Starts etcd from the peer `name`. Panics if that is not installed.
    pub(crate) async fn start(name: &str, members: usize) -> Self {
        Self::start_with(name, members, "http", &[]).await
    }

    /// The same with additional flags; `scheme` may be `https` for clients.
    pub(crate) async fn start_with(name: &str, members: usize, scheme: &'static str, flags: &[&str]) -> Self {
        let program = testkit::peers::program(name);
        Etcd(testkit::peers::Etcd::start_with(program, members, scheme, flags, &std::env::temp_dir()))
    }

    /// Returns the index of the leader.
    pub(crate) async fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            for index in 0..self.endpoints().len() {
                let ready = async {
                    let status = self.client(index).await?.status().await?;
                    let header = status.header().map_or(0, etcd_client::ResponseHeader::member_id);
                    Ok::<_, etcd_client::Error>(status.leader() == header && header != 0)
                };
                if let Ok(Ok(true)) = tokio::time::timeout(Duration::from_secs(1), ready).await {
                    return index;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("no member leads");
    }

    /// Returns a plain client of one member.
    pub(crate) async fn client(&self, index: usize) -> Result<etcd_client::Client, etcd_client::Error> {
        let options = etcd_client::ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(1))
            .with_timeout(Duration::from_secs(5));
        etcd_client::Client::connect([self.endpoint(index)], Some(options)).await
    }

    /// Returns a metric of the first member, by the beginning of its line.
    pub(crate) async fn metric(&self, line: &str) -> f64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(0))).await.expect("etcd listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("etcd reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("etcd answers");
        // etcd omits counters that are zero.
        let Some(found) = text.lines().find(|found| found.starts_with(line)) else { return 0.0 };
        found.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    }
}
