//! Keeps one physical cluster equal to one mailbox.
//!
//! The syncer applies the objects of the mailbox to the physical cluster and reports their status. The same code runs
//! inside Holon (push) and inside the physical cluster (pull): the caller passes two clients and a name.
//!
//! ```text
//!              mailbox                                                     physical cluster
//!   placed     ───────────► watch: informers of both sides ◄───────────    ours, by label
//!              ◄ finalizer ┐                                ┌─ applies ─►
//!              ◄─ status ──┼─ sync: down, up, project ◄─────┤  deletes
//!   projected  ◄───────────┘   (planned by mirror)          └──────────    pods, replica sets, events, …
//!   lease      ◄── heartbeat: lease, report ─────────────────────────────► identity, inventory
//!                             state: kinds, syncs, errors in memory; desired objects on disk
//! ```
//!
//! It transports and never decides: no placement, no division, no aggregation. It has no access to another cluster's
//! mailbox or a user's logical cluster. It deletes downstream only what was deleted in the mailbox ([`mirror`]).

mod heartbeat;
mod inventory;
pub mod mirror;
mod state;
mod sync;
mod watch;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use controller::remote::{PATIENCE, Remote};
use controller::run::work;
use controller::tasks::{Stop, TaskError, Tasks};
use kube::Client;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::Instrument;

pub use state::context::Settings;

use crate::state::context::SyncerContext;
use crate::state::directory::{StateDirectory, StateHeader};
use crate::sync::reconcile::reconcile;
use crate::watch::informers::manage_informers;

/// Concurrent reconciles. Each waits for a server most of the time.
const WORKERS: usize = 16;
/// How long the syncer may take to stop; each of its calls ends sooner.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a syncer ended.
#[derive(Debug, thiserror::Error)]
pub enum SyncerError {
    #[error("cannot use its state directory: {0}")]
    State(#[source] std::io::Error),
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Keeps one physical cluster equal to its mailbox.
#[derive(Debug)]
pub struct Syncer {
    mailbox: Remote,
    downstream: Remote,
    settings: Settings,
}

impl Syncer {
    /// `mailbox` is a client of one mailbox, `downstream` of the physical cluster.
    pub fn new(mailbox: Client, downstream: Client, settings: Settings) -> Syncer {
        Syncer { mailbox: Remote::new(mailbox), downstream: Remote::new(downstream), settings }
    }

    /// Runs until `stop`. Returns earlier only if one of its tasks fails, which is a bug.
    pub async fn run(self, mut stop: Stop) -> Result<(), SyncerError> {
        let Syncer { mailbox, downstream, settings } = self;
        let (header, stored) = match &settings.directory {
            Some(directory) => {
                let directory = StateDirectory::new(directory.clone(), settings.encryption_key);
                let loaded = directory.load(&settings.mailbox).await;
                let (mut header, stored) = loaded.map_err(SyncerError::State)?;
                if header.identity.is_empty() {
                    header.identity = format!("{:016x}", rand::random::<u64>());
                    directory.save_header(header.clone()).await.map_err(SyncerError::State)?;
                }
                (header, stored)
            }
            None => (StateHeader { mailbox: settings.mailbox.clone(), ..StateHeader::default() }, Vec::new()),
        };
        // A process may run many syncers: each log line names its physical cluster. Two logical clusters may call
        // different ones alike.
        let span =
            tracing::error_span!("syncer", physical_cluster = settings.name, mailbox = settings.mailbox);
        let context = Arc::new(SyncerContext::new(mailbox, downstream, settings, header, stored));
        let mut tasks = Tasks::new();
        spawn(&mut tasks, "lease", never(heartbeat::hold_lease(context.clone())).instrument(span.clone()));
        spawn(&mut tasks, "report", never(heartbeat::report(context.clone())).instrument(span.clone()));
        spawn(&mut tasks, "kinds", manage_informers(context.clone()).instrument(span.clone()));
        tasks.spawn("objects", reconcile_all(context.clone(), tasks.stop()).instrument(span.clone()));
        let ended = tasks.run_until(stop.requested(), STOP_TIMEOUT).await;
        release_lease(&context).instrument(span).await;
        Ok(ended?)
    }
}

/// Reconciles the objects of the queue until `stop`. Then it waits for the reconciles in progress, so that this syncer
/// writes nothing after another has acquired the lease.
async fn reconcile_all(context: Arc<SyncerContext>, mut stop: Stop) -> Result<(), Infallible> {
    let workers = Semaphore::new(WORKERS);
    let reconcile = async |id| {
        let _permit = workers.acquire().await;
        reconcile(&context, id).await
    };
    let mut working = std::pin::pin!(work(&context.queue, WORKERS, reconcile));
    tokio::select! {
        never = &mut working => match never {},
        () = stop.requested() => {}
    }
    // The semaphore is fair: this acquires all permits before reconciles that start later.
    tokio::select! {
        never = working => match never {},
        _ = timeout(PATIENCE, workers.acquire_many(WORKERS as u32)) => Ok(()),
    }
}

/// Releases the lease after the last write, and records that this syncer is no longer the last holder.
async fn release_lease(context: &SyncerContext) {
    match timeout(STOP_TIMEOUT, context.lease.release()).await {
        Ok(Ok(true)) => context.update_header(|header| header.led = false).await,
        Ok(Ok(false)) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot release the lease; another syncer waits until it expires")
        }
        Err(_) => tracing::warn!("cannot release the lease in time; another syncer waits until it expires"),
    }
}

async fn never(task: impl Future<Output = Infallible>) -> Result<Infallible, String> {
    Ok(task.await)
}

/// Spawns a task that runs until the group stops.
fn spawn(
    tasks: &mut Tasks,
    name: &str,
    task: impl Future<Output = Result<Infallible, String>> + Send + 'static,
) {
    let mut stop = tasks.stop();
    tasks.spawn(name, async move {
        tokio::select! {
            () = stop.requested() => Ok(()),
            ended = task => ended.map(|never| match never {}),
        }
    });
}
