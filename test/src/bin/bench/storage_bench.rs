//! The embedded store beside a single etcd member: same machine, same run, same sizes, same number of
//! clients, both synced to the same disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Subcommand;
use rand::{Rng, RngExt};
use storage::embedded::{Embedded, Options};
use storage::{Change, Expect, Key, Range, Revision, Store};
use tokio::task::JoinSet;

use crate::measure::{Measurement, median, percentile_ms, print, rss_bytes};

const VALUE_BYTES: usize = 2048;
const WRITERS: [usize; 4] = [1, 16, 64, 256];
const WATCHERS: usize = 1000;
/// Enough quota for the data that is written, and etcd's default election timeouts, for a member whose disk is kept
/// busy.
const ETCD_FLAGS: [&str; 3] =
    ["--quota-backend-bytes=8589934592", "--heartbeat-interval=100", "--election-timeout=1000"];

pub(crate) async fn run(quick: bool, json: &Path) -> Result<()> {
    let (rounds, seconds) = if quick { (1, 2) } else { (5, 5) };
    let scratch = tempfile::tempdir_in(std::env::current_dir()?.join("target"))?;
    println!("starting etcd and an embedded store in {}", scratch.path().display());
    let program =
        testkit::peers::find("etcd").context("the peer etcd is not installed; run hack/peers etcd")?;
    let etcd = testkit::peers::Etcd::start_with(program, 1, "http", &ETCD_FLAGS, scratch.path());
    let ours: Arc<dyn Store> = Arc::new(Embedded::open(&scratch.path().join("ours"), Options::default())?);
    let ours = BenchedStore::Ours(ours);
    let theirs = BenchedStore::Etcd(Box::new(etcd_client::Client::connect([etcd.endpoint(0)], None).await?));
    let mut rows = Vec::new();
    for writers in WRITERS {
        rows.extend(compare_writes("", &ours, &theirs, writers, rounds, Duration::from_secs(seconds)).await?);
    }
    let (through_etcd, feed) =
        storage::etcd::Etcd::connect(storage::etcd::Options::new([etcd.endpoint(0)])).await?;
    let feed = tokio::spawn(feed.run());
    let through_etcd = BenchedStore::Ours(Arc::new(through_etcd));
    let time = Duration::from_secs(seconds);
    rows.extend(compare_writes("Holon's etcd engine: ", &through_etcd, &theirs, 64, rounds, time).await?);
    drop(through_etcd);
    feed.abort();
    rows.extend(compare_reads(&ours, &theirs, rounds, Duration::from_secs(seconds)).await?);
    rows.extend(compare_fan_out(&ours, &theirs, if quick { 200 } else { 1000 }).await?);
    drop((ours, theirs, etcd));
    rows.extend(start_up(scratch.path(), if quick { &[100_000] } else { &[100_000, 1_000_000] })?);
    print(&rows);
    if let Some(parent) = json.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(json, serde_json::to_vec_pretty(&rows)?)?;
    println!("\nfigures written to {}", json.display());
    Ok(())
}

/// The store under test. Both get the same operations.
#[derive(Clone)]
enum BenchedStore {
    Ours(Arc<dyn Store>),
    Etcd(Box<etcd_client::Client>),
}

impl BenchedStore {
    /// Writes a new key durably.
    async fn create(&mut self, key: &str, value: Bytes) -> Result<()> {
        match self {
            BenchedStore::Ours(store) => {
                store.commit(Key::from(key), Expect::Absent, Change::Put(value)).await?;
            }
            BenchedStore::Etcd(client) => {
                use etcd_client::{Compare, CompareOp, Txn, TxnOp};
                let absent = Compare::mod_revision(key, CompareOp::Equal, 0);
                let put = TxnOp::put(key, value.as_ref(), None);
                let txn = Txn::new().when([absent]).and_then([put]).or_else([TxnOp::get(key, None)]);
                ensure!(client.txn(txn).await?.succeeded(), "{key} exists");
            }
        }
        Ok(())
    }

    /// Reads the newest value.
    async fn get(&mut self, key: &str) -> Result<()> {
        let found = match self {
            BenchedStore::Ours(store) => store.get(&Key::from(key)).await?.value.is_some(),
            BenchedStore::Etcd(client) => !client.get(key, None).await?.kvs().is_empty(),
        };
        ensure!(found, "{key} is missing");
        Ok(())
    }
}

fn value() -> Bytes {
    // Random letters, so that compression favors neither side.
    let mut rng = rand::rng();
    (0..VALUE_BYTES).map(|_| rng.random_range(b'a'..=b'z')).collect::<Vec<u8>>().into()
}

struct Load {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Runs `clients` clients at once for `time`, each with one operation after the other.
async fn load<F, Fut>(target: &BenchedStore, clients: usize, time: Duration, operation: F) -> Result<Load>
where
    F: Fn(BenchedStore, u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send,
{
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..clients {
        let (target, operation, stop) = (target.clone(), operation.clone(), stop.clone());
        tasks.spawn(async move {
            let mut samples = Vec::new();
            let first: u64 = rand::rng().next_u64() >> 20;
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                operation(target.clone(), first + samples.len() as u64).await?;
                samples.push(begun.elapsed());
            }
            anyhow::Ok(samples)
        });
    }
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut samples = Vec::new();
    while let Some(finished) = tasks.join_next().await {
        samples.extend(finished??);
    }
    let per_second = samples.len() as f64 / begun.elapsed().as_secs_f64();
    Ok(Load {
        per_second,
        p50_ms: percentile_ms(&mut samples, 0.50),
        p99_ms: percentile_ms(&mut samples, 0.99),
    })
}

/// Runs several rounds of the two in turn, so that other load on the machine affects both; returns medians.
async fn alternate<F, Fut>(
    ours: &BenchedStore,
    theirs: &BenchedStore,
    clients: usize,
    (rounds, time): (usize, Duration),
    operation: F,
) -> Result<[Load; 2]>
where
    F: Fn(BenchedStore, u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send,
{
    let mut loads = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        loads[0].push(load(ours, clients, time, operation.clone()).await?);
        loads[1].push(load(theirs, clients, time, operation.clone()).await?);
    }
    Ok(loads.map(|rounds| {
        let of = |figure: fn(&Load) -> f64| median(&mut rounds.iter().map(figure).collect::<Vec<_>>());
        Load {
            per_second: of(|load| load.per_second),
            p50_ms: of(|load| load.p50_ms),
            p99_ms: of(|load| load.p99_ms),
        }
    }))
}

async fn compare_writes(
    engine: &str,
    ours: &BenchedStore,
    theirs: &BenchedStore,
    writers: usize,
    rounds: usize,
    time: Duration,
) -> Result<Vec<Measurement>> {
    println!("{engine}writing with {writers} at once");
    let value = value();
    let operation = move |mut target: BenchedStore, number: u64| {
        let value = value.clone();
        async move { target.create(&format!("bench/configmaps/lc1/default/object-{number:016}"), value).await }
    };
    let [ours, theirs] = alternate(ours, theirs, writers, (rounds, time), operation).await?;
    let target = (writers == 64 && engine.is_empty()).then_some("≥ 3×");
    Ok(vec![
        Measurement::rate(
            format!("{engine}durable writes, {writers} writers"),
            "1/s",
            ours.per_second,
            theirs.per_second,
            target,
        ),
        Measurement::cost(format!("{engine}write p50, {writers} writers"), "ms", ours.p50_ms, theirs.p50_ms),
        Measurement::cost(format!("{engine}write p99, {writers} writers"), "ms", ours.p99_ms, theirs.p99_ms),
    ])
}

async fn compare_reads(
    ours: &BenchedStore,
    theirs: &BenchedStore,
    rounds: usize,
    time: Duration,
) -> Result<Vec<Measurement>> {
    const KEYS: u64 = 1000;
    println!("reading with 64 at once");
    for number in 0..KEYS {
        let key = format!("bench/read/{number}");
        ours.clone().create(&key, value()).await?;
        theirs.clone().create(&key, value()).await?;
    }
    let operation = |mut target: BenchedStore, number: u64| async move {
        target.get(&format!("bench/read/{}", number % KEYS)).await?;
        // In one process no operation ever waits, so without this the timer that ends the round would never run.
        if number.is_multiple_of(64) {
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    let [ours, theirs] = alternate(ours, theirs, 64, (rounds, time), operation).await?;
    Ok(vec![Measurement::rate(
        "consistent reads, 64 readers",
        "1/s",
        ours.per_second,
        theirs.per_second,
        None,
    )])
}

/// One writer and many watchers of the same prefix: measures the time until the last watcher has the event.
async fn compare_fan_out(
    ours: &BenchedStore,
    theirs: &BenchedStore,
    writes: usize,
) -> Result<Vec<Measurement>> {
    println!("one writer, {WATCHERS} watchers, {writes} writes");
    let (ours, theirs) = (fan_out(ours.clone(), writes).await?, fan_out(theirs.clone(), writes).await?);
    Ok(vec![
        Measurement::rate(
            format!("events delivered, {WATCHERS} watchers"),
            "1/s",
            ours.per_second,
            theirs.per_second,
            None,
        ),
        Measurement::cost("event at a watcher, p50 after the write began", "ms", ours.p50_ms, theirs.p50_ms),
        Measurement::cost("event at a watcher, p99 after the write began", "ms", ours.p99_ms, theirs.p99_ms),
    ])
}

async fn fan_out(mut target: BenchedStore, writes: usize) -> Result<Load> {
    let prefix = format!("bench/watch/{}/", rand::rng().next_u64());
    let epoch = Instant::now();
    let ready = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..WATCHERS {
        let (target, prefix, ready) = (target.clone(), prefix.clone(), ready.clone());
        tasks.spawn(watch_all(target, prefix, writes, epoch, ready));
    }
    while ready.load(Ordering::Acquire) < WATCHERS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    for number in 0..writes {
        // The value begins with the time of the write, padded to the usual size.
        let mut value = vec![b'.'; VALUE_BYTES];
        value[..16].copy_from_slice(&epoch.elapsed().as_nanos().to_le_bytes());
        target.create(&format!("{prefix}{number}"), value.into()).await?;
    }
    let mut lags = Vec::new();
    while let Some(finished) = tasks.join_next().await {
        lags.extend(finished??);
    }
    ensure!(lags.len() == writes * WATCHERS, "{} events of {}", lags.len(), writes * WATCHERS);
    let per_second = lags.len() as f64 / begun.elapsed().as_secs_f64();
    Ok(Load { per_second, p50_ms: percentile_ms(&mut lags, 0.50), p99_ms: percentile_ms(&mut lags, 0.99) })
}

async fn watch_all(
    target: BenchedStore,
    prefix: String,
    writes: usize,
    epoch: Instant,
    ready: Arc<AtomicUsize>,
) -> Result<Vec<Duration>> {
    let lag = |value: &[u8]| {
        let written = u128::from_le_bytes(value[..16].try_into().expect("sixteen bytes"));
        epoch.elapsed().saturating_sub(Duration::from_nanos(written as u64))
    };
    let mut lags = Vec::with_capacity(writes);
    match target {
        BenchedStore::Ours(store) => {
            let now = store.get(&Key::from("")).await?.revision;
            let mut watch = store.watch(Range::prefix(prefix), now).await?;
            ready.fetch_add(1, Ordering::Release);
            while lags.len() < writes {
                let batch = watch.next().await?;
                lags.extend(
                    batch.events.iter().filter_map(|event| event.current.as_ref()).map(|e| lag(e.value())),
                );
            }
        }
        BenchedStore::Etcd(mut client) => {
            let options = etcd_client::WatchOptions::new().with_prefix();
            let mut stream = client.watch(prefix, Some(options)).await?;
            ready.fetch_add(1, Ordering::Release);
            while lags.len() < writes {
                let response = stream.message().await?.context("the watch ended")?;
                lags.extend(
                    response.events().iter().filter_map(|event| event.kv()).map(|kv| lag(kv.value())),
                );
            }
        }
    }
    Ok(lags)
}

/// Fills a store in one process and opens it in another: measures the time to open and the memory per entry.
fn start_up(scratch: &Path, sizes: &[usize]) -> Result<Vec<Measurement>> {
    let mut rows = Vec::new();
    for entries in sizes {
        println!("filling a store with {entries} entries, then opening it");
        let dir = scratch.join(format!("start-{entries}"));
        let program = std::env::current_exe()?;
        let child = |command: &str| -> Result<serde_json::Value> {
            let output = std::process::Command::new(&program)
                .args(["child", command, "--entries", &entries.to_string(), "--dir"])
                .arg(&dir)
                .output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(serde_json::from_slice(&output.stdout)?)
        };
        let filled = child("fill")?;
        let opened = child("open")?;
        let figure = |of: &serde_json::Value, name: &str| of[name].as_f64().context("no figure");
        let large = *entries == 1_000_000;
        rows.push(Measurement::alone(
            format!("open a store of {entries} entries"),
            "s",
            figure(&opened, "seconds")?,
            large.then_some("≤ 10 s"),
        ));
        rows.push(Measurement::alone(
            format!("memory per entry beyond its bytes, opened with {entries}"),
            "B",
            figure(&opened, "overhead")?,
            Some("≤ 400 B"),
        ));
        rows.push(Measurement::alone(
            format!("memory per entry beyond its bytes, after writing {entries}"),
            "B",
            figure(&filled, "overhead")?,
            None,
        ));
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(rows)
}

#[derive(Subcommand)]
pub(crate) enum Child {
    Fill {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        entries: usize,
    },
    Open {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        entries: usize,
    },
}

impl Child {
    pub(crate) fn run(self) -> Result<()> {
        let before = rss_bytes()?;
        let begun = Instant::now();
        let (dir, entries, filling) = match &self {
            Child::Fill { dir, entries } => (dir, *entries, true),
            Child::Open { dir, entries } => (dir, *entries, false),
        };
        let store =
            Arc::new(Embedded::open(dir, Options { progress: Arc::new(|_| {}), ..Options::default() })?);
        let seconds = begun.elapsed().as_secs_f64();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            if filling {
                fill_store(store.clone(), entries).await?;
            }
            let head = store.get(&Key::from("")).await?.revision;
            ensure!(head == Revision(entries as u64), "{head} instead of {entries}");
            anyhow::Ok(())
        })?;
        let value_and_key_bytes = (VALUE_BYTES + key(0).len()) as f64;
        let overhead = (rss_bytes()? - before) as f64 / entries as f64 - value_and_key_bytes;
        println!("{}", serde_json::json!({ "seconds": seconds, "overhead": overhead }));
        Ok(())
    }
}

fn key(number: usize) -> String {
    // Distributes the keys over the key space, like the objects of many logical clusters.
    let hash = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("core/configmaps/{:08x}/default/object-{number:010}", hash >> 32)
}

async fn fill_store(store: Arc<Embedded>, entries: usize) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..512 {
        let (store, next) = (store.clone(), next.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= entries {
                    return anyhow::Ok(());
                }
                // Allocates each value separately, as values from requests are.
                store.commit(Key::from(key(number)), Expect::Absent, Change::Put(value())).await?;
            }
        });
    }
    while let Some(finished) = tasks.join_next().await {
        finished??;
    }
    Ok(())
}
