//! Disk failures: each system call in turn, and all of them for a while.
//!
//! A child process writes with a preloaded shim that makes chosen calls fail (`faults/shim.c`). Whatever fails, no
//! acknowledged write may be missing afterwards, reads must continue, and the store must open again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use storage::embedded::{Embedded, Health, Options};
use storage::{Change, CommitError, Expect, Key, Page, Range, Revision, Store};

const DIR: &str = "HOLON_FAULTS_DIR";
const FULL: &str = "FAULT_FILE";
const ONLY: &str = "FAULT_ONLY";
const SHADOW: &str = "FAULT_SHADOW";
const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const SHORT: i32 = -1;

fn options() -> Options {
    Options { free_bytes_min: 0, progress: Arc::new(|_| {}), ..Options::default() }
}

/// Compiles the shim, once per test process.
fn shim() -> PathBuf {
    static SHIM: std::sync::LazyLock<tempfile::TempDir> = std::sync::LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/shim.c");
        let status = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(dir.path().join("shim.so"))
            .args([source, "-ldl"])
            .status()
            .unwrap_or_else(|error| panic!("cannot run the C compiler {compiler}: {error}"));
        assert!(status.success(), "{compiler} failed");
        dir
    });
    SHIM.path().join("shim.so")
}

fn with_shim(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env("LD_PRELOAD", shim())
        .env("FAULT_DIR", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Not a test by itself: the process whose disk fails.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!();
        match Embedded::open(Path::new(&dir), options()) {
            Ok(store) if std::env::var_os(ONLY).is_some() => no_room_for_tables(&store).await,
            Ok(store) if std::env::var_os(FULL).is_some() => full_for_a_while(&store).await,
            Ok(store) if std::env::var_os(SHADOW).is_some() => write_until_killed(&store).await,
            Ok(store) => write_a_little(&store).await,
            Err(error) => println!("not opened: {error}"),
        }
    });
}

/// Some writes, an overwrite, a deletion and a compaction. After a failure it continues to read and to retry.
async fn write_a_little(store: &Embedded) {
    let mut refused = 0;
    for number in 0..24 {
        let key = Key::from(format!("k{}", number % 9));
        let current = store.get(&key).await.expect("reads continue").value;
        let expect = current.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
        let change = match current.is_some() && number % 5 == 0 {
            true => Change::Delete,
            false => Change::Put(vec![b'a' + number; 5000].into()),
        };
        match store.commit(key.clone(), expect, change).await {
            Ok(event) => {
                assert_eq!(refused, 0, "a write was acknowledged after a failure that needs a restart");
                let value = event.current.map_or('-', |entry| char::from(entry.value()[0]));
                println!("ack {} {} {value}", event.revision, String::from_utf8_lossy(key.as_bytes()));
            }
            Err(error @ (CommitError::Unknown { .. } | CommitError::ReadOnly { .. })) => {
                println!("refused: {error}");
                refused += 1;
                if refused == 3 {
                    return;
                }
            }
            Err(error) => panic!("{error}"),
        }
        if number == 16 && store.compact(Revision(12)).await.is_ok() {
            println!("compacted");
        }
    }
}

/// Returns the last acknowledged revision and value of each key, from the output of a child.
fn last_acks(output: &str) -> HashMap<String, (u64, char)> {
    let acks = output.lines().filter_map(|line| line.strip_prefix("ack "));
    acks.map(|ack| {
        let fields: Vec<&str> = ack.split(' ').collect();
        (fields[1].to_owned(), (fields[0].parse().unwrap(), fields[2].parse().unwrap()))
    })
    .collect()
}

async fn check(dir: &Path, output: &str) {
    let store = Embedded::open(dir, options())
        .unwrap_or_else(|error| panic!("{error}\nthe child printed:\n{output}"));
    let listed = store.list(Range::all(), Page::default()).await.unwrap();
    for entry in &listed.value.entries {
        let value = entry.value();
        assert!(value.len() == 5000 && value.iter().all(|byte| *byte == value[0]), "{entry:?} is incomplete");
    }
    for (key, (revision, value)) in last_acks(output) {
        let found = store.get(&Key::from(key.as_str())).await.unwrap().value;
        match found {
            Some(entry) if entry.revision().0 > revision => {}
            Some(entry) => {
                assert_eq!((entry.revision().0, char::from(entry.value()[0])), (revision, value), "{key}")
            }
            None if value == '-' => {}
            // The one write with an unknown result may have been the deletion of this key.
            None => assert!(
                listed.revision.0 > revision && output.contains("refused"),
                "{key} is missing\n{output}"
            ),
        }
    }
    let key = Key::from("after");
    store
        .commit(key, Expect::Absent, Change::Put("x".into()))
        .await
        .expect("writes continue after a restart");
}

#[tokio::test]
async fn whichever_system_call_fails_nothing_acknowledged_is_lost() {
    let scratch = tempfile::tempdir().unwrap();
    let count = scratch.path().join("count");
    let dir = scratch.path().join("counting");
    let status = with_shim(&dir).env("FAULT_COUNT", &count).status().unwrap();
    assert!(status.success());
    let calls: u32 = std::fs::read_to_string(&count).unwrap().trim().parse().unwrap();
    assert!(calls > 50, "the shim saw {calls} calls: is it loaded?");
    println!("{calls} calls, each made to fail");
    let mut failures = 0;
    for at in 1..=calls {
        // Every call fails permanently; some also only temporarily, which must have no effect.
        let fault_kinds: &[i32] = if at % 4 == 0 { &[EIO, ENOSPC, EINTR, SHORT] } else { &[EIO, ENOSPC] };
        for how in fault_kinds {
            let dir = scratch.path().join(format!("{at}-{how}"));
            let output = with_shim(&dir)
                .env("FAULT_AT", at.to_string())
                .env("FAULT_HOW", how.to_string())
                .output()
                .unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "call {at} failing with {how}: {stdout}\n{errors}");
            check(&dir, &stdout).await;
            failures += u32::from(stdout.contains("refused") || stdout.contains("not opened"));
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    println!("{failures} of them were detected");
    assert!(failures > calls / 2);
}

async fn put(store: &Embedded, key: &str) -> Result<Revision, CommitError> {
    let change = Change::Put(vec![b'x'; 5000].into());
    store.commit(Key::from(key), Expect::Absent, change).await.map(|event| event.revision)
}

/// Runs inside the child: the disk fills up, stays full, and then has room again.
async fn full_for_a_while(store: &Embedded) {
    let full = PathBuf::from(std::env::var_os(FULL).unwrap());
    for number in 0..10 {
        put(store, &format!("before/{number}")).await.unwrap();
    }
    std::fs::write(&full, "").unwrap();
    let error = put(store, "during/0").await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown { .. }), "{error}");
    for number in 1..20 {
        let error = put(store, &format!("during/{number}")).await.unwrap_err();
        assert!(matches!(error, CommitError::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let listed = store.list(Range::all(), Page::default()).await.unwrap();
        assert_eq!((listed.value.entries.len(), listed.revision), (10, Revision(10)), "reads continue");
        let mut watch = store.watch(Range::all(), Revision::ZERO).await.unwrap();
        assert_eq!(watch.next().await.unwrap().events.len(), 10, "watches continue");
        // Long enough for the engine to retry a few times.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    std::fs::remove_file(&full).unwrap();
    let mut health = store.health();
    let writable = health.wait_for(|health| *health == Health::Writable);
    tokio::time::timeout(Duration::from_secs(10), writable).await.expect("writable again").unwrap();
    assert_eq!(put(store, "after/0").await.unwrap(), Revision(11), "refused writes left no entry");
    for number in 1..10 {
        put(store, &format!("after/{number}")).await.unwrap();
    }
    println!("ack 20 after/9 x");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let output = with_shim(&dir).env(FULL, scratch.path().join("full")).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("ack 20"), "{stdout}");
    check(&dir, &stdout).await;
    let store = Embedded::open(&dir, options()).unwrap();
    let during = store.list(Range::prefix("during/"), Page::default()).await.unwrap();
    assert_eq!(during.value.entries, [], "refused writes are not stored");
}

/// Runs inside the child: commits find room, but tables written in the background do not.
async fn no_room_for_tables(store: &Embedded) {
    let full = PathBuf::from(std::env::var_os(FULL).unwrap());
    let mut health = store.health();
    let mut acknowledged = 0;
    std::fs::write(&full, "").unwrap();
    while *health.borrow_and_update() == Health::Writable {
        let change = Change::Put(vec![b'x'; 200_000].into());
        match store.commit(Key::from(format!("before/{acknowledged}")), Expect::Absent, change).await {
            Ok(_) => acknowledged += 1,
            Err(CommitError::ReadOnly { .. }) => {}
            Err(error) => panic!("no write has an unknown outcome: {error}"),
        }
        assert!(acknowledged < 2000, "no table was written: was the memtable ever full?");
    }
    println!("read-only after {acknowledged}: {:?}", *health.borrow());
    let listed = store.list(Range::all(), Page::default()).await.unwrap();
    assert_eq!(listed.value.entries.len(), acknowledged, "reads continue");
    std::fs::remove_file(&full).unwrap();
    let writable = health.wait_for(|health| *health == Health::Writable);
    tokio::time::timeout(Duration::from_secs(20), writable).await.expect("writable again").unwrap();
    let revision = put(store, "after").await.unwrap();
    assert_eq!(revision, Revision(acknowledged as u64 + 1));
    println!("ack {revision} after x");
}

#[tokio::test]
async fn a_full_disk_in_background_work_is_survived_without_a_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let mut child = with_shim(&dir);
    child.env(FULL, scratch.path().join("full")).env(ONLY, "/tables/");
    let output = child.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("read-only after") && stdout.contains(" after x"), "{stdout}");
    let store = Embedded::open(&dir, options()).unwrap();
    let found = store.get(&Key::from("after")).await.unwrap().value;
    assert!(
        found.is_some_and(|entry| stdout.contains(&format!("ack {} after", entry.revision()))),
        "{stdout}"
    );
}

/// Runs inside the child: large values, which cause tables and compactions, and small ones.
async fn write_until_killed(store: &Embedded) {
    for number in 0.. {
        let key = Key::from(format!("k{}", number % 50));
        let current = store.get(&key).await.unwrap().value;
        let expect = current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
        let letter = b'a' + (number % 26) as u8;
        let size = if number % 3 == 0 { 200_000 } else { 500 };
        let event = store.commit(key.clone(), expect, Change::Put(vec![letter; size].into())).await.unwrap();
        println!("ack {} {} {}", event.revision, String::from_utf8_lossy(key.as_bytes()), char::from(letter));
        if number % 100 == 99 {
            store.compact(Revision(event.revision.0 - 20)).await.unwrap();
        }
    }
}

/// Power loss: the process is killed, and everything that was not synced is lost, contents and names alike. The next
/// process starts with the durable contents.
#[tokio::test]
async fn power_loss_loses_only_unacknowledged_writes() {
    use std::io::{BufRead, BufReader};
    let scratch = tempfile::tempdir().unwrap();
    let mut dir = scratch.path().join("0");
    std::fs::create_dir(&dir).unwrap();
    let mut acks_by_revision = HashMap::new();
    let rounds: usize = 8;
    for round in 1..=rounds {
        let shadow = scratch.path().join(format!("shadow-{round}"));
        std::fs::create_dir(&shadow).unwrap();
        seed_shadow(&dir, &shadow);
        let mut child = with_shim(&dir).env(SHADOW, &shadow).stderr(Stdio::inherit()).spawn().unwrap();
        // Kills at all points, most of them after the first tables were written.
        let acks_before_kill = 30 + round * 71 % 200;
        let mut acks = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(ack) = line.strip_prefix("ack ") {
                let fields: Vec<&str> = ack.split(' ').collect();
                let revision: u64 = fields[0].parse().unwrap();
                let write = (fields[1].to_owned(), fields[2].as_bytes()[0]);
                assert_eq!(
                    acks_by_revision.insert(revision, write),
                    None,
                    "revision {revision} was used twice"
                );
                acks += 1;
            }
            if acks == acks_before_kill {
                // Keeps reading: what is reported until the kill counts too.
                child.kill().unwrap();
            }
        }
        assert!(acks >= acks_before_kill, "the child ended by itself after {acks} writes");
        child.wait().unwrap();
        let next = scratch.path().join(round.to_string());
        restore(&shadow, inode(&dir), &next);
        let store = Embedded::open(&next, options()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        check_acks(&store, &acks_by_revision, round).await;
        dir = next;
    }
}

async fn check_acks(store: &Embedded, acks_by_revision: &HashMap<u64, (String, u8)>, round: usize) {
    let listed = store.list(Range::all(), Page::default()).await.unwrap();
    let newest = acks_by_revision.keys().copied().max().unwrap_or(0);
    assert!(
        listed.revision.0 >= newest,
        "round {round}: {newest} was acknowledged, {} is left",
        listed.revision
    );
    for entry in &listed.value.entries {
        assert!(entry.value().iter().all(|byte| *byte == entry.value()[0]), "{entry:?} is incomplete");
        if let Some((key, letter)) = acks_by_revision.get(&entry.revision().0) {
            assert_eq!(
                (entry.key().as_bytes(), entry.value()[0]),
                (key.as_bytes(), *letter),
                "round {round}"
            );
        }
    }
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
}

/// Marks everything that exists at the beginning of a life as durable.
fn seed_shadow(dir: &Path, shadow: &Path) {
    let mut names = String::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, is_dir) = (entry.path(), entry.file_type().unwrap().is_dir());
        let (number, kind) = (inode(&path), if is_dir { 'd' } else { 'i' });
        names += &format!("{number} {kind} {}\n", entry.file_name().to_string_lossy());
        match is_dir {
            true => seed_shadow(&path, shadow),
            false => drop(std::fs::copy(&path, shadow.join(format!("i{number}"))).unwrap()),
        }
    }
    std::fs::write(shadow.join(format!("d{}", inode(dir))), names).unwrap();
}

/// Builds the directory in its state after a power loss.
fn restore(shadow: &Path, number: u64, to: &Path) {
    std::fs::create_dir(to).unwrap();
    // A directory whose names were never synced is empty afterwards.
    let names = std::fs::read_to_string(shadow.join(format!("d{number}"))).unwrap_or_default();
    for line in names.lines() {
        let mut fields = line.splitn(3, ' ');
        let (number, kind, name) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        let kept = shadow.join(format!("i{number}"));
        match kind {
            _ if name == "." || name == ".." => {}
            "d" => restore(shadow, number.parse().unwrap(), &to.join(name)),
            // A file that was never synced is empty afterwards.
            _ if !kept.exists() => std::fs::write(to.join(name), "").unwrap(),
            _ => drop(std::fs::copy(kept, to.join(name)).unwrap()),
        }
    }
}
