//! The API beside kube-apiserver with its etcd: same machine, same run, same bytes, both over TLS and HTTP/2, both with
//! the durability of their defaults.
//!
//! ```text
//!   closed loop of so many clients ─┬─► holon                   round 1, 2, 3 …: one and the other in turn,
//!                                   └─► kube-apiserver ─► etcd  a ratio per round, the median of the ratios
//! ```
//!
//! Every response is checked: its status, its kind, how many objects it holds, and for a watch that every event came
//! once. A wrong one ends the benchmark without figures. Processor time is that of the server's processes only.

mod applies;
pub(crate) mod client;
mod leaving;
mod load;
mod objects;
mod reads;
mod report;
mod splitting;
mod starts;
pub(crate) mod target;
mod watches;
mod writes;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use testkit::Server;

pub(crate) use leaving::Leaving;
use load::Effort;
use report::{Better, ReportRow};
pub(crate) use splitting::Splitting;
use target::{BenchTarget, ServerPair};

/// What to measure and how long. Without `--quick` as for docs/benchmarks.md.
#[derive(Args)]
pub(crate) struct Api {
    /// Shorter runs and fewer objects; for a first look
    #[arg(long)]
    quick: bool,
    /// Measure Holon alone, without a Kubernetes beside it
    #[arg(long)]
    alone: bool,
    /// Rounds of each workload [default: 5, quick 2]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long a round is [default: 10, quick 2]
    #[arg(long)]
    seconds: Option<f64>,
    /// Objects in the namespace that is read and listed [default: 20000, quick 2000]
    #[arg(long)]
    objects: Option<usize>,
    /// Watches of one namespace [default: 1000, quick 200]
    #[arg(long)]
    watchers: Option<usize>,
    /// Logical clusters to create [default: 1000, quick 200]
    #[arg(long)]
    clusters: Option<usize>,
    /// The server to measure [default: the binary beside this one]
    #[arg(long)]
    holon: Option<PathBuf>,
    /// Where to write the figures, a line for each row
    #[arg(long, default_value = "target/bench/api.jsonl")]
    json: PathBuf,
}

impl Api {
    pub(crate) async fn run(self) -> Result<()> {
        let or = |given: Option<usize>, full, quick| given.unwrap_or(if self.quick { quick } else { full });
        let effort = Effort {
            rounds: or(self.rounds, 5, 2),
            time: Duration::from_secs_f64(self.seconds.unwrap_or(if self.quick { 2.0 } else { 10.0 })),
        };
        let program = match &self.holon {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("holon"),
        };
        let mut rows = starts::start(&program, effort.rounds).await?;
        let server = Server::start_with(program.clone(), &[]);
        let kubernetes = self.kubernetes()?;
        let ours = BenchTarget::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
        let theirs = kubernetes.as_ref().map(|cluster| {
            BenchTarget::open("kube-apiserver + etcd", &cluster.kubeconfig(), cluster.server_pids())
        });
        let pair = ServerPair { ours, theirs: theirs.transpose()? };
        rows.push(memory(&pair, "idle", Some("≥ 8×, ≤ 40 MB"))?);
        rows.extend(writes::compare(&pair, effort).await?);
        rows.extend(applies::compare(&pair, effort).await?);
        rows.extend(watches::compare(&pair, effort, or(self.watchers, 1000, 200)).await?);
        rows.extend(reads::compare(&pair, effort, or(self.objects, 20_000, 2_000)).await?);
        rows.push(memory(&pair, "after all this", None)?);
        drop((pair, kubernetes, server));
        rows.extend(starts::logical_clusters(&program, or(self.clusters, 1000, 200)).await?);
        report::print(&rows);
        report::write(&rows, &self.json)
    }

    fn kubernetes(&self) -> Result<Option<testkit::peers::Cluster>> {
        if self.alone {
            return Ok(None);
        }
        println!("starting kube-apiserver and etcd");
        let is_installed =
            testkit::peers::cluster::BARE.iter().all(|name| testkit::peers::find(name).is_some());
        ensure!(is_installed, "the programs to compare with are missing: run hack/peers, or add --alone");
        Ok(Some(testkit::peers::Cluster::start_bare(&[])))
    }
}

fn memory(pair: &ServerPair, when: &str, goal: Option<&'static str>) -> Result<ReportRow> {
    let figures = pair.each(|target| Ok(target.rss_bytes()? as f64 / 1e6))?;
    let row = ReportRow::new("RSS", format!("memory, {when}"), "MB", Better::Less, &[figures]);
    Ok(row.goal(goal))
}
