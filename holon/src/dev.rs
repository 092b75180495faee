//! `holon dev`: the first five minutes. A server, two stand-ins for physical clusters, and what to type next.

use std::net::SocketAddr;
use std::path::PathBuf;
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
use controller::remote::{Place, Remote};
use standin::{Options, Pace, Standin};

use crate::start::{Running, Start};
use crate::{join, kubeconfig};

/// Physical clusters there are, and a label of each to choose it by.
const CLUSTERS: [(&str, &str); 2] = [("east", "eu"), ("west", "us")];
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
        let data_dir = if self.keep { PathBuf::from(".holon-dev") } else { gone.path().to_owned() };
        let contexts =
            CLUSTERS.iter().filter_map(|(name, _)| Path::root().child(&mailbox(name)).ok()).collect();
        let start = Start::for_trying(data_dir, free(self.listen), contexts);
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(start.serve(async |running| {
            let standins = join_all(running).await?;
            say(running);
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
async fn join_all(running: &Running) -> Result<Vec<Standin>> {
    let (name, groups) = kubeconfig::ADMIN;
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let admin = Identity::known(User { name: name.to_owned(), groups, ..User::default() });
    let root = Remote::new(local::client(running.stack.clone(), admin, &Cluster::Id(Id::ROOT)));
    let mut standins = Vec::new();
    for (name, region) in CLUSTERS {
        let options = Options { pace: Pace::LIVELY, ..Options::new(name) };
        let standin =
            Standin::start(options).await.with_context(|| format!("starting the stand-in {name}"))?;
        let labels = vec![("region".to_owned(), region.to_owned())];
        join::known(&root, name, &standin.kubeconfig()?, &labels).await?;
        standins.push(standin);
    }
    for (name, _) in CLUSTERS {
        answered(&root, name).await?;
    }
    Ok(standins)
}

async fn answered(root: &Remote, name: &str) -> Result<()> {
    let resource = PhysicalCluster::RESOURCE;
    let kind = Kind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced);
    let begun = Instant::now();
    loop {
        let object = root.get(Place::new(&kind, "", name)).await?.unwrap_or_default();
        if join::ready(&object)["status"] == "True" {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!("the stand-in {name} has not answered within {PATIENCE:?}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn say(running: &Running) {
    println!(
        "Holon serves {} with two stand-in clusters, ready after {:.1?}.",
        running.server,
        running.begun.elapsed()
    );
    println!("In another terminal, type:");
    println!("  export KUBECONFIG={}", running.kubeconfig.display());
    println!("  kubectl get physicalclusters --show-labels");
    println!("  kubectl --context root:mailbox-east apply -f docs/examples/mailbox.yaml");
    println!("  kubectl --context root:mailbox-east -n shop rollout status deployment/web");
    println!("  kubectl --context root:mailbox-east -n shop get pods,replicasets,endpointslices,events");
    println!("  kubectl --context root:mailbox-east -n shop scale deployment/web --replicas=5");
    println!("  kubectl --context root:mailbox-east delete -f docs/examples/mailbox.yaml");
    println!(
        "Stand-ins run no containers; `holon join NAME --kubeconfig FILE` joins a real cluster. Ctrl-C ends it."
    );
}
