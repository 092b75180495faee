//! The physical clusters of a server: the splitter, and the syncers of physical clusters that the server connects to.
//!
//! ```text
//!   PhysicalCluster with `push` ─► its Secret ─► a client of the physical cluster ─┐
//!                     its mailbox, with the syncer's service account ──────────────┴─► Syncer
//! ```

pub(crate) mod streams;
mod syncers;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::cluster::{Id, Path};
use apiserver::authn::identity::{Identity, User};
use apiserver::history::history;
use apiserver::local;
use apiserver::rbac::controller_role::ControllerRole;
use apiserver::request::path::Cluster;
use apiserver::stack::Stack;
use controller::lease::{Lease, Terms};
use controller::queue::Queue;
use controller::remote::Remote;
use controller::tasks::Stop;
use splitter::ApiEndpoint;
use splitter::Splitter;
use splitter::fleet::Fleet;
use storage::Store;
use tokio::sync::Notify;

use self::streams::PodStreams;
use self::syncers::Syncers;
use crate::authz::reserved::CONTROLLERS;
use crate::authz::roles;

/// The delay before a failed part is started again.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// The lease has short terms, because no server runs the fleet between two holders.
const TERMS: Terms = Terms::QUICK;

/// The parts of the server that the fleet uses.
pub(crate) struct FleetContext {
    pub(crate) stack: Arc<Stack>,
    pub(crate) store: Arc<dyn Store>,
    /// The directory in which syncers store their state.
    pub(crate) directory: PathBuf,
    /// Encrypts the state of syncers.
    pub(crate) encryption_key: Option<[u8; 32]>,
    /// Forwards requests for running pods to physical clusters.
    pub(crate) streams: Arc<PodStreams>,
    /// The logical clusters whose physical clusters the server connects to. Their users decide which addresses it
    /// connects to.
    pub(crate) push_from: Vec<Path>,
    /// The endpoint at which pods reach the server, if they can.
    pub(crate) pod_access: Option<ApiEndpoint>,
    /// Whether other servers share the store. Then only the holder of the lease runs the fleet.
    pub(crate) is_shared: bool,
}

/// Runs the fleet until `stop`.
pub(crate) async fn run(context: FleetContext, stop: Stop) -> Result<(), Infallible> {
    context.streams.set_server(Some(context.client("tunnel", roles::tunnel(), &Cluster::Bare)));
    let ended = run_with(&context, stop).await;
    // The client holds the server and the server holds the streams: this breaks the cycle.
    context.streams.set_server(None);
    ended
}

async fn run_with(context: &FleetContext, mut stop: Stop) -> Result<(), Infallible> {
    if !context.is_shared {
        run_fleet(context, stop.requested()).await;
        return Ok(());
    }
    let holder = format!("{:016x}", rand::random::<u64>());
    let server = context.client("fleet", roles::fleet(), &Cluster::Bare);
    let lease = Lease::new(server.within(Id::ROOT), "kube-system", "holon-fleet", &holder).on(TERMS);
    let attempted = Notify::new();
    let acquired = async || {
        while !lease.leads() {
            attempted.notified().await;
        }
    };
    let leading = async {
        while !either(acquired(), stop.requested()).await {
            run_fleet(context, async { _ = either(lease.lost(), stop.clone().requested()).await }).await;
        }
    };
    // The lease is renewed until all syncers have stopped: only then may another server start its own.
    tokio::select! {
        never = lease.hold(|_| attempted.notify_one()) => match never {},
        () = leading => {}
    }
    if let Err(error) = lease.release().await {
        tracing::warn!(%error, "cannot release the lease of the fleet; another server waits until it expires");
    }
    Ok(())
}

/// Waits for either future. Returns whether `other` was first.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = one => false,
        () = other => true,
    }
}

impl FleetContext {
    /// Returns a client for one of Holon's controllers, with its role.
    fn client(&self, name: &str, controller_role: Arc<ControllerRole>, cluster: &Cluster) -> Remote {
        let identity = controller_identity(name, controller_role);
        let client = Remote::new(local::client(self.stack.clone(), identity, cluster));
        // Another server may lead soon after this one has lost the lease, so calls time out early.
        if self.is_shared { client.with_patience(TERMS.patience) } else { client }
    }
}

fn controller_identity(name: &str, controller_role: Arc<ControllerRole>) -> Identity {
    Identity::known(User {
        name: format!("{CONTROLLERS}{name}"),
        controller_role: Some(controller_role),
        ..User::default()
    })
}

/// Runs the fleet controller, the splitter and the syncers until `until`.
async fn run_fleet(context: &FleetContext, until: impl Future<Output = ()>) {
    let server = context.client("fleet", roles::fleet(), &Cluster::Bare);
    let history = history(&context.stack, controller_identity("fleet", roles::fleet()));
    let (fleet, changed) = (Fleet::new(server.clone(), history), Queue::new());
    let mut syncers = Syncers::new(context, server);
    tokio::select! {
        never = fleet.run(|key| changed.add(key)) => match never {},
        never = run_splitter(context) => match never {},
        never = syncers.run(&fleet, &changed) => match never {},
        () = until => {}
    }
    syncers.close().await;
}

/// Runs the splitter, and restarts it when it fails.
async fn run_splitter(context: &FleetContext) -> Infallible {
    loop {
        let history = history(&context.stack, controller_identity("splitter", roles::splitter()));
        let splitter = Splitter::new(context.client("splitter", roles::splitter(), &Cluster::Bare), history);
        let splitter = match &context.pod_access {
            Some(endpoint) => splitter.with_api_endpoint(endpoint.clone()),
            None => splitter,
        };
        let error = Arc::new(splitter).run().await;
        tracing::error!(%error, "the splitter failed; restarting it");
        tokio::time::sleep(RESTART_DELAY).await;
    }
}
