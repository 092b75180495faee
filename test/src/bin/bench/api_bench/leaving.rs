//! How long a large deletion takes, and whether the memory comes back: one logical cluster with many objects, then many
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

use super::client::Connection;
use super::target::Target;

const CLUSTERS: &str = "/apis/holon.dev/v1alpha1/logicalclusters";
/// Requests in flight at once: enough for the store to commit many of them in one batch.
const CLIENTS: usize = 64;
/// The history keeps deleted objects in memory; the shorter it is, the sooner memory can come back.
const HISTORY_SECONDS: &str = "--history-seconds=5";
/// When memory is measured, in seconds after the last object is deleted.
const LOOKS: [u64; 3] = [15, 30, 60];

/// How much to make and delete.
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
            let what = format!("a logical cluster with {} objects", self.objects);
            let server = Subject::start(&program).await?;
            // Twice: what the first deletion leaves behind shows in the second.
            rows.push(server.logical_cluster(what.clone(), self.objects).await?);
            rows.push(server.logical_cluster(format!("{what}, again"), self.objects).await?);
        }
        if self.namespaces > 0 {
            let what = format!("{} namespaces with an object each", self.namespaces);
            rows.push(Subject::start(&program).await?.namespaces(what, self.namespaces).await?);
        }
        let looks = LOOKS.map(|seconds| format!("{seconds} s later"));
        println!("\n| MB resident | before | made | gone | {} | gone after |", looks.join(" | "));
        println!("|---|{}", "---:|".repeat(LOOKS.len() + 4));
        rows.iter().for_each(|row| println!("{row}"));
        Ok(())
    }
}

struct Subject {
    target: Target,
    connections: Vec<Connection>,
    _server: Server,
}

impl Subject {
    async fn start(program: &Path) -> Result<Subject> {
        let server = Server::start_with(program.to_owned(), &[HISTORY_SECONDS]);
        let mut target = Target::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
        // Paths without `/clusters/` mean the root logical cluster.
        target.prefix.clear();
        let connections = Connection::open_for(&target, CLIENTS).await?;
        Ok(Subject { target, connections, _server: server })
    }

    async fn logical_cluster(&self, what: String, objects: usize) -> Result<String> {
        println!("{what}");
        let before = self.megabytes()?;
        let mut observer = self.connections[0].clone();
        let cluster = json!({ "metadata": { "name": "big" } });
        observer.send(Method::POST, CLUSTERS, cluster.to_string().into()).await?;
        self.each(objects, |nth| {
            let map =
                json!({ "metadata": { "name": format!("map-{nth}") }, "data": { "x": "y".repeat(500) } });
            let maps = "/clusters/root:big/api/v1/namespaces/default/configmaps".to_owned();
            vec![(Method::POST, maps, map.to_string().into())]
        })
        .await?;
        let (made, begun) = (self.megabytes()?, Instant::now());
        let path = format!("{CLUSTERS}/big");
        observer.send(Method::DELETE, &path, Bytes::new()).await?;
        loop {
            let list: Value = serde_json::from_slice(&observer.get(CLUSTERS).await?)?;
            let Some(found) = list["items"].as_array().and_then(|items| items.first()) else { break };
            let told = found.pointer("/status/conditions/0/message").and_then(Value::as_str);
            self.say(told.unwrap_or("marked"), begun)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.look(what, [before, made], begun).await
    }

    async fn namespaces(&self, what: String, namespaces: usize) -> Result<String> {
        println!("{what}");
        let before = self.megabytes()?;
        self.each(namespaces, |nth| {
            let name = |name: String| json!({ "metadata": { "name": name } }).to_string().into();
            let maps = format!("/api/v1/namespaces/space-{nth}/configmaps");
            vec![
                (Method::POST, "/api/v1/namespaces".to_owned(), name(format!("space-{nth}"))),
                (Method::POST, maps, name("map".to_owned())),
            ]
        })
        .await?;
        let (made, begun) = (self.megabytes()?, Instant::now());
        self.each(namespaces, |nth| {
            vec![(Method::DELETE, format!("/api/v1/namespaces/space-{nth}"), Bytes::new())]
        })
        .await?;
        self.say("all marked", begun)?;
        let mut observer = self.connections[0].clone();
        loop {
            let page: Value = serde_json::from_slice(&observer.get("/api/v1/namespaces?limit=1").await?)?;
            let more = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or(0);
            // Four namespaces exist from the beginning; one of them is on the page.
            match more.saturating_sub(3) {
                0 => break,
                left => self.say(&format!("{left} left"), begun)?,
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.look(what, [before, made], begun).await
    }

    /// Sends the requests of each number in order, from all clients.
    async fn each(
        &self,
        count: usize,
        requests: impl Fn(usize) -> Vec<(Method, String, Bytes)> + Send + Sync + 'static,
    ) -> Result<()> {
        let (requests, begun, mut tasks) = (Arc::new(requests), Instant::now(), JoinSet::new());
        for (client, mut connection) in self.connections.iter().cloned().enumerate() {
            let requests = requests.clone();
            tasks.spawn(async move {
                for nth in (client..count).step_by(CLIENTS) {
                    for (method, path, body) in requests(nth) {
                        connection.send(method, &path, body).await?;
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        self.say(&format!("{count} done"), begun)
    }

    async fn look(&self, what: String, before: [u64; 2], begun: Instant) -> Result<String> {
        let (took, gone) = (begun.elapsed(), self.megabytes()?);
        ensure!(gone > 0, "the server is gone as well");
        let mut figures: Vec<_> = before.into_iter().chain([gone]).collect();
        let begun = Instant::now();
        for seconds in LOOKS {
            tokio::time::sleep(Duration::from_secs(seconds).saturating_sub(begun.elapsed())).await;
            self.say("gone", begun)?;
            figures.push(self.megabytes()?);
        }
        let figures: Vec<_> = figures.iter().map(u64::to_string).collect();
        Ok(format!("| {what} | {} | {:.1} s |", figures.join(" | "), took.as_secs_f64()))
    }

    fn say(&self, what: &str, since: Instant) -> Result<()> {
        println!("  {:5.1} s: {what}, {} MB", since.elapsed().as_secs_f64(), self.megabytes()?);
        Ok(())
    }

    fn megabytes(&self) -> Result<u64> {
        Ok(self.target.rss_bytes()? / 1_000_000)
    }
}
