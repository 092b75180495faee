//! How long a large deletion takes, and whether its memory is freed: one logical cluster with many objects, then many
//! namespaces with one object each, created and deleted in a server of its own that keeps little history.
//!
//! Only Holon is measured, and once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};
use testkit::Server;
use tokio::task::JoinSet;

use super::client::BenchConnection;
use super::target::BenchTarget;

const CLUSTERS: &str = "/apis/holon.dev/v1alpha1/logicalclusters";
/// Requests in flight at once: enough for the store to commit many of them in one batch.
const CLIENTS: usize = 64;
/// The history keeps deleted objects in memory; the shorter it is, the sooner memory can be freed.
const HISTORY_SECONDS: &str = "--history-seconds=5";
/// When memory is measured, in seconds after the last object is deleted.
const MEASURED_AFTER_S: [u64; 3] = [15, 30, 60];

/// How much to create and delete.
#[derive(Args)]
pub(crate) struct Leaving {
    /// Objects in the logical cluster that is deleted
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// Namespaces that are deleted
    #[arg(long, default_value_t = 10_000)]
    namespaces: usize,
    /// The server to measure [default: the binary beside this one]
    #[arg(long)]
    holon: Option<PathBuf>,
}

impl Leaving {
    pub(crate) async fn run(self) -> Result<()> {
        let program = match &self.holon {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("holon"),
        };
        let mut rows = Vec::new();
        if self.objects > 0 {
            let description = format!("a logical cluster with {} objects", self.objects);
            let server = DeletionBench::start(&program).await?;
            // Twice: memory that the first deletion does not free adds up in the second.
            rows.push(server.logical_cluster(description.clone(), self.objects).await?);
            rows.push(server.logical_cluster(format!("{description}, again"), self.objects).await?);
        }
        if self.namespaces > 0 {
            let description = format!("{} namespaces with an object each", self.namespaces);
            rows.push(DeletionBench::start(&program).await?.namespaces(description, self.namespaces).await?);
        }
        let columns = MEASURED_AFTER_S.map(|seconds| format!("{seconds} s later"));
        println!("\n| MB resident | before | created | deleted | {} | deleted after |", columns.join(" | "));
        println!("|---|{}", "---:|".repeat(MEASURED_AFTER_S.len() + 4));
        rows.iter().for_each(|row| println!("{row}"));
        Ok(())
    }
}

struct DeletionBench {
    target: BenchTarget,
    connections: Vec<BenchConnection>,
    _server: Server,
}

impl DeletionBench {
    async fn start(program: &Path) -> Result<DeletionBench> {
        let server = Server::start_with(program.to_owned(), &[HISTORY_SECONDS]);
        let mut target = BenchTarget::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
        // Paths without `/clusters/` mean the root logical cluster.
        target.prefix.clear();
        let connections = BenchConnection::open_for(&target, CLIENTS).await?;
        Ok(DeletionBench { target, connections, _server: server })
    }

    async fn logical_cluster(&self, description: String, objects: usize) -> Result<String> {
        println!("{description}");
        let before = self.megabytes()?;
        let mut observer = self.connections[0].clone();
        let cluster = json!({ "metadata": { "name": "big" } });
        observer.send(Method::POST, CLUSTERS, cluster.to_string().into()).await?;
        self.send_each(objects, |number| {
            let map =
                json!({ "metadata": { "name": format!("map-{number}") }, "data": { "x": "y".repeat(500) } });
            let maps = "/clusters/root:big/api/v1/namespaces/default/configmaps".to_owned();
            vec![(Method::POST, maps, map.to_string().into())]
        })
        .await?;
        let (created, begun) = (self.megabytes()?, Instant::now());
        let path = format!("{CLUSTERS}/big");
        observer.send(Method::DELETE, &path, Bytes::new()).await?;
        loop {
            let list: Value = serde_json::from_slice(&observer.get(CLUSTERS).await?)?;
            let Some(found) = list["items"].as_array().and_then(|items| items.first()) else { break };
            let message = found.pointer("/status/conditions/0/message").and_then(Value::as_str);
            self.print_progress(message.unwrap_or("marked for deletion"), begun)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.measure_after_deletion(description, [before, created], begun).await
    }

    async fn namespaces(&self, description: String, namespaces: usize) -> Result<String> {
        println!("{description}");
        let before = self.megabytes()?;
        self.send_each(namespaces, |number| {
            let name = |name: String| json!({ "metadata": { "name": name } }).to_string().into();
            let maps = format!("/api/v1/namespaces/space-{number}/configmaps");
            vec![
                (Method::POST, "/api/v1/namespaces".to_owned(), name(format!("space-{number}"))),
                (Method::POST, maps, name("map".to_owned())),
            ]
        })
        .await?;
        let (created, begun) = (self.megabytes()?, Instant::now());
        self.send_each(namespaces, |number| {
            vec![(Method::DELETE, format!("/api/v1/namespaces/space-{number}"), Bytes::new())]
        })
        .await?;
        self.print_progress("all marked for deletion", begun)?;
        let mut observer = self.connections[0].clone();
        loop {
            let page: Value = serde_json::from_slice(&observer.get("/api/v1/namespaces?limit=1").await?)?;
            let more = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or(0);
            // Four namespaces exist from the beginning; one of them is on the page.
            match more.saturating_sub(3) {
                0 => break,
                remaining => self.print_progress(&format!("{remaining} remaining"), begun)?,
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.measure_after_deletion(description, [before, created], begun).await
    }

    /// Sends the requests of each number in order, from all clients.
    async fn send_each(
        &self,
        count: usize,
        requests: impl Fn(usize) -> Vec<(Method, String, Bytes)> + Send + Sync + 'static,
    ) -> Result<()> {
        let (requests, begun, mut tasks) = (Arc::new(requests), Instant::now(), JoinSet::new());
        for (client, mut connection) in self.connections.iter().cloned().enumerate() {
            let requests = requests.clone();
            tasks.spawn(async move {
                for number in (client..count).step_by(CLIENTS) {
                    for (method, path, body) in requests(number) {
                        connection.send(method, &path, body).await?;
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        self.print_progress(&format!("{count} done"), begun)
    }

    async fn measure_after_deletion(
        &self,
        description: String,
        before: [u64; 2],
        begun: Instant,
    ) -> Result<String> {
        let (took, deleted) = (begun.elapsed(), self.megabytes()?);
        ensure!(deleted > 0, "the server has ended");
        let mut figures: Vec<_> = before.into_iter().chain([deleted]).collect();
        let begun = Instant::now();
        for seconds in MEASURED_AFTER_S {
            tokio::time::sleep(Duration::from_secs(seconds).saturating_sub(begun.elapsed())).await;
            self.print_progress("deleted", begun)?;
            figures.push(self.megabytes()?);
        }
        let figures: Vec<_> = figures.iter().map(u64::to_string).collect();
        Ok(format!("| {description} | {} | {:.1} s |", figures.join(" | "), took.as_secs_f64()))
    }

    fn print_progress(&self, description: &str, since: Instant) -> Result<()> {
        println!("  {:5.1} s: {description}, {} MB", since.elapsed().as_secs_f64(), self.megabytes()?);
        Ok(())
    }

    fn megabytes(&self) -> Result<u64> {
        Ok(self.target.rss_bytes()? / 1_000_000)
    }
}
