//! `holon dev`: a server with two simulated physical clusters (stand-ins), for the first five minutes.

use std::net::SocketAddr;
use std::path::{self, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::cluster::{Id, Path};
use api::fleet::PhysicalCluster;
use api::names::{GROUP, VERSION, mailbox};
use apiserver::authn::identity::{Identity, User};
use apiserver::local;
use apiserver::request::path::Cluster;
use clap::Args;
use controller::kind::ResourceKind;
use controller::remote::{ObjectPath, Patch, Remote};
use serde_json::json;
use standin::{Delays, Options, Standin};
use storage::embedded::{self, Embedded};

use crate::server::{RunningServer, ServerOptions};
use crate::{kubeconfig, register};

/// The physical clusters, and the region label of each.
const CLUSTERS: [(&str, &str); 2] = [("east", "eu"), ("west", "us")];
/// The user's logical cluster.
const USER_CLUSTER: &str = "team-a";
/// The directory of `--keep`.
const KEPT_DIR: &str = ".holon-dev";
/// Stand-ins run in this process: they answer soon or not at all.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct Dev {
    /// The address to listen on. If it is in use, another port is chosen
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Keep all data in .holon-dev, and continue with it the next time. Without this, all data is deleted at the end
    #[arg(long)]
    keep: bool,
}

impl Dev {
    pub(crate) fn run(self) -> Result<()> {
        let temporary_dir = tempfile::tempdir().context("cannot create a temporary directory")?;
        let kept_dir = self.keep.then(|| PathBuf::from(KEPT_DIR));
        let data_dir = kept_dir.clone().unwrap_or_else(|| temporary_dir.path().to_owned());
        let user = Path::root().child(USER_CLUSTER).context("cannot name the user's logical cluster")?;
        let mailboxes = CLUSTERS.iter().filter_map(|(name, _)| Path::root().child(&mailbox(name)).ok());
        let contexts = [user.clone(), Path::root()].into_iter().chain(mailboxes).collect();
        let server = ServerOptions::for_dev(data_dir, free_address(self.listen), contexts);
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(server.serve(async |running| {
            let standins = join_all(running, kept_dir.as_deref()).await?;
            print_next_steps(running, &user);
            Ok(standins)
        }))
    }
}

/// Returns the address, or one with another port if it is in use.
fn free_address(address: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(address) {
        Ok(_) => address,
        Err(error) => {
            println!("cannot listen on {address} ({error}); using another port");
            SocketAddr::new(address.ip(), 0)
        }
    }
}

/// Starts the stand-ins and joins them like any other physical cluster.
async fn join_all(running: &RunningServer, kept_dir: Option<&path::Path>) -> Result<Vec<Standin>> {
    let (name, groups) = kubeconfig::ADMIN;
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let admin = Identity::known(User { name: name.to_owned(), groups, ..User::default() });
    let root = Remote::new(local::client(running.stack.clone(), admin, &Cluster::Id(Id::ROOT)));
    let kind = ResourceKind::new(GROUP, VERSION, "logicalclusters", "LogicalCluster", false);
    let user = json!({ "metadata": { "name": USER_CLUSTER } });
    match root.create(&kind, "", &user).await {
        // With `--keep` it exists from the last run.
        Err(error) if error.is_conflict() => {}
        created => drop(created.context("cannot create a logical cluster")?),
    }
    let mut standins = Vec::new();
    for (name, region) in CLUSTERS {
        let standin =
            standin(name, kept_dir).await.with_context(|| format!("cannot start the stand-in {name}"))?;
        let labels = vec![("region".to_owned(), region.to_owned())];
        register::register_push(&root, name, &standin.kubeconfig()?, &labels).await?;
        // A stand-in has no host that a privileged pod could harm, and charts with node agents need them.
        let kind = ResourceKind::new(GROUP, VERSION, "physicalclusters", "PhysicalCluster", false);
        let change = json!({ "spec": { "podSecurity": "privileged" } });
        root.patch(ObjectPath::new(&kind, "", name), Patch::Merge, &change).await?;
        standins.push(standin);
    }
    for (name, _) in CLUSTERS {
        wait_until_ready(&root, name).await?;
    }
    Ok(standins)
}

/// Starts a stand-in that keeps its data if the server does. With new data it would have a new uid, and syncers refuse
/// to write to another physical cluster under a known name.
async fn standin(name: &str, kept_dir: Option<&path::Path>) -> Result<Standin> {
    let mut options = Options { delays: Delays::SHORT, metrics_server: true, ..Options::new(name) };
    if let Some(kept_dir) = kept_dir {
        let dir = kept_dir.join("standins").join(name);
        let store = dir.join("store");
        // Opening reads all objects into memory, so it runs on a blocking thread.
        let opened =
            tokio::task::spawn_blocking(move || Embedded::open(&store, embedded::Options::default())).await;
        options.store = Some(Arc::new(opened.context("cannot open its store")??));
        options.dir = Some(dir.join("pki"));
    }
    Ok(Standin::start(options).await?)
}

async fn wait_until_ready(root: &Remote, name: &str) -> Result<()> {
    let resource = PhysicalCluster::RESOURCE;
    let kind = ResourceKind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced);
    let started = Instant::now();
    loop {
        let object = root.get(ObjectPath::new(&kind, "", name)).await?.unwrap_or_default();
        if register::ready_condition(&object)["status"] == "True" {
            return Ok(());
        }
        if started.elapsed() > ANSWER_TIMEOUT {
            bail!("the stand-in {name} has not answered within {ANSWER_TIMEOUT:?}");
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn print_next_steps(running: &RunningServer, user: &Path) {
    println!(
        "Holon serves {} with two stand-in clusters, ready after {:.1?}.",
        running.server,
        running.started.elapsed()
    );
    println!("In another terminal, type:");
    println!("  export KUBECONFIG={}", running.kubeconfig.display());
    println!("  kubectl apply -f docs/examples/shop.yaml             # into {user}, a logical cluster");
    println!("  kubectl -n shop rollout status deployment/web");
    println!("  kubectl -n shop get pods -o wide                     # on one of the physical clusters");
    println!("  kubectl annotate ns shop holon.dev/placement='*'     # on all of them");
    println!("  kubectl -n shop get pods -o wide");
    println!("  kubectl -n shop logs deployment/web");
    println!("  holon explain deployment/web -n shop                 # or: cargo run --release -- explain …");
    println!("  kubectl annotate ns shop holon.dev/placement=west --overwrite");
    println!("  kubectl --context root get physicalclusters --show-labels");
    println!(
        "Stand-ins run no containers; `holon join NAME --kubeconfig FILE` joins a real cluster. Ctrl-C stops the server."
    );
}
