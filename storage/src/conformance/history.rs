//! Recorded runs: many concurrent clients, every call recorded, then checked.
//!
//! ```text
//!   Workload ──► Recorder ──► Store          while it runs: each call with its start, its end, its result
//!                   │
//!                   └──► History ──► check   afterwards: a pure function that returns every violated guarantee
//! ```
//!
//! A run can continue after the store was reopened: keep the [`Recorder`], and call [`Workload::run`] again with the
//! new store. A call without a result, because the process or the store died, counts as "perhaps written".
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use storage::{Range, Store, conformance::history, memory::Memory};
//! # async fn judged() -> Result<(), storage::ReadError> {
//! # let (store, reopened): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
//! for seed in history::seeds() {
//!     let recorder = history::Recorder::start(&*store, Range::prefix("run/")).await?;
//!     let workload = history::Workload::new(seed, "run/");
//!     workload.run(&store, &recorder).await;        // may be stopped, may meet errors
//!     workload.run(&reopened, &recorder).await;
//!     let history = recorder.finish(&*reopened).await?;
//!     history.check().expect("the history violates the contract");
//! }
//! # Ok(())
//! # }
//! ```

mod check;
mod recorder;
#[cfg(test)]
mod tests;
mod workload;

use std::fmt;

use rand::RngExt;

use crate::range::{Key, Range};
use crate::store::watch::Batch;
use crate::store::{At, Change, Entry, Event, Expect, ReadError, Revision};

pub use check::Violation;
pub use recorder::{RecordedWatch, Recorder};
pub use workload::Workload;

/// Seeds of runs that found a bug, or that cover a case that no other seed does.
pub const REGRESSION_SEEDS: &[u64] = &[1, 2, 0xC0FFEE];

/// Returns the seeds to run, and prints them: the one in `HOLON_SEED` if set, otherwise the kept ones and a new one.
pub fn seeds() -> Vec<u64> {
    let requested = std::env::var("HOLON_SEED").ok();
    let seeds = match requested.map(|text| text.parse()) {
        Some(Ok(seed)) => vec![seed],
        Some(Err(error)) => panic!("HOLON_SEED is not a number: {error}"),
        None => REGRESSION_SEEDS.iter().copied().chain([u64::from(rand::rng().random::<u32>())]).collect(),
    };
    println!("seeds {seeds:?}; run one of them alone with HOLON_SEED=<seed>");
    seeds
}

/// Nanoseconds since the recorder started, on one monotonic clock for all clients.
pub type Instant = u64;

/// All calls and watches on a range.
#[derive(Clone, Debug)]
pub struct History {
    pub range: Range,
    /// The entries at the beginning.
    pub start: At<Vec<Entry>>,
    pub calls: Vec<Call>,
    pub watches: Vec<WatchHistory>,
}

/// One call of one client.
#[derive(Clone, Debug)]
pub struct Call {
    pub began: Instant,
    /// `None` if the call never returned.
    pub ended: Option<Instant>,
    pub operation: Operation,
}

#[derive(Clone, Debug)]
pub enum Operation {
    Commit {
        key: Key,
        expect: Expect,
        change: Change,
        outcome: Outcome,
    },
    Get {
        key: Key,
        answer: At<Option<Entry>>,
    },
    List {
        answer: At<Vec<Entry>>,
    },
    /// A list at a past revision; its result does not depend on the current state.
    ListAt {
        answer: At<Vec<Entry>>,
    },
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Committed(Event),
    Conflict(At<Option<Entry>>),
    /// The store reported that nothing was written.
    NotWritten,
    /// The store could not report the outcome, or died before it did.
    Unknown,
}

/// Everything that one watch delivered.
#[derive(Clone, Debug)]
pub struct WatchHistory {
    pub range: Range,
    pub after: Revision,
    /// The batches, and up to where the watch was complete. A mere call of `through` adds a batch without events.
    pub batches: Vec<(Instant, Batch)>,
    /// Whether this is the witness: started at the beginning, resumed after every reopening, read to the end.
    pub witness: bool,
    /// The revision that the watch did not reach although it had ample time.
    pub stuck_before: Option<Revision>,
    pub ended_with: Option<ReadError>,
}

impl WatchHistory {
    fn new(range: Range, after: Revision, witness: bool) -> Self {
        WatchHistory { range, after, batches: Vec::new(), witness, stuck_before: None, ended_with: None }
    }

    /// Returns the revision up to which the watch was last complete.
    pub fn through(&self) -> Revision {
        self.batches.last().map_or(self.after, |(_, batch)| batch.through)
    }
}

impl History {
    /// Checks the run. The summary counts what happened: a run in which little happened proves little.
    pub fn check(&self) -> Result<Summary, Vec<Violation>> {
        let violations = check::check(self);
        if violations.is_empty() { Ok(self.summary()) } else { Err(violations) }
    }

    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for call in &self.calls {
            *match &call.operation {
                Operation::Commit { outcome: Outcome::Committed(_), .. } => &mut summary.committed,
                Operation::Commit { outcome: Outcome::Conflict(_), .. } => &mut summary.conflicts,
                Operation::Commit { outcome: Outcome::NotWritten, .. } => &mut summary.not_written,
                Operation::Commit { outcome: Outcome::Unknown, .. } => &mut summary.unknown,
                _ => &mut summary.reads,
            } += 1;
        }
        summary.watches = self.watches.len();
        let batches = self.watches.iter().flat_map(|watched| &watched.batches);
        summary.events = batches.map(|(_, batch)| batch.events.len()).sum();
        summary
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub committed: usize,
    pub conflicts: usize,
    pub not_written: usize,
    pub unknown: usize,
    pub reads: usize,
    pub watches: usize,
    pub events: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { committed, conflicts, not_written, unknown, reads, watches, events } = self;
        write!(
            f,
            "{committed} committed, {conflicts} conflicts, {not_written} not written, {unknown} unknown, "
        )?;
        write!(f, "{reads} reads, {watches} watches with {events} events")
    }
}
