//! A conformance suite for every engine.
//!
//! ```text
//!   suite      the contract, one case per guarantee       each case on its own keys
//!   history    a recorded concurrent run, then checked  real time, expectations, reads, watches
//!   ops        random operations on two stores          both must return the same
//!
//! An engine's test file is three lines per part:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use storage::{Store, conformance, memory::Memory};
//! # async fn conforms() {
//! conformance::run(async || Arc::new(Memory::new()) as Arc<dyn Store>).await;
//! # }
//! ```
//!
//! The cases only assume that revisions increase: a store may start at any revision, and other clients may write to it
//! meanwhile, so revisions may have gaps. `HOLON_CASE=part-of-a-name` runs only some cases.
//!
//! A case about one of etcd's watch guarantees has its name: Ordered, Unique, Reliable, Resumable, Bookmarkable.

mod commits;
mod compaction;
pub mod history;
mod key_space;
mod lists;
mod many_watchers;
pub mod ops;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::store::{Boxed, Store};
use key_space::KeySpace;

/// A case takes a second or two on a slow disk; one that takes this long hangs.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// A test of one guarantee of the contract, which panics if the guarantee is violated.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    story: fn(KeySpace) -> Boxed<'static, ()>,
}

macro_rules! cases {
    ($($file:ident { $($story:ident)* })*) => {
        &[$($(Case { name: stringify!($story), story: |space| Box::pin($file::$story(space)) },)*)*]
    };
}

/// Returns every case, simple guarantees first.
pub fn suite() -> &'static [Case] {
    cases! {
        commits {
            a_key_changes_only_as_expected
            a_deleted_key_is_absent_and_can_come_back
            impossible_expectations_conflict
            a_conflict_is_true_at_its_revision
            one_of_many_racing_writers_wins
            revisions_increase_across_concurrent_writers
            reads_reflect_every_acknowledged_write
            too_large_is_refused_and_nothing_is_written
            keys_and_values_are_any_bytes
            a_dropped_commit_happens_completely_or_not_at_all
        }
        lists {
            pages_add_up_in_key_order
            a_range_excludes_neighbouring_keys
            a_past_revision_reads_as_it_was_read_then
            pages_read_one_snapshot_while_writers_run
            a_future_revision_is_refused
        }
        watches {
            ordered_unique_reliable_from_every_revision
            events_equal_the_results_of_their_writes
            a_narrow_watch_delivers_only_its_keys_and_advances
            a_watch_read_up_to_a_revision_never_waits
            watches_that_start_amid_writes_miss_nothing
            bookmarkable_through_never_outruns_events
            resumable_from_every_reported_revision
        }
        compaction {
            compacted_revisions_are_refused_and_current_entries_remain
            compaction_beyond_the_newest_removes_all_history
            compaction_never_goes_back
            a_watch_behind_compaction_returns_compacted_and_claims_nothing
            a_watch_that_kept_up_continues
            a_watch_during_compaction_never_has_a_gap
            deleted_and_compacted_values_are_released
        }
        many_watchers {
            every_single_write_wakes_its_watcher
            a_cancelled_next_loses_and_doubles_nothing
            a_stalled_watcher_delays_no_other
            a_thousand_watchers_of_one_range
            a_thousand_watchers_of_separate_ranges
        }
    }
}

/// Runs the suite. `open` returns a store for each case: a new one, or always the same one. Prints each case with its
/// time, and panics at the end with the names of those that failed.
pub async fn run(open: impl AsyncFn() -> Arc<dyn Store>) {
    let filter = std::env::var("HOLON_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    for case in suite().iter().filter(|case| case.name.contains(&filter)) {
        let store = open().await;
        let started = Instant::now();
        let outcome = case.run(store).await;
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{verdict:>6} {:6.2} s  {}", started.elapsed().as_secs_f64(), case.name);
        failed.extend(outcome.err().map(|why| format!("{}: {why}", case.name)));
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

impl Case {
    /// Runs this case alone. The error is the panic's message.
    pub async fn run(&self, store: Arc<dyn Store>) -> Result<(), String> {
        // A separate task turns a panic into an error, and a task that hangs can be aborted.
        let task = tokio::spawn((self.story)(KeySpace::new(store)));
        let aborter = task.abort_handle();
        match tokio::time::timeout(CASE_LIMIT, task).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(broken)) => Err(panic_text(broken)),
            Err(_) => {
                aborter.abort();
                Err(format!("not finished after {CASE_LIMIT:?}"))
            }
        }
    }
}

fn panic_text(broken: tokio::task::JoinError) -> String {
    if broken.is_cancelled() {
        return "cancelled".into();
    }
    let panic = broken.into_panic();
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
}
