//! The cost of placement: many Deployments over two physical clusters, from cold, one at a time, and again after a
//! restart. The physical clusters are mailboxes with a heartbeat and without a syncer, so the benchmark measures the
//! splitter and the server it works through.
//!
//! Only Holon is measured, and once: no peer has a splitter.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use api::names::SYNCER_ACCOUNT;
use bytes::Bytes;
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};
use testkit::{End, Server};
use tokio::task::JoinSet;

use super::client::BenchConnection;
use super::objects;
use super::target::BenchTarget;
use crate::measure::{cpu_seconds_of, percentile_ms};

const PHYSICAL: &str = "/apis/holon.dev/v1alpha1/physicalclusters";
const CLUSTERS: [&str; 2] = ["east", "west"];
/// Requests in flight at once while Deployments are created.
const CLIENTS: usize = 32;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// How often the benchmark polls; between polls it should cause no load.
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(600);
/// The server is quiet after so long without a write.
const SETTLED: Duration = Duration::from_secs(5);

/// How much to place.
#[derive(Args)]
pub(crate) struct Splitting {
    /// Deployments
    #[arg(long, default_value_t = 5_000)]
    deployments: usize,
    /// Namespaces they are in
    #[arg(long, default_value_t = 50)]
    namespaces: usize,
    /// Deployments that are then applied one at a time
    #[arg(long, default_value_t = 200)]
    alone: usize,
    /// The server to measure [default: the binary beside this one]
    #[arg(long)]
    holon: Option<PathBuf>,
}

impl Splitting {
    pub(crate) async fn run(self) -> Result<()> {
        let program = match &self.holon {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("holon"),
        };
        let mut bench = PlacementBench::start(&program).await?;
        bench.prepare(&self).await?;
        let before = bench.megabytes()?;
        let begun = Instant::now();
        bench.start_heartbeats().await?;
        let expected = self.deployments as u64;
        bench.until(expected, begun).await?;
        let (took, placed) = (begun.elapsed(), bench.megabytes()?);
        let mut times = Vec::new();
        for nth in 0..self.alone {
            times.push(bench.place_one(&format!("alone-{nth}")).await?);
            tokio::time::sleep(PAUSE).await;
        }
        let (p50, p99) = (percentile_ms(&mut times, 0.5), percentile_ms(&mut times, 0.99));
        let (idle_cpu, idle_writes) = bench.measure_idle().await?;
        let (restarted, steady) = bench.measure_restart().await?;
        println!("\n| what | figure | target |\n|---|---:|---:|");
        let rate = self.deployments as f64 / took.as_secs_f64();
        println!(
            "| {} Deployments x 2 clusters, from cold | {:.1} s |  |",
            self.deployments,
            took.as_secs_f64()
        );
        println!("| Deployments placed a second | {rate:.0} |  |");
        println!("| mailbox objects placed a second | {:.0} | 1,000 |", rate * CLUSTERS.len() as f64);
        println!("| apply -> present in both mailboxes, p50 | {p50:.1} ms |  |");
        println!("| the same, p99 | {p99:.1} ms | 100 ms |");
        println!("| resident before and after | {before} MB, {placed} MB |  |");
        println!(
            "| idle for 30 s: CPU, writes that are no heartbeat | {idle_cpu:.2} s, {idle_writes} | 0 writes |"
        );
        println!("| restart until a new Deployment is placed | {:.1} s |  |", restarted.as_secs_f64());
        println!(
            "| restart until the last write that is no heartbeat | {:.1} s | 10 s |",
            steady.as_secs_f64()
        );
        Ok(())
    }
}

struct PlacementBench {
    target: BenchTarget,
    connection: BenchConnection,
    server: Server,
    heartbeats: JoinSet<Result<()>>,
}

fn physical(cluster: &str) -> Value {
    json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster",
        "metadata": { "name": cluster }, "spec": { "connection": { "pull": {} } },
    })
}

fn mailbox(cluster: &str) -> String {
    format!("/clusters/root:mailbox-{cluster}")
}

impl PlacementBench {
    async fn start(program: &std::path::Path) -> Result<PlacementBench> {
        let server = Server::start_with(program.to_owned(), &[]);
        let mut target = BenchTarget::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
        target.prefix.clear();
        let connection = BenchConnection::open(&target).await?;
        Ok(PlacementBench { target, connection, server, heartbeats: JoinSet::new() })
    }

    /// Registers two physical clusters without a heartbeat, and creates all objects to be placed on them.
    async fn prepare(&mut self, size: &Splitting) -> Result<()> {
        for cluster in CLUSTERS {
            self.create(PHYSICAL, &physical(cluster)).await?;
        }
        for space in 0..size.namespaces {
            let namespace = json!({ "metadata": {
                "name": format!("space-{space}"), "annotations": { "holon.dev/placement": "*" },
            } });
            self.connection.send(Method::POST, "/api/v1/namespaces", namespace.to_string().into()).await?;
        }
        let mut tasks = JoinSet::new();
        let (count, spaces) = (size.deployments, size.namespaces);
        for (client, mut connection) in
            BenchConnection::open_for(&self.target, CLIENTS).await?.into_iter().enumerate()
        {
            tasks.spawn(async move {
                for nth in (client..count).step_by(CLIENTS) {
                    let path = deployments(&format!("space-{}", nth % spaces));
                    connection.send(Method::POST, &path, objects::deployment(&format!("web-{nth}"))).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        println!("{count} Deployments are created");
        // Waits until the splitter has made the decisions that need no physical cluster.
        self.until_quiet().await
    }

    /// Waits until the server is quiet.
    async fn until_quiet(&mut self) -> Result<()> {
        let mut before = 0;
        loop {
            let now = self.revision().await?;
            if now == before {
                return Ok(());
            }
            before = now;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn revision(&mut self) -> Result<u64> {
        let page = self.connection.get("/api/v1/namespaces?limit=1").await?;
        let page: Value = serde_json::from_slice(&page)?;
        Ok(page["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?)
    }

    async fn create(&mut self, path: &str, object: &Value) -> Result<Value> {
        let created = self.connection.send(Method::POST, path, object.to_string().into()).await?;
        Ok(serde_json::from_slice(&created)?)
    }

    /// Makes both physical clusters report with the service accounts of their syncers, and keeps renewing their leases.
    async fn start_heartbeats(&mut self) -> Result<()> {
        for cluster in CLUSTERS {
            let base = mailbox(cluster);
            let account = format!("{base}/api/v1/namespaces/kube-system/serviceaccounts/{SYNCER_ACCOUNT}");
            let token = self.create(&format!("{account}/token"), &json!({ "spec": {} })).await?;
            let target = self.target.with_token(token["status"]["token"].as_str().unwrap_or_default());
            let mut syncer = BenchConnection::open(&target).await?;
            let mut object = self.create(&format!("{base}{PHYSICAL}"), &physical(cluster)).await?;
            object["status"] = json!({
                "version": "v1.36.4", "uid": cluster,
                "allocatable": { "cpu": "100000", "memory": "1000Ti", "pods": "10000000" },
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Reachable",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            });
            let path = format!("{base}{PHYSICAL}/{cluster}/status");
            syncer.send(Method::PUT, &path, object.to_string().into()).await?;
            let lease =
                json!({ "metadata": { "name": "holon-syncer" }, "spec": { "holderIdentity": "bench" } });
            let lease = self.create(&format!("{base}{LEASES}"), &lease).await?;
            let (target, base) = (self.target.clone(), base.clone());
            self.heartbeats
                .spawn(async move { renew(&target, &format!("{base}{LEASES}/holon-syncer"), lease).await });
        }
        Ok(())
    }

    /// Waits until both mailboxes have so many Deployments.
    async fn until(&mut self, expected: u64, begun: Instant) -> Result<()> {
        let mut last_print = Instant::now();
        loop {
            let mut least = u64::MAX;
            for cluster in CLUSTERS {
                let path = format!("{}/apis/apps/v1/deployments?limit=1", mailbox(cluster));
                let page: Value = serde_json::from_slice(&self.connection.get(&path).await?)?;
                let listed = page["items"].as_array().map_or(0, Vec::len) as u64;
                let more = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or(0);
                least = least.min(listed + more);
            }
            if least >= expected {
                return Ok(());
            }
            if last_print.elapsed() > Duration::from_secs(2) {
                println!(
                    "  {:5.1} s: {least} of {expected}, {} MB",
                    begun.elapsed().as_secs_f64(),
                    self.megabytes()?
                );
                last_print = Instant::now();
            }
            ensure!(begun.elapsed() < PATIENCE, "{least} of {expected} after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns how long one Deployment takes to arrive in both mailboxes.
    async fn place_one(&mut self, name: &str) -> Result<Duration> {
        let downstream_namespace = self.first_downstream_namespace().await?;
        let begun = Instant::now();
        self.connection.send(Method::POST, &deployments("space-0"), objects::deployment(name)).await?;
        for cluster in CLUSTERS {
            let path = format!("{}{}/{name}", mailbox(cluster), deployments(&downstream_namespace));
            while self.connection.get(&path).await.is_err() {
                ensure!(begun.elapsed() < PATIENCE, "{name} is not in the mailbox of {cluster}");
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        }
        Ok(begun.elapsed())
    }

    /// Returns the name of the first namespace in mailboxes.
    async fn first_downstream_namespace(&mut self) -> Result<String> {
        let path = format!("{}/api/v1/namespaces", mailbox(CLUSTERS[0]));
        let list: Value = serde_json::from_slice(&self.connection.get(&path).await?)?;
        let names = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["metadata"]["name"].as_str());
        match names.into_iter().find(|name| name.starts_with("space-0-")) {
            Some(name) => Ok(name.to_owned()),
            None => bail!("{path} has no namespace of space-0"),
        }
    }

    async fn measure_idle(&mut self) -> Result<(f64, u64)> {
        self.until_quiet().await?;
        let process = self.server.pid().to_string();
        let (cpu, revision) = (cpu_seconds_of(&process)?, self.revision().await?);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let writes = self.revision().await? - revision;
        // Each of the two clusters renews its lease three times.
        Ok((cpu_seconds_of(&process)? - cpu, writes.saturating_sub(6)))
    }

    /// Returns how long a new Deployment takes to be placed after a restart, and how long the restart causes writes.
    /// The heartbeats stop meanwhile; both clusters stay healthy for longer than this takes.
    async fn measure_restart(&mut self) -> Result<(Duration, Duration)> {
        self.heartbeats.abort_all();
        let begun = Instant::now();
        self.server.restart_in_place(End::Terminated, &[]);
        self.target =
            BenchTarget::open("Holon", &self.server.kubeconfig_file("root"), vec![self.server.pid()])?;
        self.target.prefix.clear();
        self.connection = BenchConnection::open(&self.target).await?;
        self.place_one("after-restart").await?;
        let placed = begun.elapsed();
        let (mut last, mut revision) = (placed, self.revision().await?);
        while begun.elapsed() < last + SETTLED {
            tokio::time::sleep(PAUSE).await;
            let now = self.revision().await?;
            if now != revision {
                (last, revision) = (begun.elapsed(), now);
            }
        }
        Ok((placed, last))
    }

    fn megabytes(&self) -> Result<u64> {
        Ok(self.target.rss_bytes()? / 1_000_000)
    }
}

fn deployments(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments")
}

async fn renew(target: &BenchTarget, path: &str, mut lease: Value) -> Result<()> {
    let mut connection = BenchConnection::open(target).await?;
    for heartbeat in 0_u64.. {
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        lease["metadata"]["annotations"]["beat"] = heartbeat.to_string().into();
        let body = Bytes::from(lease.to_string());
        lease = serde_json::from_slice(&connection.send(Method::PUT, path, body).await?)?;
    }
    Ok(())
}
