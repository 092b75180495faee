//! The in-memory engine keeps the contract.

use std::sync::Arc;

use storage::conformance::{self, history, ops};
use storage::memory::Memory;
use storage::{Range, Store};

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    conformance::run(async || memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shared_store_conforms() {
    let shared = memory();
    conformance::run(async || shared.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_histories_are_linearizable() {
    for seed in history::seeds() {
        let store = memory();
        let recorder = history::Recorder::start(&*store, Range::prefix("run/")).await.expect("answers");
        history::Workload::new(seed, "run/").run(&store, &recorder).await;
        let judged = recorder.finish(&*store).await.expect("answers").check();
        let summary = judged.unwrap_or_else(|violations| panic!("seed {seed}: {violations:#?}"));
        println!("seed {seed}: {summary}");
        assert!(summary.committed >= 100 && summary.conflicts > 0 && summary.reads > 0, "{summary}");
    }
}

#[tokio::test]
async fn agrees_with_itself() {
    for seed in history::seeds() {
        ops::agree(seed, 500, async || (memory(), memory())).await;
    }
}
