//! `holon dev`: the first five minutes. A server, two stand-ins for physical clusters, and what to type next.

use std::net::SocketAddr;
use std::path::{self, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::cluster::{Id, Path};
use api::fleet::PhysicalCluster;
use api::names::{GROUP, VERSION, mailbox};
use apiserver::identity::{Identity, User};
use apiserver::local;
use apiserver::request::Cluster;
use clap::Args;
use controller::kind::Kind;
use controller::remote::{Patch, Place, Remote};
use serde_json::json;
use standin::{Options, Pace, Standin};
use storage::embedded::{self, Embedded};

use crate::server::{Running, ServerOptions};
use crate::{kubeconfig, register};

/// Physical clusters there are, and a label of each to choose it by.
const CLUSTERS: [(&str, &str); 2] = [("east", "eu"), ("west", "us")];
/// The logical cluster to apply things to.
const USER: &str = "team-a";
/// Where everything is with `--keep`.
const KEPT: &str = ".holon-dev";
/// They are in this process, so they answer at once or never.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct Dev {
    /// Where to listen, if nobody else does
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Keep everything in .holon-dev, and find it there the next time; otherwise nothing is left behind
    #[arg(long)]
    keep: bool,
}

impl Dev {
    pub(crate) fn run(self) -> Result<()> {
        let gone = tempfile::tempdir().context("making a directory")?;
        let kept = self.keep.then(|| PathBuf::from(KEPT));
        let data_dir = kept.clone().unwrap_or_else(|| gone.path().to_owned());
        let user = Path::root().child(USER).context("naming the user's logical cluster")?;
        let mailboxes = CLUSTERS.iter().filter_map(|(name, _)| Path::root().child(&mailbox(name)).ok());
        let contexts = [user.clone(), Path::root()].into_iter().chain(mailboxes).collect();
        let server = ServerOptions::for_trying(data_dir, free(self.listen), contexts);
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(server.serve(async |running| {
            let standins = join_all(running, kept.as_deref()).await?;
            say(running, &user);
            Ok(standins)
        }))
    }
}

/// The address, or the same on another port if somebody listens there.
fn free(wanted: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(wanted) {
        Ok(_) => wanted,
        Err(error) => {
            println!("{wanted} cannot be used ({error}); taking another port");
            SocketAddr::new(wanted.ip(), 0)
        }
    }
}

/// Starts the stand-ins and joins them as anybody would join a physical cluster.
async fn join_all(running: &Running, kept: Option<&path::Path>) -> Result<Vec<Standin>> {
    let (name, groups) = kubeconfig::ADMIN;
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let admin = Identity::known(User { name: name.to_owned(), groups, ..User::default() });
    let root = Remote::new(local::client(running.stack.clone(), admin, &Cluster::Id(Id::ROOT)));
    let kind = Kind::new(GROUP, VERSION, "logicalclusters", "LogicalCluster", false);
    let user = json!({ "metadata": { "name": USER } });
    match root.create(&kind, "", &user).await {
        // It was kept from the last time.
        Err(error) if error.is_conflict() => {}
        done => drop(done.context("making a logical cluster")?),
    }
    let mut standins = Vec::new();
    for (name, region) in CLUSTERS {
        let standin = standin(name, kept).await.with_context(|| format!("starting the stand-in {name}"))?;
        let labels = vec![("region".to_owned(), region.to_owned())];
        register::known(&root, name, &standin.kubeconfig()?, &labels).await?;
        // A stand-in has no host that a pod could reach, so charts with node agents are tried here too.
        let kind = Kind::new(GROUP, VERSION, "physicalclusters", "PhysicalCluster", false);
        let change = json!({ "spec": { "podSecurity": "privileged" } });
        root.patch(Place::new(&kind, "", name), Patch::Merge, &change).await?;
        standins.push(standin);
    }
    for (name, _) in CLUSTERS {
        answered(&root, name).await?;
    }
    Ok(standins)
}

/// Keeps what it has if the server does. One that forgot everything would be another physical cluster under the same name,
/// and syncers do nothing on those.
async fn standin(name: &str, kept: Option<&path::Path>) -> Result<Standin> {
    let mut options = Options { pace: Pace::LIVELY, measures: true, ..Options::new(name) };
    if let Some(kept) = kept {
        let dir = kept.join("standins").join(name);
        let store = dir.join("store");
        // Reads everything into memory, so off the async threads.
        let opened =
            tokio::task::spawn_blocking(move || Embedded::open(&store, embedded::Options::default())).await;
        options.store = Some(Arc::new(opened.context("opening its store")??));
        options.dir = Some(dir.join("pki"));
    }
    Ok(Standin::start(options).await?)
}

async fn answered(root: &Remote, name: &str) -> Result<()> {
    let resource = PhysicalCluster::RESOURCE;
    let kind = Kind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced);
    let begun = Instant::now();
    loop {
        let object = root.get(Place::new(&kind, "", name)).await?.unwrap_or_default();
        if register::ready(&object)["status"] == "True" {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!("the stand-in {name} has not answered within {PATIENCE:?}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn say(running: &Running, user: &Path) {
    println!(
        "Holon serves {} with two stand-in clusters, ready after {:.1?}.",
        running.server,
        running.begun.elapsed()
    );
    println!("In another terminal, type:");
    println!("  export KUBECONFIG={}", running.kubeconfig.display());
    println!("  kubectl apply -f docs/examples/shop.yaml             # into {user}, a logical cluster");
    println!("  kubectl -n shop rollout status deployment/web");
    println!("  kubectl -n shop get pods -o wide                     # on one of the clusters");
    println!("  kubectl annotate ns shop holon.dev/placement='*'     # on all of them");
    println!("  kubectl -n shop get pods -o wide");
    println!("  kubectl -n shop logs deployment/web");
    println!("  holon explain deployment/web -n shop                 # or: cargo run --release -- explain …");
    println!("  kubectl annotate ns shop holon.dev/placement=west --overwrite");
    println!("  kubectl --context root get physicalclusters --show-labels");
    println!(
        "Stand-ins run no containers; `holon join NAME --kubeconfig FILE` joins a real cluster. Ctrl-C ends it."
    );
}
