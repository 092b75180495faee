//! One mailbox to and from one physical cluster.
//!
//! The syncer keeps one physical cluster equal to its mailbox and reports what happened there. The same code
//! runs inside Holon (push) and inside the physical cluster (pull): it is given two clients and a name.
//!
//! ```text
//!              mailbox                                                     physical cluster
//!   placed     ───────────► tend: which kinds are followed ◄───────────    ours, by label
//!              ◄─ marks ──┐                                 ┌─ applies ─►
//!              ◄─ status ─┼── look: down, up, project ◄─────┤  deletes
//!   projected  ◄──────────┘     (decided by mirror)         └──────────    pods, replica sets, events, …
//!   lease      ◄── heartbeat: that we are there, what there is ──────────► which cluster is this
//!                             state: what was asked for last, on disk
//! ```
//!
//! It transports and never decides: no placement, no division, no summary. It never sees another cluster's
//! mailbox or a user's logical cluster. It deletes nothing that nobody deleted ([`mirror`]).

mod amounts;
mod below;
mod down;
mod heartbeat;
mod kinds;
mod look;
pub mod mirror;
mod project;
mod seen;
mod sides;
mod state;
mod tend;
mod troubles;
mod up;
mod waiting;

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

pub use sides::Settings;

use crate::sides::Sides;
use crate::state::{About, Disk};

/// Objects looked after at once. Each is waiting for a server most of the time.
const HANDS: usize = 16;
/// What is being written is brought to an end: each call ends within this.
const GRACE: Duration = Duration::from_secs(10);

/// Why a syncer ended.
#[derive(Debug, thiserror::Error)]
pub enum SyncerError {
    #[error("cannot use the directory of its state: {0}")]
    State(#[source] std::io::Error),
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Keeps one physical cluster equal to its mailbox.
#[derive(Debug)]
pub struct Syncer {
    mailbox: Remote,
    below: Remote,
    settings: Settings,
}

impl Syncer {
    /// `mailbox` leads to one logical cluster, `below` to the physical cluster.
    pub fn new(mailbox: Client, below: Client, settings: Settings) -> Syncer {
        Syncer { mailbox: Remote::new(mailbox), below: Remote::new(below), settings }
    }

    /// Runs until it is told to stop. Returns earlier only if a part of it fails, which none should.
    pub async fn run(self, mut stop: Stop) -> Result<(), SyncerError> {
        let Syncer { mailbox, below, settings } = self;
        let (about, kept) = match &settings.directory {
            Some(directory) => {
                let disk = Disk::new(directory.clone(), settings.seal);
                let (mut about, kept) = disk.load(&settings.mailbox).await.map_err(SyncerError::State)?;
                if about.identity.is_empty() {
                    about.identity = format!("{:016x}", rand::random::<u64>());
                    disk.save_about(about.clone()).await.map_err(SyncerError::State)?;
                }
                (about, kept)
            }
            None => (About { mailbox: settings.mailbox.clone(), ..About::default() }, Vec::new()),
        };
        // Of many in one process each line says whose it is.
        let span = tracing::info_span!("syncer", physical_cluster = settings.name);
        let sides = Arc::new(Sides::new(mailbox, below, settings, about, kept));
        let mut tasks = Tasks::new();
        spawn(&mut tasks, "lease", never(heartbeat::hold(sides.clone())).instrument(span.clone()));
        spawn(&mut tasks, "report", never(heartbeat::beat(sides.clone())).instrument(span.clone()));
        spawn(&mut tasks, "kinds", tend::tend(sides.clone()).instrument(span.clone()));
        tasks.spawn("objects", look_after(sides.clone(), tasks.stop()).instrument(span.clone()));
        let ended = tasks.run_until(stop.requested(), GRACE).await;
        give_up(&sides).instrument(span).await;
        Ok(ended?)
    }
}

/// Looks after all objects until told to stop; what is in hand then is brought to an end, so that nothing is written after
/// another has begun.
async fn look_after(sides: Arc<Sides>, mut stop: Stop) -> Result<(), Infallible> {
    let gate = Semaphore::new(HANDS);
    let look = async |subject| {
        let _place = gate.acquire().await;
        look::look(&sides, subject).await
    };
    let mut working = std::pin::pin!(work(&sides.queue, HANDS, look));
    tokio::select! {
        never = &mut working => match never {},
        () = stop.requested() => {}
    }
    // Whoever waits for all places gets them before those who come later.
    tokio::select! {
        never = working => match never {},
        _ = timeout(PATIENCE, gate.acquire_many(HANDS as u32)) => Ok(()),
    }
}

/// Nobody writes any more, so another may begin; and then we are not the last who led.
async fn give_up(sides: &Sides) {
    match timeout(GRACE, sides.lease.release()).await {
        Ok(Ok(true)) => sides.change_about(|about| about.led = false).await,
        Ok(Ok(false)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot give up the lease"),
        Err(_) => tracing::warn!("cannot give up the lease in time"),
    }
}

async fn never(task: impl Future<Output = Infallible>) -> Result<Infallible, String> {
    Ok(task.await)
}

/// A task that goes on until the group stops.
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
