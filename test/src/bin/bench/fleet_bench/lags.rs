//! The time from a write in a mailbox until a real kube-apiserver shows it, and back. Changes are sent one at a time,
//! so that none waits for another.
//!
//! The clock starts when the write is sent, so the figure includes the durable writes of both servers. It stops when a
//! watch of the other server delivers the change.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use memchr::{memchr, memmem};
use serde_json::{Value, json};
use testkit::Server;
use tokio::time::{sleep, timeout};

use super::members::{deployment, join, mailbox, map, namespace, post, until};
use crate::api_bench::client::Connection;
use crate::api_bench::target::Target;
use crate::measure::{Row, percentile_ms};

/// An event that has not arrived after this time is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two changes.
const PAUSE: Duration = Duration::from_millis(20);
/// The first changes do not count: they warm up connections, caches and branch predictors.
const FIRST: usize = 20;
const MAP: &str = "/api/v1/namespaces/shop/configmaps";
const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments";

pub(super) async fn measure(program: &Path, changes: usize) -> Result<Vec<Row>> {
    println!("{changes} changes each way with a real kube-apiserver");
    let is_installed = testkit::peers::cluster::BARE.iter().all(|name| testkit::peers::find(name).is_some());
    ensure!(is_installed, "the real one is missing: run hack/peers, or say --changes 0");
    let cluster = testkit::peers::Cluster::start_bare(&[]);
    let server = Server::start_with(program.to_owned(), &[]);
    let mut ours = Target::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
    ours.prefix.clear();
    let theirs = Target::open("kube-apiserver + etcd", &cluster.kubeconfig(), cluster.server_pids())?;
    let (mut here, mut below) = (Connection::open(&ours).await?, Connection::open(&theirs).await?);
    join(&mut here, "real", &std::fs::read_to_string(cluster.kubeconfig())?).await?;
    let mailbox = mailbox("real");
    post(&mut here, &format!("{mailbox}/api/v1/namespaces"), &namespace()).await?;
    post(&mut here, &format!("{mailbox}{MAP}"), &map("clock")).await?;
    post(&mut here, &format!("{mailbox}{WEB}"), &deployment("web", 1)).await?;
    until("both are there", async || {
        Ok(below.get(&format!("{MAP}/clock")).await.is_ok() && below.get(&format!("{WEB}/web")).await.is_ok())
    })
    .await?;

    let mut seen = Watch::open(&mut below, &format!("{MAP}?watch=true")).await?;
    let mut down = Vec::with_capacity(changes);
    for number in 0..FIRST + changes {
        let word = format!("turn-{number}.");
        let change = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "word": word } });
        let begun = Instant::now();
        apply(&mut here, &format!("{mailbox}{MAP}/clock"), &change).await?;
        seen.until(&word).await?;
        down.push(begun.elapsed());
        sleep(PAUSE).await;
    }
    let mut seen = Watch::open(&mut here, &format!("{mailbox}{WEB}?watch=true")).await?;
    let mut up = Vec::with_capacity(changes);
    for number in 0..FIRST + changes {
        let word = format!("turn-{number}.");
        let condition = json!({ "type": "Turning", "status": "True", "message": word });
        let change =
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "status": { "conditions": [condition] } });
        let begun = Instant::now();
        apply(&mut below, &format!("{WEB}/web/status"), &change).await?;
        seen.until(&word).await?;
        up.push(begun.elapsed());
        sleep(PAUSE).await;
    }
    Ok([
        ("a write in the mailbox, until kube-apiserver shows it", down),
        ("a status at kube-apiserver, until the mailbox shows it", up),
    ]
    .into_iter()
    .flat_map(|(what, mut took)| {
        let took = &mut took[FIRST..];
        [0.5, 0.99].map(|share| {
            let goal = (share > 0.9).then_some("≤ 100 ms");
            Row::alone(format!("{what}: p{}", share * 100.0), "ms", percentile_ms(took, share), goal)
        })
    })
    .collect())
}

async fn apply(connection: &mut Connection, path: &str, change: &Value) -> Result<()> {
    let path = format!("{path}?fieldManager=bench&force=true");
    connection.send(Method::PATCH, &path, change.to_string().into()).await.map(drop)
}

/// A watch of a collection.
struct Watch {
    stream: Incoming,
    unread: Vec<u8>,
}

impl Watch {
    async fn open(connection: &mut Connection, path: &str) -> Result<Watch> {
        let stream = connection.ask(Method::GET, path, Bytes::new()).await?.into_body();
        Ok(Watch { stream, unread: Vec::new() })
    }

    /// Reads events up to the one that contains this word.
    async fn until(&mut self, word: &str) -> Result<()> {
        loop {
            while let Some(length) = memchr(b'\n', &self.unread) {
                let line: Vec<u8> = self.unread.drain(..=length).collect();
                if memmem::find(&line, word.as_bytes()).is_some() {
                    return Ok(());
                }
            }
            let frame = timeout(PATIENCE, self.stream.frame()).await;
            let frame = frame.with_context(|| format!("{word} was never seen"))?;
            if let Ok(piece) = frame.context("the watch ended")??.into_data() {
                self.unread.extend_from_slice(&piece);
            }
        }
    }
}
