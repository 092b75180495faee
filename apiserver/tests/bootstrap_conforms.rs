//! A store with bootstrap objects keeps the contract of a store, whatever its template.

mod common;

use std::sync::Arc;

use api::cluster::Id;
use apiserver::clusters::bootstrap::{BootstrapStore, Template};
use apiserver::clusters::records;
use apiserver::clusters::records::LogicalClusterRecord;
use storage::conformance::{self, history, ops};
use storage::memory::Memory;
use storage::{Range, Store};

fn empty() -> Arc<dyn Store> {
    Arc::new(BootstrapStore::new(Arc::new(Memory::new()), Template::default()))
}

fn with_template() -> Arc<dyn Store> {
    Arc::new(BootstrapStore::new(Arc::new(Memory::new()), Template::new(common::objects())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_with_an_empty_template() {
    conformance::run(async || empty()).await;
}

/// There are logical clusters beside the keys of the cases, as in real use.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_with_a_template_and_logical_clusters() {
    conformance::run(async || {
        let store = with_template();
        for number in 0..3 {
            records::write(&*store, Id::new(number), &LogicalClusterRecord::root()).await.unwrap();
        }
        store
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_histories_are_linearizable() {
    for seed in history::seeds() {
        let store = with_template();
        let recorder = history::Recorder::start(&*store, Range::prefix("run/")).await.unwrap();
        history::Workload::new(seed, "run/").run(&store, &recorder).await;
        let judged = recorder.finish(&*store).await.unwrap().check();
        judged.unwrap_or_else(|violations| panic!("seed {seed}: {violations:#?}"));
    }
}

/// The ranges of these operations cover everything, so lists and watches are merged with the template; but there are no
/// records of logical clusters.
#[tokio::test]
async fn agrees_with_the_model_without_logical_clusters() {
    for seed in history::seeds() {
        ops::agree(seed, 300, async || (Arc::new(Memory::new()) as Arc<dyn Store>, with_template())).await;
    }
}
