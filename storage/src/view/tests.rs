//! The View under a fake engine: the suite, recorded histories, lock-step with the model.

use std::sync::Arc;

use super::fake_engine::{FakeEngine, Shape};
use super::*;
use crate::conformance::{self, history, ops};
use crate::memory::Memory;
use crate::store::{Change, Expect, Store};

/// Nearly everything must be read from history.
const SHORT_TAIL: Shape = Shape { tail_events: 8, start: 0, gap: 0 };
/// Nothing must be read from history.
const LONG_TAIL: Shape = Shape { tail_events: 100_000, start: 0, gap: 0 };
/// As in an old etcd that other clients also write to.
const WITH_GAPS: Shape = Shape { tail_events: 8, start: 1_000_000, gap: 2 };

fn engine(shape: Shape) -> Arc<dyn Store> {
    Arc::new(FakeEngine::open(shape))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_view_with_a_short_tail_conforms() {
    conformance::run(async || engine(SHORT_TAIL)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_view_with_a_long_tail_conforms() {
    conformance::run(async || engine(LONG_TAIL)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shared_view_with_gaps_conforms() {
    let shared = engine(WITH_GAPS);
    conformance::run(async || shared.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_histories_are_linearizable() {
    for seed in history::seeds() {
        for shape in [SHORT_TAIL, LONG_TAIL, WITH_GAPS] {
            let store = engine(shape);
            let recorder = history::Recorder::start(&*store, Range::prefix("run/")).await.expect("answers");
            let workload = history::Workload::new(seed, "run/");
            workload.run(&store, &recorder).await;
            workload.run(&store, &recorder).await;
            let judged = recorder.finish(&*store).await.expect("answers").check();
            let summary = judged.unwrap_or_else(|violations| panic!("seed {seed}: {violations:#?}"));
            println!("seed {seed}: {summary}");
            assert!(summary.committed >= 100 && summary.conflicts > 0 && summary.reads > 0, "{summary}");
        }
    }
}

#[tokio::test]
async fn a_view_agrees_with_the_model() {
    for seed in (0..25).chain(history::seeds()) {
        for shape in [SHORT_TAIL, LONG_TAIL] {
            let open = async || (Arc::new(Memory::new()) as Arc<dyn Store>, engine(shape));
            ops::agree(seed, 300, open).await;
        }
    }
}

/// A stalled watcher holds two numbers, and the tail stays within its bound.
#[tokio::test]
async fn a_stalled_watcher_costs_no_memory() {
    let engine = FakeEngine::open(SHORT_TAIL);
    let mut stalled = engine.watch(Range::all(), Revision::ZERO).await.expect("kept");
    let mut expect = Expect::Absent;
    for _ in 0..1000 {
        let event = engine.commit("k".into(), expect, Change::Put("value".into())).await.expect("alone");
        expect = Expect::Revision(event.revision);
        assert!(engine.view.tail.read().len() <= SHORT_TAIL.tail_events);
    }
    let mut seen = 0;
    while seen < 1000 {
        seen += stalled.next().await.expect("kept").events.len();
    }
}
