//! What looks after physical clusters inside the server, and the syncers of those it connects to itself.
//!
//! ```text
//!   PhysicalCluster with `push` ─► its Secret ─► a client of the physical cluster ─┐
//!                     its mailbox, as the syncer's own service account ────────────┴─► Syncer
//! ```

pub(crate) mod streams;
mod syncers;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::cluster::{Id, Path};
use apiserver::auth::mandate::Mandate;
use apiserver::identity::{Identity, User};
use apiserver::local;
use apiserver::request::Cluster;
use apiserver::stack::Stack;
use controller::lease::{Lease, Terms};
use controller::queue::Queue;
use controller::remote::Remote;
use controller::tasks::Stop;
use splitter::fleet::Fleet;
use splitter::flow::Splitter;
use splitter::home::Door;
use storage::Store;
use tokio::sync::Notify;

use self::streams::PodStreams;
use self::syncers::Seats;
use crate::authz::reserved::CONTROLLERS;
use crate::authz::roles;

/// Before something that ended is started again.
const PAUSE: Duration = Duration::from_secs(5);

/// Nobody decides anything between two holders, so there is little time between them.
const TERMS: Terms = Terms::QUICK;

/// What it needs of the server.
pub(crate) struct Inside {
    pub(crate) stack: Arc<Stack>,
    pub(crate) store: Arc<dyn Store>,
    /// Where syncers keep what they were asked for.
    pub(crate) directory: PathBuf,
    /// What seals it there.
    pub(crate) seal: Option<[u8; 32]>,
    /// Forwards requests for running pods to physical clusters.
    pub(crate) streams: Arc<PodStreams>,
    /// The logical clusters whose physical clusters the server connects to. Whoever writes a PhysicalCluster there
    /// decides where it connects to.
    pub(crate) push_from: Vec<Path>,
    /// How pods reach the server, if they can.
    pub(crate) door: Option<Door>,
    /// Whether other servers share the store. Then one of them looks after physical clusters.
    pub(crate) is_shared: bool,
}

/// Looks after physical clusters until told to stop.
pub(crate) async fn run(inside: Inside, stop: Stop) -> Result<(), Infallible> {
    inside.streams.set_server(Some(inside.client("tunnel", roles::tunnel(), &Cluster::Bare)));
    let ended = run_with(&inside, stop).await;
    // They are part of the server, and must not keep it.
    inside.streams.set_server(None);
    ended
}

async fn run_with(inside: &Inside, mut stop: Stop) -> Result<(), Infallible> {
    if !inside.is_shared {
        look_after(inside, stop.requested()).await;
        return Ok(());
    }
    let holder = format!("{:016x}", rand::random::<u64>());
    let server = inside.client("fleet", roles::fleet(), &Cluster::Bare);
    let lease = Lease::new(server.within(Id::ROOT), "kube-system", "holon-fleet", &holder).on(TERMS);
    let tried = Notify::new();
    let led = async || {
        while !lease.leads() {
            tried.notified().await;
        }
    };
    let leading = async {
        while !either(led(), stop.requested()).await {
            look_after(inside, async { _ = either(lease.lost(), stop.clone().requested()).await }).await;
        }
    };
    // It is renewed until syncers have finished what they write: only then may another begin.
    tokio::select! {
        never = lease.hold(|_| tried.notify_one()) => match never {},
        () = leading => {}
    }
    if let Err(error) = lease.release().await {
        tracing::warn!(%error, "cannot give up the lease of the fleet");
    }
    Ok(())
}

/// Waits for one of two things. Whether it was the second.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = one => false,
        () = other => true,
    }
}

impl Inside {
    /// A client of one of our own controllers.
    fn client(&self, name: &str, mandate: Arc<Mandate>, cluster: &Cluster) -> Remote {
        let who = User { name: format!("{CONTROLLERS}{name}"), mandate: Some(mandate), ..User::default() };
        let client = Remote::new(local::client(self.stack.clone(), Identity::known(who), cluster));
        // Another may lead soon after this one has lost the lease.
        if self.is_shared { client.with_patience(TERMS.patience) } else { client }
    }
}

/// Looks after physical clusters, and what is sent there, until that is over.
async fn look_after(inside: &Inside, over: impl Future<Output = ()>) {
    let server = inside.client("fleet", roles::fleet(), &Cluster::Bare);
    let (fleet, changed) = (Fleet::new(server.clone()), Queue::new());
    let mut seats = Seats::new(inside, server);
    let all = inside.client("fleet", roles::fleet(), &Cluster::All);
    tokio::select! {
        never = fleet.run(all, |key| changed.add(key)) => match never {},
        never = split(inside) => match never {},
        never = seats.keep(&fleet, &changed) => match never {},
        () = over => {}
    }
    seats.close().await;
}

/// Keeps mailboxes as users want them.
async fn split(inside: &Inside) -> Infallible {
    loop {
        let splitter = Splitter::new(inside.client("splitter", roles::splitter(), &Cluster::Bare));
        let splitter = match &inside.door {
            Some(door) => splitter.with_door(door.clone()),
            None => splitter,
        };
        let error = Arc::new(splitter).run(inside.client("splitter", roles::splitter(), &Cluster::All)).await;
        tracing::error!(%error, "a part of the splitter failed; it begins anew");
        tokio::time::sleep(PAUSE).await;
    }
}
