//! The disk fails: each system call in turn, and for a while all of them.
//!
//! A child process writes with a shim preloaded that makes chosen calls fail (`faults/shim.c`). Whatever
//! fails, nothing is acknowledged that is not there afterwards, reads go on, and the store opens again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use storage::embedded::{Embedded, Health, Options};
use storage::{Change, CommitError, Expect, Key, Page, Range, Revision, Store};

const DIR: &str = "HOLON_FAULTS_DIR";
const FULL: &str = "FAULT_FILE";
const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const SHORT: i32 = -1;

fn options() -> Options {
    Options { room_floor: 0, progress: Arc::new(|_| {}), ..Options::default() }
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
            Ok(store) if std::env::var_os(FULL).is_some() => full_for_a_while(&store).await,
            Ok(store) => write_a_little(&store).await,
            Err(error) => println!("not opened: {error}"),
        }
    });
}

/// Some writes, an overwrite, a deletion and a compaction. After a failure it goes on, reading and trying.
async fn write_a_little(store: &Embedded) {
    let mut refused = 0;
    for number in 0..24 {
        let key = Key::from(format!("k{}", number % 9));
        let current = store.get(&key).await.expect("reads go on").value;
        let expect = current.as_ref().map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
        let change = match current.is_some() && number % 5 == 0 {
            true => Change::Delete,
            false => Change::Put(vec![b'a' + number; 5000].into()),
        };
        match store.commit(key.clone(), expect, change).await {
            Ok(event) => {
                assert_eq!(refused, 0, "acknowledged after a failure that only a restart may mend");
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

/// What a child told: per key the last acknowledged revision and value.
fn told(output: &str) -> HashMap<String, (u64, char)> {
    let acks = output.lines().filter_map(|line| line.strip_prefix("ack "));
    acks.map(|ack| {
        let words: Vec<&str> = ack.split(' ').collect();
        (words[1].to_owned(), (words[0].parse().unwrap(), words[2].parse().unwrap()))
    })
    .collect()
}

async fn check(dir: &Path, output: &str) {
    let store =
        Embedded::open(dir, options()).unwrap_or_else(|error| panic!("{error}\nthe child said:\n{output}"));
    let listed = store.list(Range::all(), Page::default()).await.unwrap();
    for entry in &listed.value.entries {
        let value = entry.value();
        assert!(value.len() == 5000 && value.iter().all(|byte| *byte == value[0]), "{entry:?} is half there");
    }
    for (key, (revision, value)) in told(output) {
        let found = store.get(&Key::from(key.as_str())).await.unwrap().value;
        match found {
            Some(entry) if entry.revision().0 > revision => {}
            Some(entry) => {
                assert_eq!((entry.revision().0, char::from(entry.value()[0])), (revision, value), "{key}")
            }
            None if value == '-' => {}
            // The one write in doubt may have been the deletion of this key.
            None => assert!(
                listed.revision.0 > revision && output.contains("refused"),
                "{key} is missing\n{output}"
            ),
        }
    }
    let key = Key::from("after");
    store.commit(key, Expect::Absent, Change::Put("x".into())).await.expect("writes go on after a restart");
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
        // Every call fails for good; some also only for a moment, which must go unnoticed.
        let ways: &[i32] = if at % 4 == 0 { &[EIO, ENOSPC, EINTR, SHORT] } else { &[EIO, ENOSPC] };
        for how in ways {
            let dir = scratch.path().join(format!("{at}-{how}"));
            let output = with_shim(&dir)
                .env("FAULT_AT", at.to_string())
                .env("FAULT_HOW", how.to_string())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "call {at} failing with {how}: {said}\n{errors}");
            check(&dir, &said).await;
            failures += u32::from(said.contains("refused") || said.contains("not opened"));
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    println!("{failures} of them were noticed");
    assert!(failures > calls / 2);
}

async fn put(store: &Embedded, key: &str) -> Result<Revision, CommitError> {
    let change = Change::Put(vec![b'x'; 5000].into());
    store.commit(Key::from(key), Expect::Absent, change).await.map(|event| event.revision)
}

/// Runs inside the child: the disk fills, stays full, and has room again.
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
        assert_eq!((listed.value.entries.len(), listed.revision), (10, Revision(10)), "reads go on");
        let mut watch = store.watch(Range::all(), Revision::ZERO).await.unwrap();
        assert_eq!(watch.next().await.unwrap().events.len(), 10, "watches go on");
        // Long enough for the engine to try and fail a few times.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    std::fs::remove_file(&full).unwrap();
    let mut health = store.health();
    let writable = health.wait_for(|health| *health == Health::Writable);
    tokio::time::timeout(Duration::from_secs(10), writable).await.expect("writable again").unwrap();
    assert_eq!(put(store, "after/0").await.unwrap(), Revision(11), "what was refused left no trace");
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
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("ack 20"), "{said}");
    check(&dir, &said).await;
    let store = Embedded::open(&dir, options()).unwrap();
    let during = store.list(Range::prefix("during/"), Page::default()).await.unwrap();
    assert_eq!(during.value.entries, [], "refused writes stay refused");
}
