//! Recorded runs on a store with failing calls, and on one that reports failures wrongly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::memory::Memory;
use crate::store::watch::Watch;
use crate::store::{Boxed, CommitError, Listing, Page, Store};

/// An in-memory store of which every few calls fail, some before and some after they took effect.
#[derive(Debug, Default)]
struct Flaky {
    inner: Memory,
    calls: AtomicUsize,
    /// Whether it reports "not written" for some writes that happened.
    lies: bool,
}

impl Flaky {
    fn nth(&self) -> usize {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    fn reach(&self) -> Result<&Memory, ReadError> {
        match self.nth() % 11 {
            0 => Err(ReadError::Unavailable { reason: "a bad line".into() }),
            _ => Ok(&self.inner),
        }
    }
}

impl Store for Flaky {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        Box::pin(async { self.reach()?.get(key).await })
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        Box::pin(async { self.reach()?.list(range, page).await })
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        let reason = || "a bad line".to_string();
        Box::pin(async move {
            match self.nth() % 13 {
                0 => Err(CommitError::Unavailable { reason: reason() }),
                1 => Err(CommitError::Unknown { reason: reason() }),
                2 => match self.inner.commit(key, expect, change).await {
                    Ok(_) if self.lies => Err(CommitError::Unavailable { reason: reason() }),
                    _ => Err(CommitError::Unknown { reason: reason() }),
                },
                _ => self.inner.commit(key, expect, change).await,
            }
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        Box::pin(async move { self.reach()?.watch(range, after).await })
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        self.inner.compact(through)
    }
}

/// Records two runs on the failing store, then one on the same memory without failures.
async fn record(lies: bool) -> History {
    let inner = Memory::new();
    let store: Arc<dyn Store> = Arc::new(Flaky { inner: inner.clone(), lies, ..Flaky::default() });
    let recorder = Recorder::start(&inner, Range::prefix("run/")).await.expect("memory answers");
    let workload = Workload::new(5, "run/");
    workload.run(&store, &recorder).await;
    workload.run(&store, &recorder).await;
    let reopened: Arc<dyn Store> = Arc::new(inner);
    workload.run(&reopened, &recorder).await;
    recorder.finish(&*reopened).await.expect("memory answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_recorded() {
    let judged = record(false).await.check();
    let summary = judged.unwrap_or_else(|violations| panic!("{violations:#?}"));
    assert!(summary.unknown > 10 && summary.not_written > 10 && summary.committed > 100, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_denies_its_writes_is_caught() {
    let violations = record(true).await.check().expect_err("the store reports a false conflict");
    assert!(
        violations.iter().any(|violation| matches!(violation, Violation::Phantom { .. })),
        "{violations:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_workload_ends_early_and_can_be_continued() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let recorder = Recorder::start(&*store, Range::prefix("run/")).await.expect("memory answers");
    for seed in [6, 7] {
        let mut workload = Workload::new(seed, "run/");
        workload.calls = 1_000_000_000;
        let before = recorder.so_far().calls.len();
        let stop = async {
            while recorder.so_far().calls.len() < before + 100 {
                tokio::task::yield_now().await;
            }
            workload.stop();
        };
        tokio::join!(workload.run(&store, &recorder), stop);
    }
    let history = recorder.finish(&*store).await.expect("memory answers");
    history.check().unwrap_or_else(|violations| panic!("{violations:#?}"));
}

/// A client that crashes in the middle of a write leaves a call without a result.
#[tokio::test]
async fn a_dropped_call_counts_as_possibly_written() {
    let store = Memory::new();
    let recorder = Recorder::start(&store, Range::all()).await.expect("memory answers");
    drop(recorder.commit(&store, "never polled".into(), Expect::Absent, Change::Delete));
    let mut commit =
        Box::pin(recorder.commit(&store, "polled".into(), Expect::Absent, Change::Put("x".into())));
    let _ = futures::poll!(&mut commit);
    drop(commit);
    let history = recorder.finish(&store).await.expect("memory answers");
    assert_eq!(
        history.calls.iter().filter(|call| matches!(call.operation, Operation::Commit { .. })).count(),
        1
    );
    history.check().unwrap_or_else(|violations| panic!("{violations:#?}"));
}
