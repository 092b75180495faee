//! A process is killed with SIGKILL while it writes, again and again, on the same store; several stores side by side.
//!
//! The child writes with several tasks at once and reports each acknowledged write through a pipe. The parent kills it
//! at a random instant, opens the store itself and checks:
//!
//! * no acknowledged write is missing or changed;
//! * no unacknowledged write is partial: each value carries a checksum of itself;
//! * revisions never repeat: a revision always has the change that was first reported for it.
//!
//! Half of the runs compact their history all the time, so that kills hit compaction too.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use storage::embedded::{Embedded, Options};
use storage::{Change, Expect, Key, Page, Range, Revision, Store};

/// More with `HOLON_KILLS=10000`, for a whole night.
const KILLS: usize = 200;
/// Stores that are killed side by side. A check reads everything that was ever written, so four short histories take a
/// quarter of the time of a long one.
const STORES: u64 = 4;
const WRITERS: u64 = 16;
const KEYS_EACH: u64 = 5;
const DIR: &str = "HOLON_CRASH_DIR";
const COMPACTING: &str = "HOLON_CRASH_COMPACTING";
const STORE_SEED: &str = "HOLON_CRASH_SEED";

fn options(compacting: bool) -> Options {
    let history_age = if compacting { Duration::from_millis(5) } else { Duration::from_secs(3600) };
    Options { history_age, progress: Arc::new(|_| {}), ..Options::default() }
}

/// Returns a value whose truncation or mix-up would be noticed: writer, number, padding, checksum.
fn value(writer: u64, number: u64) -> Vec<u8> {
    let filling = "x".repeat((number as usize * 37) % 200);
    let text = format!("{writer} {number} {filling}");
    format!("{text} {:x}", checksum(&text)).into_bytes()
}

fn read(value: &[u8]) -> (u64, u64) {
    let text = std::str::from_utf8(value).expect("text");
    let (text, checksum_text) = text.rsplit_once(' ').expect("a checksum");
    assert_eq!(checksum_text, format!("{:x}", checksum(text)), "a value is incomplete");
    let mut fields = text.split(' ');
    let mut number = || fields.next().and_then(|field| field.parse().ok()).expect("a number");
    (number(), number())
}

fn checksum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Not a test by itself: the process that is killed. It writes until then.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let compacting = std::env::var_os(COMPACTING).is_some();
    // Ends the line that the test harness has begun.
    print("\n");
    let store =
        Arc::new(Embedded::open(Path::new(&dir), options(compacting)).expect("the store opens after a kill"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        futures::future::join_all((0..WRITERS).map(|writer| write_forever(store.clone(), writer))).await;
    });
}

async fn write_forever(store: Arc<Embedded>, writer: u64) {
    let mut number = 0;
    let mut revisions = HashMap::new();
    for key in 0..KEYS_EACH {
        if let Some(entry) = store.get(&Key::from(format!("{writer}/{key}"))).await.unwrap().value {
            number = number.max(read(entry.value()).1);
            revisions.insert(key, entry.revision());
        }
    }
    loop {
        number += 1;
        let key = number % KEYS_EACH;
        let expect = revisions.get(&key).map_or(Expect::Absent, |revision| Expect::Revision(*revision));
        // Some writes are deletions; a deleted entry must not reappear.
        let change = match revisions.contains_key(&key) && number % 11 == 0 {
            true => Change::Delete,
            false => Change::Put(value(writer, number).into()),
        };
        let deleted = change == Change::Delete;
        if deleted {
            print(&format!("try {writer} {key}\n"));
        }
        let event = store.commit(Key::from(format!("{writer}/{key}")), expect, change).await.unwrap();
        match deleted {
            true => revisions.remove(&key),
            false => revisions.insert(key, event.revision),
        };
        let operation = if deleted { 'd' } else { 'p' };
        print(&format!("ack {} {writer} {key} {number} {operation}\n", event.revision));
    }
}

fn print(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Everything that was ever acknowledged.
#[derive(Default)]
struct AckLog {
    /// By revision: the key, and the number written, or `None` for a deletion.
    by_revision: HashMap<u64, (String, Option<u64>)>,
    newest: HashMap<String, u64>,
    /// Keys with an unacknowledged deletion, which may have happened.
    deleting: HashSet<String>,
}

impl AckLog {
    fn read_line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("try ") {
            self.deleting.insert(rest.replace(' ', "/"));
        }
        let Some(rest) = line.strip_prefix("ack ") else { return };
        let fields: Vec<&str> = rest.split(' ').collect();
        let &[revision, writer, key, number, operation] = fields.as_slice() else { panic!("{line:?}") };
        let (revision, number): (u64, u64) = (revision.parse().unwrap(), number.parse().unwrap());
        let key = format!("{writer}/{key}");
        self.deleting.remove(&key);
        let before = self.by_revision.insert(revision, (key.clone(), (operation == "p").then_some(number)));
        assert_eq!(before, None, "revision {revision} was acknowledged twice");
        let newest = self.newest.entry(key).or_default();
        *newest = revision.max(*newest);
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_two_hundred_kills() {
    let seed = std::env::var("HOLON_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("HOLON_SEED={seed}");
    let parent =
        |store: u64| this_test("parent").env(STORE_SEED, (seed + store).to_string()).spawn().unwrap();
    let parents: Vec<_> = (0..STORES).map(parent).collect();
    let ended: Vec<_> = parents.into_iter().map(|mut parent| parent.wait().unwrap()).collect();
    assert!(ended.iter().all(|ended| ended.success()), "{ended:?}");
}

/// Not a test by itself: kills the processes of one store, in a process of its own. A process inherits the lock of a store
/// until it executes its program, so a process that opens stores must not start processes at the same time.
#[test]
fn parent() {
    let Some(seed) = std::env::var(STORE_SEED).ok().and_then(|seed| seed.parse().ok()) else { return };
    let kills = std::env::var("HOLON_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    kill_repeatedly(seed, kills / STORES as usize);
}

/// Returns the command that runs one test of this file in a process of its own.
fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}

/// Kills one store's process again and again, and checks after each kill that every acknowledged write is in the store.
fn kill_repeatedly(seed: u64, kills: usize) {
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut acks = AckLog::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    for round in 0..kills {
        let compacting = round % 2 == 1;
        run_and_kill(dir.path(), compacting, Duration::from_millis(random.random_range(1..40)), &mut acks);
        let store = Embedded::open(dir.path(), options(false)).expect("the store opens after a kill");
        runtime.block_on(check(&store, &acks));
    }
    let acknowledged = acks.by_revision.len();
    println!("seed {seed}: {kills} kills, {acknowledged} acknowledged writes, {:?}", begun.elapsed());
    assert!(acknowledged > kills * 10, "only {acknowledged} writes: nothing was tested");
}

/// Starts a child, lets it write for a while after its first acknowledgement, and kills it.
fn run_and_kill(dir: &Path, compacting: bool, time: Duration, acks: &mut AckLog) {
    let mut command = this_test("child");
    command.env(DIR, dir).stdout(Stdio::piped());
    if compacting {
        command.env(COMPACTING, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("ack ") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the child ended by itself");
        acks.read_line(line.trim_end());
    }
    // A sleep is right here: the kill must come at a random instant.
    let killer = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(time);
            child.kill().unwrap();
            killer.store(1, Ordering::Relaxed);
        });
        // Keeps reading, because a full pipe would stop the child.
        loop {
            line.clear();
            if lines.read_line(&mut line).unwrap() == 0 {
                break;
            }
            if line.ends_with('\n') {
                acks.read_line(line.trim_end());
            }
        }
    });
    assert_eq!(killer.into_inner(), 1, "the child ended by itself");
    child.wait().unwrap();
}

async fn check(store: &Embedded, acks: &AckLog) {
    let listed = store.list(Range::all(), Page::default()).await.unwrap();
    let mut newest: HashMap<String, (u64, u64)> = HashMap::new();
    for entry in &listed.value.entries {
        let (writer, number) = read(entry.value());
        let key = String::from_utf8(entry.key().as_bytes().to_vec()).unwrap();
        assert!(key.starts_with(&format!("{writer}/")), "{key} holds a value of {writer}");
        newest.insert(key, (entry.revision().0, number));
    }
    for (key, revision) in &acks.newest {
        let (_, number) = &acks.by_revision[revision];
        match (newest.get(key), number) {
            // One more write may be durable that was never acknowledged.
            (Some((found, _)), _) if found > revision => {}
            (Some((found, value)), Some(number)) => assert_eq!((found, value), (revision, number), "{key}"),
            (None, None) => {}
            (None, Some(_)) => assert!(
                acks.deleting.contains(key),
                "{key}: revision {revision} was acknowledged and is missing"
            ),
            (Some(found), None) => panic!("{key} was deleted at {revision} and exists again: {found:?}"),
        }
    }
    check_history(store, acks, listed.revision).await;
}

/// Checks that every event that is still in the history equals what was reported of its revision.
async fn check_history(store: &Embedded, acks: &AckLog, head: Revision) {
    let oldest = match store.watch(Range::all(), Revision::ZERO).await {
        Ok(_) => Revision::ZERO,
        Err(storage::ReadError::Compacted { oldest, .. }) => oldest,
        Err(error) => panic!("{error}"),
    };
    let mut watch = store.watch(Range::all(), oldest).await.unwrap();
    let mut next = oldest.0 + 1;
    while watch.through() < head {
        for event in watch.next().await.unwrap().events {
            assert_eq!(event.revision.0, next, "a revision is missing or repeated");
            next += 1;
            let number = event.current.as_ref().map(|entry| read(entry.value()).1);
            if let Some((key, written)) = acks.by_revision.get(&event.revision.0) {
                assert_eq!(
                    (key.as_bytes(), written),
                    (event.key.as_bytes(), &number),
                    "at {}",
                    event.revision
                );
            }
        }
    }
    assert_eq!(next, head.0 + 1);
}
