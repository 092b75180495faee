//! The time from a write in a mailbox until a watch of a real kube-apiserver delivers it, and back. Changes are sent
//! one at a time, so that none waits for another.
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
use crate::api_bench::client::BenchConnection;
use crate::api_bench::target::BenchTarget;
use crate::measure::{Measurement, percentile_ms};

/// An event that has not arrived after this time is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two changes.
const PAUSE: Duration = Duration::from_millis(20);
/// The first changes do not count: they warm up connections, caches and branch predictors.
const WARM_UP: usize = 20;
const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

pub(super) async fn measure(program: &Path, changes: usize) -> Result<Vec<Measurement>> {
    println!("{changes} changes each way with a real kube-apiserver");
    let is_installed = testkit::peers::cluster::BARE.iter().all(|name| testkit::peers::find(name).is_some());
    ensure!(is_installed, "kube-apiserver is missing: run hack/peers, or add --changes 0");
    let cluster = testkit::peers::Cluster::start_bare(&[]);
    let server = Server::start_with(program.to_owned(), &[]);
    let mut ours = BenchTarget::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
    ours.prefix.clear();
    let theirs = BenchTarget::open("kube-apiserver + etcd", &cluster.kubeconfig(), cluster.server_pids())?;
    let (mut holon, mut downstream) =
        (BenchConnection::open(&ours).await?, BenchConnection::open(&theirs).await?);
    join(&mut holon, "real", &std::fs::read_to_string(cluster.kubeconfig())?).await?;
    let mailbox = mailbox("real");
    post(&mut holon, &format!("{mailbox}/api/v1/namespaces"), &namespace()).await?;
    post(&mut holon, &format!("{mailbox}{CONFIG_MAPS}"), &map("clock")).await?;
    post(&mut holon, &format!("{mailbox}{DEPLOYMENTS}"), &deployment("web", 1)).await?;
    until("both objects exist downstream", async || {
        Ok(downstream.get(&format!("{CONFIG_MAPS}/clock")).await.is_ok()
            && downstream.get(&format!("{DEPLOYMENTS}/web")).await.is_ok())
    })
    .await?;

    let mut watch = CollectionWatch::open(&mut downstream, &format!("{CONFIG_MAPS}?watch=true")).await?;
    let mut down = Vec::with_capacity(changes);
    for number in 0..WARM_UP + changes {
        let marker = format!("change-{number}.");
        let change = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "word": marker } });
        let begun = Instant::now();
        apply(&mut holon, &format!("{mailbox}{CONFIG_MAPS}/clock"), &change).await?;
        watch.until(&marker).await?;
        down.push(begun.elapsed());
        sleep(PAUSE).await;
    }
    let mut watch = CollectionWatch::open(&mut holon, &format!("{mailbox}{DEPLOYMENTS}?watch=true")).await?;
    let mut up = Vec::with_capacity(changes);
    for number in 0..WARM_UP + changes {
        let marker = format!("change-{number}.");
        let condition = json!({ "type": "Changing", "status": "True", "message": marker });
        let change =
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "status": { "conditions": [condition] } });
        let begun = Instant::now();
        apply(&mut downstream, &format!("{DEPLOYMENTS}/web/status"), &change).await?;
        watch.until(&marker).await?;
        up.push(begun.elapsed());
        sleep(PAUSE).await;
    }
    Ok([
        ("a write in the mailbox, until kube-apiserver delivers it", down),
        ("a status at kube-apiserver, until the mailbox delivers it", up),
    ]
    .into_iter()
    .flat_map(|(what, mut took)| {
        let took = &mut took[WARM_UP..];
        [0.5, 0.99].map(|share| {
            let goal = (share > 0.9).then_some("≤ 100 ms");
            Measurement::alone(format!("{what}: p{}", share * 100.0), "ms", percentile_ms(took, share), goal)
        })
    })
    .collect())
}

async fn apply(connection: &mut BenchConnection, path: &str, change: &Value) -> Result<()> {
    let path = format!("{path}?fieldManager=bench&force=true");
    connection.send(Method::PATCH, &path, change.to_string().into()).await.map(drop)
}

/// A watch of a collection.
struct CollectionWatch {
    stream: Incoming,
    unread: Vec<u8>,
}

impl CollectionWatch {
    async fn open(connection: &mut BenchConnection, path: &str) -> Result<CollectionWatch> {
        let stream = connection.send_request(Method::GET, path, Bytes::new()).await?.into_body();
        Ok(CollectionWatch { stream, unread: Vec::new() })
    }

    /// Reads events up to the one that contains this word.
    async fn until(&mut self, marker: &str) -> Result<()> {
        loop {
            while let Some(length) = memchr(b'\n', &self.unread) {
                let line: Vec<u8> = self.unread.drain(..=length).collect();
                if memmem::find(&line, marker.as_bytes()).is_some() {
                    return Ok(());
                }
            }
            let frame = timeout(PATIENCE, self.stream.frame()).await;
            let frame = frame.with_context(|| format!("no event contains {marker}"))?;
            if let Ok(chunk) = frame.context("the watch ended")??.into_data() {
                self.unread.extend_from_slice(&chunk);
            }
        }
    }
}
