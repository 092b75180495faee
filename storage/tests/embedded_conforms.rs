//! The embedded store keeps the contract, agrees with the model, and recovers from a kill at any step.

mod disk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use storage::conformance::ops::{LockStep, Op, StepResult};
use storage::conformance::{self, history, ops};
use storage::embedded::{Embedded, Options, Probe};
use storage::memory::Memory;
use storage::{Range, Store};

/// A temporary directory with a fresh subdirectory for each store.
struct Dirs(tempfile::TempDir, AtomicUsize);

impl Dirs {
    fn new() -> Dirs {
        Dirs(tempfile::tempdir().unwrap(), AtomicUsize::new(0))
    }

    fn next(&self) -> PathBuf {
        self.0.path().join(self.1.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

fn open(dir: &Path, options: Options) -> Arc<dyn Store> {
    Arc::new(Embedded::open(dir, options).unwrap())
}

/// So few events in memory that most watches and past lists are read from disk.
fn short_tail() -> Options {
    Options { tail_events: Some(8), ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    let dirs = Dirs::new();
    conformance::run(async || open(&dirs.next(), Options::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_with_its_history_on_disk() {
    let dirs = Dirs::new();
    conformance::run(async || open(&dirs.next(), short_tail())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_histories_are_linearizable_across_reopening() {
    let dirs = Dirs::new();
    for seed in history::seeds() {
        let dir = dirs.next();
        let store = open(&dir, short_tail());
        let recorder = history::Recorder::start(&*store, Range::prefix("run/")).await.unwrap();
        let workload = history::Workload::new(seed, "run/");
        workload.run(&store, &recorder).await;
        drop(store);
        let store = open(&dir, Options::default());
        workload.run(&store, &recorder).await;
        let judged = recorder.finish(&*store).await.unwrap().check();
        let summary = judged.unwrap_or_else(|violations| panic!("seed {seed}: {violations:#?}"));
        println!("seed {seed}: {summary}");
        assert!(summary.committed >= 100 && summary.conflicts > 0 && summary.reads > 0, "{summary}");
    }
}

#[tokio::test]
async fn agrees_with_the_model() {
    let dirs = Dirs::new();
    for seed in (100..110).chain(history::seeds()) {
        let fresh = async || (Arc::new(Memory::new()) as Arc<dyn Store>, open(&dirs.next(), short_tail()));
        ops::agree(seed, 300, fresh).await;
    }
}

/// Every step at which the process can crash, with the names that the writer uses.
const STEPS: &[&str] = &["appending", "durable", "marked", "published", "compacting", "compacted"];

/// Runs random operations; sometimes the process "crashes" at one of the writer's steps: the operation gets no result,
/// and the store is opened again on the disk as it was at that instant.
#[tokio::test]
async fn agrees_with_the_model_across_a_kill_at_every_step() {
    let dirs = Dirs::new();
    let mut kills = [0; STEPS.len()];
    for seed in (200..212).chain(history::seeds()) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut process = StoreProcess::begin(&dirs, dirs.next());
        let mut pair = LockStep::new(Arc::new(Memory::new()), process.store());
        for op in ops::random(seed, 300) {
            // Compactions are rare, and have steps of their own.
            let (steps, deadly) = match op {
                Op::Compact { .. } => (4..6, 0.5),
                _ => (0..4, 0.08),
            };
            let step = random.random_range(steps);
            if random.random_bool(deadly) {
                process.die_at(STEPS[step]);
            }
            let outcome = tokio::select! {
                biased;
                image = process.died() => Err(image),
                done = pair.step(&op) => Ok(done.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))),
            };
            match outcome {
                Ok(done) => assert_eq!(done, StepResult::Done, "seed {seed}"),
                Err(image) => {
                    kills[step] += 1;
                    process = StoreProcess::begin(&dirs, image);
                    pair.reopen(process.store())
                        .await
                        .unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
                }
            }
            process.die_at("never");
        }
        pair.finish().await.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
    println!("kills at {STEPS:?}: {kills:?}");
    assert!(kills.iter().all(|kills| *kills > 0), "some step was never hit: {kills:?}");
}

/// A simulated process with a store: a probe copies the disk at the chosen step, reports it, and blocks.
struct StoreProcess {
    store: Option<Arc<dyn Store>>,
    step: Arc<parking_lot::Mutex<&'static str>>,
    images: tokio::sync::mpsc::UnboundedReceiver<PathBuf>,
}

impl StoreProcess {
    fn begin(dirs: &Dirs, dir: PathBuf) -> StoreProcess {
        let step = Arc::new(parking_lot::Mutex::new("never"));
        let (sender, images) = tokio::sync::mpsc::unbounded_channel();
        let (chosen, from, to) = (step.clone(), dir.clone(), dirs.next());
        let probe: Probe = Arc::new(move |step| {
            if *chosen.lock() == step {
                *chosen.lock() = "never";
                disk::copy(&from, &to);
                sender.send(to.clone()).unwrap();
                // A crashed process returns no result. When the writer continued after this point, its result could
                // overtake the report of its death; the copy was then taken for a death during the next operation, and
                // the write that had been answered in between for a lost one.
                while !sender.is_closed() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let store = open(&dir, Options { probe: Some(probe), ..short_tail() });
        StoreProcess { store: Some(store), step, images }
    }

    /// Returns the store; it is closed when the caller drops it.
    fn store(&mut self) -> Arc<dyn Store> {
        self.store.take().unwrap()
    }

    fn die_at(&self, step: &'static str) {
        *self.step.lock() = step;
    }

    async fn died(&mut self) -> PathBuf {
        self.images.recv().await.unwrap()
    }
}
