//! The default engine: one process, one directory. An acknowledged write survives everything but the loss of the disk.
//!
//! ```text
//!   commit ─► queue ─► writer thread: check ─► append to log ─► sync ─► MARK ─► View ─► result ─► wake
//!                      (all waiting commits)   └─────── one durable batch ──────┘
//! ```
//!
//! There is one writer thread. It takes all waiting commits, checks each against the state after the commits before it,
//! makes all of them durable with one sync, publishes them to the View and only then returns their results. Reads do
//! not involve the engine: the View serves them.
//!
//! When the disk is full or fails, writes are refused with the reason, and reads continue.

mod disk_space;
mod files;
mod journal;
mod layout;
mod log;
mod rebuild;
mod recover;
mod replay;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use crate::range::{Key, Range};
use crate::store::watch::Watch;
use crate::store::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Listing, Page, ReadError, Revision, Store,
};
use crate::view::{EventSpan, History, TailLimits, View};
use files::{Lock, Mark};
use log::Log;
pub(crate) use rebuild::create;
pub use recover::{Recovery, recover};
use replay::ReplayError;
use writer::{Queue, Writer};

/// The options of a store. `Options::default()` is right for production.
#[derive(Clone)]
pub struct Options {
    /// History younger than this is kept, whatever its size, unless `history_bytes` is exceeded.
    pub history_age: Duration,
    /// History beyond this many bytes is compacted even if it is young.
    pub history_bytes: u64,
    /// With fewer free bytes on the file system, only deletions are accepted.
    pub free_bytes_min: u64,
    /// Called with the progress of start-up, about twice a second. By default it is logged.
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Maximum number of events in memory. `None` for the default; small in tests.
    #[doc(hidden)]
    pub tail_events: Option<usize>,
    /// Called by the writer at each named step, for tests that examine the disk in between.
    #[doc(hidden)]
    pub probe: Option<Probe>,
}

#[doc(hidden)]
pub type Probe = Arc<dyn Fn(&'static str) + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Options {
            // Kubernetes clients expect to resume a watch after minutes, not after hours.
            history_age: Duration::from_secs(300),
            history_bytes: 1 << 30,
            // A journal being filled and a table being written, twice each.
            free_bytes_min: 256 << 20,
            progress: Arc::new(|progress| tracing::info!("reading the store: {progress}")),
            tail_events: None,
            probe: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("history_age", &self.history_age)
            .field("history_bytes", &self.history_bytes)
            .field("free_bytes_min", &self.free_bytes_min)
            .finish_non_exhaustive()
    }
}

/// The progress of start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub records: usize,
    /// The estimated total.
    pub of: usize,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of about {} records", self.records, self.of)
    }
}

/// Whether the store accepts writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    Writable,
    /// Writes are refused for now; the engine keeps trying.
    ReadOnly {
        reason: String,
    },
    /// Writes are refused until the process is restarted.
    Failed {
        reason: String,
    },
}

/// Why a store cannot be opened. Nothing in it was removed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the store in {} is in use by process {holder}; stop that process or choose another directory", dir.display())]
    InUse { dir: PathBuf, holder: String },
    #[error(
        "{} contains a store in an unknown format (found {found}); choose another directory",
        dir.display()
    )]
    Format { dir: PathBuf, found: String },
    #[error(
        "the store in {} is damaged: {damage}. Nothing was removed. To recover the readable records and lose \
         the others, run: holon store recover --data-dir {} --accept-loss",
        dir.display(),
        dir.display()
    )]
    Damaged { dir: PathBuf, damage: Damage },
    #[error("cannot {act} {}: {source}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    #[error("the store in {} cannot be opened: {reason}", dir.display())]
    Log { dir: PathBuf, reason: String },
    #[error("{} already holds a store; restore a backup into an empty directory", dir.display())]
    NotEmpty { dir: PathBuf },
}

impl OpenError {
    fn io(act: &'static str, path: &Path, source: io::Error) -> OpenError {
        OpenError::Io { act, path: path.to_owned(), source }
    }
}

/// Damage of a store, described in a sentence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{description}")]
pub struct Damage {
    description: String,
}

impl Damage {
    fn new(description: String) -> Damage {
        Damage { description }
    }
}

/// A store in a local directory.
pub struct Embedded {
    view: Arc<View>,
    queue: Queue,
    health: watch::Receiver<Health>,
    /// Ends when the queue is closed. Joined, so that the directory is unlocked when drop returns.
    thread: Option<std::thread::JoinHandle<()>>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Embedded({:?})", self.view)
    }
}

impl Embedded {
    /// Opens or creates the store in `dir`. Reads everything into memory, which takes about a second per 300,000
    /// entries of 2 KB; call it outside of async code.
    pub fn open(dir: &Path, options: Options) -> Result<Embedded, OpenError> {
        files::create_dir(dir).map_err(|source| OpenError::io("create", dir, source))?;
        let lock = Lock::take(dir)?;
        let path = dir.join("log");
        rebuild::finish(dir)?;
        let has_log = path.exists();
        files::check_format(dir, has_log)?;
        let (mark, marked) = Mark::open(dir)?;
        let explain = |error: ReplayError| match error {
            ReplayError::Damage(damage) => OpenError::Damaged { dir: dir.to_owned(), damage },
            ReplayError::Unreadable(reason) => OpenError::Log { dir: dir.to_owned(), reason },
        };
        if has_log {
            replay::inspect(&path, marked).map_err(explain)?;
        } else if marked > Revision::ZERO {
            let damage = format!("the log is gone; revisions up to {marked} were acknowledged");
            return Err(explain(Damage::new(damage).into()));
        } else {
            // Created elsewhere and renamed, so that a crash leaves no half-created log.
            rebuild::empty(dir)?;
        }
        // Opened only for reading first: a damaged store is left as it is.
        let log = Log::check(&path).map_err(|error| explain(error.into()))?;
        let replayed = replay::replay(&log, marked, &*options.progress).map_err(explain)?;
        drop(log);
        let log = Log::open(&path).map_err(|error| explain(error.into()))?;

        let limits = TailLimits::default();
        let limits = TailLimits { events: options.tail_events.unwrap_or(limits.events), ..limits };
        let log = Arc::new(ArcSwapOption::from_pointee(log));
        let history = Box::new(OnDisk { log: log.clone() });
        let view = View::new(replayed.snapshot, replayed.base.compacted, limits, history);
        let (base, history_bytes) = (replayed.base, replayed.history_bytes);
        let writer = Writer { lock, mark, path, log, view: view.clone(), base, history_bytes, options };
        let (queue, health, thread) = writer.start()?;
        Ok(Embedded { view, queue, health, thread: Some(thread) })
    }

    /// Returns a receiver that reports whether the store accepts writes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread of the store panicked");
        }
    }
}

impl Store for Embedded {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        Box::pin(async { Ok(self.view.get(key)) })
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        Box::pin(self.view.list(range, page))
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(self.queue.commit(key, expect, change))
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        Box::pin(async move { self.view.watch(range, after) })
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        Box::pin(self.queue.compact(through))
    }
}

/// Events older than the tail, read from the log outside the async threads.
struct OnDisk {
    /// Empty while the log is re-opened after the disk was full.
    log: Arc<ArcSwapOption<Log>>,
}

impl History for OnDisk {
    fn read(
        &self,
        after: Revision,
        until: Revision,
        limit: usize,
    ) -> Boxed<'_, Result<EventSpan, ReadError>> {
        Box::pin(async move {
            let unavailable = |reason: String| ReadError::Unavailable { reason };
            let log =
                self.log.load_full().ok_or_else(|| unavailable("the log is being re-opened".to_owned()))?;
            let read = tokio::task::spawn_blocking(move || match log.events(after, until, limit) {
                Ok(Some(span)) => Ok(span),
                Ok(None) => match log.base() {
                    Ok(base) => Err(ReadError::Compacted { requested: after, oldest: base.compacted }),
                    Err(error) => Err(unavailable(error.to_string())),
                },
                Err(error) => Err(unavailable(error.to_string())),
            });
            read.await.unwrap_or_else(|error| Err(unavailable(error.to_string())))
        })
    }
}
