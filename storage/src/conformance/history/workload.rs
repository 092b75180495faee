//! Clients with conflicts: few keys, many writers, and readers and watchers beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Recorder;
use crate::range::{Key, Range};
use crate::store::{Change, CommitError, Expect, Revision, Store};

/// The seed determines the calls of every client, but not the order between clients.
#[derive(Clone, Debug)]
pub struct Workload {
    pub seed: u64,
    pub prefix: String,
    pub keys: usize,
    pub writers: usize,
    pub readers: usize,
    pub watchers: usize,
    /// The calls of each writer and each reader, unless stopped before.
    pub calls: usize,
    stopped: Arc<AtomicBool>,
}

impl Workload {
    pub fn new(seed: u64, prefix: &str) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        Workload {
            seed,
            prefix: prefix.into(),
            keys: rng.random_range(1..6),
            writers: rng.random_range(2..9),
            readers: rng.random_range(1..4),
            watchers: rng.random_range(1..5),
            calls: 150,
            stopped: Arc::default(),
        }
    }

    /// Makes every client of this workload and its clones stop after its current call, now and in later runs. To
    /// continue, start a new workload with the same recorder.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Runs all clients to their end. Errors of the store are recorded, never returned.
    pub async fn run(&self, store: &Arc<dyn Store>, recorder: &Recorder) {
        let (end, stopped) = watch::channel(false);
        let mut clients = JoinSet::new();
        let mut watchers = JoinSet::new();
        // Another run of the same seed makes other calls; otherwise its values would not be unique.
        let run_id = recorder.now();
        for nth in 0..self.writers {
            clients.spawn(self.client(store, recorder, run_id, nth).write());
        }
        for nth in 0..self.readers {
            clients.spawn(self.client(store, recorder, run_id, 100 + nth).read());
        }
        for nth in 0..self.watchers {
            watchers.spawn(self.client(store, recorder, run_id, 200 + nth).watch(stopped.clone()));
        }
        clients.join_all().await;
        let _ = end.send(true);
        watchers.join_all().await;
        // The store may be unavailable; the witness is resumed after it was reopened.
        let _ = recorder.witness(&**store).await;
    }

    fn client(&self, store: &Arc<dyn Store>, recorder: &Recorder, run_id: u64, nth: usize) -> Client {
        let rng = StdRng::seed_from_u64(self.seed.wrapping_mul(1000).wrapping_add(nth as u64));
        let (workload, store, recorder) = (self.clone(), store.clone(), recorder.clone());
        Client { workload, store, recorder, rng, name: format!("{run_id}.{nth}"), believed: HashMap::new() }
    }
}

struct Client {
    workload: Workload,
    store: Arc<dyn Store>,
    recorder: Recorder,
    rng: StdRng,
    name: String,
    /// The last observed state of each key; other clients may have changed it since.
    believed: HashMap<Key, Expect>,
}

impl Client {
    fn some_key(&mut self) -> Key {
        let nth = self.rng.random_range(0..self.workload.keys);
        format!("{}{nth}", self.workload.prefix).into()
    }

    async fn head(&self) -> Option<Revision> {
        let any = Key::from(self.workload.prefix.as_str());
        self.store.get(&any).await.ok().map(|read| read.revision)
    }

    fn continues(&self) -> bool {
        !self.workload.stopped.load(Ordering::Acquire)
    }

    async fn write(mut self) {
        for nth in 0..self.workload.calls {
            if !self.continues() {
                return;
            }
            let key = self.some_key();
            let expect = *self.believed.get(&key).unwrap_or(&Expect::Absent);
            let delete = self.rng.random_bool(if expect == Expect::Absent { 0.05 } else { 0.25 });
            let change = match delete {
                true => Change::Delete,
                false => Change::Put(format!("{}.{nth}", self.name).into()),
            };
            let answer = self.recorder.commit(&*self.store, key.clone(), expect, change).await;
            let current_revision = match answer {
                Ok(event) => Some(event.current.map(|entry| entry.revision())),
                Err(CommitError::Conflict { current }) => Some(current.value.map(|entry| entry.revision())),
                Err(_) => None,
            };
            // Sometimes the client ignores the new state, so that its next write must conflict.
            if let Some(current_revision) = current_revision.filter(|_| self.rng.random_bool(0.9)) {
                self.believed.insert(key, current_revision.map_or(Expect::Absent, Expect::Revision));
            }
            // A store in memory never waits; without this the clients would run one after another.
            tokio::task::yield_now().await;
        }
    }

    async fn read(mut self) {
        let mut earlier = Vec::new();
        for _ in 0..self.workload.calls {
            if !self.continues() {
                return;
            }
            let key = self.some_key();
            let limit = self.rng.random_bool(0.5).then(|| self.rng.random_range(1..4));
            let read = match self.rng.random_range(0..10) {
                0..6 => self.recorder.get(&*self.store, key).await.map(|got| got.revision),
                6..9 => self.recorder.list(&*self.store, limit, None).await,
                _ => {
                    let at = earlier.get(self.rng.random_range(0..earlier.len().max(1))).copied();
                    self.recorder.list(&*self.store, limit, at).await
                }
            };
            earlier.extend(read.ok());
            tokio::task::yield_now().await;
        }
    }

    /// Opens one watch after another, from where the last one ended or from an earlier revision, and reads the last one
    /// to the end.
    async fn watch(mut self, mut end: watch::Receiver<bool>) {
        let all = Range::prefix(self.workload.prefix.as_str());
        let mut after = self.recorder.start_revision();
        loop {
            let range = if self.rng.random_bool(0.6) { all.clone() } else { Range::key(self.some_key()) };
            let Ok(mut watch) = self.recorder.watch(&*self.store, range, after).await else {
                // Compacted or unavailable: another revision may work, unless the run has ended.
                match self.head().await {
                    Some(head) if !*end.borrow() => after = head,
                    _ => return,
                }
                tokio::task::yield_now().await;
                continue;
            };
            for _ in 0..self.rng.random_range(1..40) {
                let patience = Duration::from_micros(self.rng.random_range(0..1000));
                if let Ok(Err(_)) = timeout(patience, watch.next()).await {
                    return;
                }
                if self.rng.random_bool(0.5) {
                    watch.through();
                }
            }
            if *end.borrow_and_update() {
                let Some(head) = self.head().await else { return };
                // A watch that is stuck or failed is recorded.
                let _ = watch.until(head).await;
                return;
            }
            // Resume where this watch ended, or a little earlier, which repeats some events.
            let back = if self.rng.random_bool(0.5) { self.rng.random_range(0..20) } else { 0 };
            after = Revision(watch.through().0.saturating_sub(back)).max(self.recorder.start_revision());
        }
    }
}
