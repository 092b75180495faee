//! Linearizability on real members, also while members crash.

use std::sync::Arc;
use std::time::Duration;

use storage::conformance::{self, history};
use storage::{Range, Store};

use crate::peer::Etcd as Peer;
use crate::{connect, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs etcd"]
async fn conforms() {
    let etcd = Peer::start("etcd", 1).await;
    let server = connect(options(etcd.endpoints())).await;
    let shared: Arc<dyn Store> = Arc::new(server.store.clone());
    conformance::run(async || shared.clone()).await;
}

/// Two servers serve the clients of one run in turn; the history must look as if there had been one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs etcd"]
async fn concurrent_histories_over_two_servers_are_linearizable() {
    let etcd = Peer::start("etcd", 1).await;
    let one = connect(options(etcd.endpoints())).await;
    let other = connect(options(etcd.endpoints())).await;
    let (one, other): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(one.store.clone()), Arc::new(other.store.clone()));
    for seed in history::seeds() {
        let prefix = format!("run-{seed}/");
        let recorder = history::Recorder::start(&*one, Range::prefix(prefix.as_str())).await.unwrap();
        let (first, second) =
            (history::Workload::new(seed, &prefix), history::Workload::new(seed + 1, &prefix));
        tokio::join!(first.run(&one, &recorder), second.run(&other, &recorder));
        judge(seed, recorder, &*other).await;
    }
}

/// The leader of three members crashes and restarts while clients write.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs etcd"]
async fn a_history_through_the_death_of_the_leader_is_linearizable() {
    let mut etcd = Peer::start("etcd", 3).await;
    let server = connect(options(etcd.endpoints())).await;
    let store: Arc<dyn Store> = Arc::new(server.store.clone());
    for seed in [11, 12] {
        let prefix = format!("run-{seed}/");
        let recorder = history::Recorder::start(&*store, Range::prefix(prefix.as_str())).await.unwrap();
        let workload = history::Workload::new(seed, &prefix);
        let deadly = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let leader = etcd.leader().await;
            etcd.kill(leader);
            tokio::time::sleep(Duration::from_millis(1500)).await;
            etcd.revive(leader);
        };
        let writing = async {
            // Until the leader has died and is back, and once more after that.
            for _ in 0..4 {
                workload.run(&store, &recorder).await;
            }
        };
        tokio::join!(deadly, writing);
        judge(seed, recorder, &*store).await;
    }
}

async fn judge(seed: u64, recorder: history::Recorder, store: &dyn Store) {
    let judged = recorder.finish(store).await.unwrap().check();
    let summary = judged.unwrap_or_else(|violations| panic!("seed {seed}: {violations:#?}"));
    println!("seed {seed}: {summary}");
    assert!(summary.committed >= 100 && summary.reads > 0, "{summary}");
}
