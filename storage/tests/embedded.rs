//! Stories about the embedded store: reopening, refusing to open, compaction, recovery.

mod disk;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use disk::{copy, files, flip, journal};
use storage::embedded::{Embedded, Health, OpenError, Options, recover};
use storage::{
    Change, CommitError, Entry, Event, Expect, Key, Page, Range, ReadError, Revision, Store, backup,
};

fn open(dir: &std::path::Path) -> Embedded {
    Embedded::open(dir, Options::default()).unwrap()
}

async fn put(store: &Embedded, key: &str, value: impl Into<Bytes>) -> Event {
    let key = Key::from(key);
    let current = store.get(&key).await.unwrap().value;
    let expect = current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
    store.commit(key, expect, Change::Put(value.into())).await.unwrap()
}

async fn delete(store: &Embedded, key: &str) -> Event {
    let key = Key::from(key);
    let entry = store.get(&key).await.unwrap().value.unwrap();
    store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await.unwrap()
}

async fn all(store: &dyn Store) -> Vec<Entry> {
    store.list(Range::all(), Page::default()).await.unwrap().value.entries
}

async fn events_after(store: &Embedded, after: u64) -> Vec<Event> {
    let head = store.get(&Key::from("")).await.unwrap().revision;
    let mut watch = store.watch(Range::all(), Revision(after)).await.unwrap();
    let mut events = Vec::new();
    while watch.through() < head {
        events.extend(watch.next().await.unwrap().events);
    }
    events
}

#[tokio::test]
async fn acknowledged_writes_and_their_history_survive_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut events =
        vec![put(&store, "a", "1").await, put(&store, "b", "2").await, put(&store, "a", "3").await];
    events.push(delete(&store, "b").await);
    let before = all(&store).await;
    drop(store);

    let store = open(dir.path());
    assert_eq!(all(&store).await, before);
    assert_eq!(events_after(&store, 0).await, events);
    assert_eq!(put(&store, "c", "4").await.revision, Revision(5), "revisions continue after a reopen");
}

#[tokio::test]
async fn a_second_opener_gets_the_id_of_the_process_that_uses_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let error = Embedded::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains(&std::process::id().to_string()) && message.contains("stop that process"),
        "{message}"
    );
    drop(store);
    open(dir.path());
}

#[tokio::test]
async fn a_directory_of_another_format_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("FORMAT"), "holon store 99\n").unwrap();
    let error = Embedded::open(dir.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("holon store 99"), "{error}");
    assert!(!dir.path().join("log").exists());
}

#[cfg(unix)]
#[tokio::test]
async fn a_data_directory_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("data");
    let _store = open(&inner);
    assert_eq!(std::fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_watcher_far_behind_is_served_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { tail_events: Some(4), ..Options::default() };
    let store = Embedded::open(dir.path(), options).unwrap();
    let mut written = Vec::new();
    for number in 0..1500 {
        written.push(put(&store, &format!("k{}", number % 7), format!("v{number}")).await);
    }
    assert_eq!(events_after(&store, 0).await, written);
    assert_eq!(events_after(&store, 777).await, written[777..]);
    // A list at a revision that is no longer in memory is computed by undoing later events.
    let page = Page { at: Some(Revision(100)), ..Page::default() };
    let listed = store.list(Range::all(), page).await.unwrap();
    let mut expected: Vec<Entry> =
        written[93..100].iter().map(|event| event.current.clone().unwrap()).collect();
    expected.sort_by(|one, other| one.key().cmp(other.key()));
    assert_eq!(listed.value.entries, expected);
}

#[tokio::test]
async fn compaction_removes_history_keeps_entries_and_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..300 {
        put(&store, &format!("k{}", number % 10), format!("v{number}")).await;
    }
    delete(&store, "k3").await;
    let before = all(&store).await;
    store.compact(Revision(290)).await.unwrap();
    let check = async |store: &Embedded| {
        assert_eq!(all(store).await, before);
        let oldest = Revision(290);
        let error = store.watch(Range::all(), Revision(289)).await.unwrap_err();
        assert_eq!(error, ReadError::Compacted { requested: Revision(289), oldest });
        let page = Page { at: Some(Revision(5)), ..Page::default() };
        let error = store.list(Range::all(), page).await.unwrap_err();
        assert_eq!(error, ReadError::Compacted { requested: Revision(5), oldest });
        assert_eq!(events_after(store, 290).await.len(), 11);
    };
    check(&store).await;
    drop(store);
    check(&open(dir.path())).await;
}

#[tokio::test]
async fn old_or_large_history_is_compacted_automatically() {
    let ways = [
        Options { history_age: Duration::from_millis(50), ..Options::default() },
        Options { history_bytes: 10_000, ..Options::default() },
    ];
    for options in ways {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), options).unwrap();
        let compacted = async {
            // Each turn writes a little and checks whether the first revision is compacted.
            for number in 0.. {
                put(&store, "k", vec![b'x'; 1000 + number % 3]).await;
                if store.watch(Range::all(), Revision(0)).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), compacted).await.expect("compacted within 20 s");
        assert_eq!(all(&store).await.len(), 1);
    }
}

/// fjall's one background thread could wait for itself, after which no table was ever written again: journals and
/// memory grew without bound while writes were acknowledged. It took a fast disk and a long merge.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tables_go_on_being_written_under_load() {
    let fast = Path::new("/dev/shm");
    let dir = if fast.is_dir() { tempfile::tempdir_in(fast) } else { tempfile::tempdir() }.unwrap();
    let options = Options { history_age: Duration::from_secs(2), ..Options::default() };
    let store = Arc::new(Embedded::open(dir.path(), options).unwrap());
    let writers = (0..8).map(|writer| {
        let store = store.clone();
        async move {
            let mut expect = vec![Expect::Absent; 500];
            for number in 0..15_000 {
                let slot = number % expect.len();
                let change = Change::Put(vec![b'x'; 2000].into());
                let event =
                    store.commit(Key::from(format!("{writer}/{slot}")), expect[slot], change).await.unwrap();
                expect[slot] = Expect::Revision(event.revision);
            }
        }
    });
    futures::future::join_all(writers).await;
    let journals = files(&dir.path().join("log"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "jnl"));
    let bytes: usize = journals.map(|path| disk::used(&path)).sum();
    assert!(bytes < 200 << 20, "{} MiB of journal for 240 MB written: are no tables written?", bytes >> 20);
    assert_eq!(*store.health().borrow(), Health::Writable);
}

/// A crash may leave any part of the last batch. Here the batch is cut at every 512 bytes and at its ends; the batches
/// before it must survive in any case, and it must be there whole or not at all.
#[tokio::test]
async fn a_torn_tail_is_cut_wherever_it_tore() {
    let dir = tempfile::tempdir().unwrap();
    let image = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().to_owned(), image.path().join("crashed"));
    // The state of the disk when the last batch is written but not yet acknowledged.
    let probe: storage::embedded::Probe = {
        let (from, to) = (from.clone(), to.clone());
        Arc::new(move |step| {
            if step == "durable" {
                let _ = std::fs::remove_dir_all(&to);
                copy(&from, &to);
            }
        })
    };
    let store = Embedded::open(&from, Options { probe: Some(probe), ..Options::default() }).unwrap();
    for number in 0..5 {
        put(&store, &format!("k{number}"), vec![b'a' + number; 3000]).await;
    }
    drop(store);

    let whole = std::fs::read(journal(&to)).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let last = used - 3000 - 70;
    for cut in (last..used).step_by(512).chain([used - 1, used - 4, used - 13, used]) {
        let torn = image.path().join("torn");
        let _ = std::fs::remove_dir_all(&torn);
        copy(&to, &torn);
        std::fs::OpenOptions::new().write(true).open(journal(&torn)).unwrap().set_len(cut as u64).unwrap();
        let store = open(&torn);
        let keys: Vec<_> = all(&store).await.iter().map(|entry| entry.value()[0]).collect();
        assert!(keys == b"abcd" || (keys == b"abcde" && cut == used), "cut at {cut}: {keys:?}");
        put(&store, "next", "1").await;
    }
}

#[tokio::test]
async fn a_damaged_middle_is_reported_untouched_and_recovered_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 1..=20 {
        put(&store, &format!("k{number:02}"), format!("value number {number}")).await;
    }
    drop(store);
    let path = journal(dir.path());
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(15).position(|window| window == b"value number 7\x03").unwrap();
    flip(&path, at + 3);
    let damaged = std::fs::read(&path).unwrap();

    let error = Embedded::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("holon store recover --data-dir") && message.contains("--accept-loss"),
        "{message}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), damaged, "a refused store is unchanged");

    let recovery = recover(dir.path()).unwrap();
    assert!(recovery.entries == 19 && recovery.revision > Revision(1 << 32), "{recovery:?}");
    assert_eq!(recovery.lost, [7..=7]);
    assert!(recovery.damaged.exists());
    let store = open(dir.path());
    let keys: Vec<_> = all(&store).await.iter().map(|entry| entry.revision().0).collect();
    assert_eq!(keys, (1..=20).filter(|revision| *revision != 7).collect::<Vec<_>>());
    let next = put(&store, "k07", "again").await.revision;
    assert_eq!(next, Revision(recovery.revision.0 + 1), "no revision is used twice");
    let error = store.watch(Range::all(), Revision(3)).await.unwrap_err();
    assert!(
        matches!(error, ReadError::Compacted { .. }),
        "watchers of the earlier store must start over: {error}"
    );
}

/// fjall would take a damaged last batch for a torn one. The durable mark shows the difference.
#[tokio::test]
async fn a_damaged_end_is_distinguished_from_a_torn_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 1..=3 {
        put(&store, &format!("k{number}"), "value").await;
    }
    drop(store);
    let bytes = std::fs::read(journal(dir.path())).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    flip(&journal(dir.path()), used - 20);
    let error = Embedded::open(dir.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("revisions up to 3 were acknowledged"), "{error}");
    assert_eq!(recover(dir.path()).unwrap().lost, [3..=3]);
    assert!(put(&open(dir.path()), "k3", "again").await.revision > Revision(1 << 32));
}

/// If the database is damaged and its journals are intact, recovery loses nothing.
#[tokio::test]
async fn entries_only_in_the_journals_are_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 1..=5 {
        put(&store, &format!("k{number}"), "value").await;
    }
    drop(store);
    flip(&dir.path().join("log/keyspaces/0/current"), 3);
    let error = Embedded::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    let recovery = recover(dir.path()).unwrap();
    assert_eq!((recovery.entries, recovery.lost), (5, vec![]));
    assert_eq!(all(&open(dir.path())).await.len(), 5);
}

/// An import after a total loss must open, however high the revisions of the old store were.
#[tokio::test]
async fn a_backup_restores_into_a_directory_that_lost_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, "k", "1").await;
    let mut file = Vec::new();
    backup::export(&store, &mut file).await.unwrap();
    for number in 2..9 {
        put(&store, "k", format!("{number}")).await;
    }
    drop(store);
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    backup::import(dir.path(), &mut &file[..]).unwrap();
    assert_eq!(all(&open(dir.path())).await[0].value(), "1");
}

#[tokio::test]
async fn a_store_in_use_is_not_recovered() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), "k", "v").await;
    let _store = open(dir.path());
    let error = recover(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
}

#[tokio::test]
async fn a_lost_log_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), "k", "v").await;
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    let error = Embedded::open(dir.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("the log is gone"), "{error}");
}

/// With any flipped bit in any file, the store opens with exactly its previous contents, or not at all.
#[tokio::test]
async fn every_flipped_bit_is_detected() {
    use rand::{RngExt, SeedableRng};
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    // More than one memtable, so that tables as well as journals exist; some of the history is compacted.
    let store = Arc::new(store);
    let writers = (0..64).map(|writer| {
        let store = store.clone();
        async move {
            for number in 0..150 {
                let value = format!("{writer} {number} ").repeat(300);
                put(&store, &format!("{writer}/{}", number % 100), value).await;
            }
        }
    });
    futures::future::join_all(writers).await;
    store.compact(Revision(3000)).await.unwrap();
    let before = all(&*store).await;
    drop(Arc::into_inner(store));

    let seed = std::env::var("HOLON_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_116);
    println!("HOLON_SEED={seed}");
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let paths = files(dir.path());
    assert!(paths.iter().any(|path| path.to_string_lossy().contains("tables")), "no table in {paths:?}");
    let (mut same, mut refused) = (0, 0);
    for round in 0..100 {
        let flipped = tempfile::tempdir().unwrap();
        let copied = flipped.path().join("copy");
        copy(dir.path(), &copied);
        let path = &paths[random.random_range(0..paths.len())];
        let target = copied.join(path.strip_prefix(dir.path()).unwrap());
        let used = disk::used(&target);
        if used == 0 {
            continue;
        }
        let at = random.random_range(0..used);
        // Every tenth copy is left intact, to check that an undamaged copy opens.
        if round % 10 > 0 {
            flip(&target, at);
        }
        match Embedded::open(&copied, Options::default()) {
            Ok(store) => {
                let found = all(&store).await;
                assert!(
                    found == before,
                    "round {round}: byte {at} of {} changed what is read",
                    path.display()
                );
                same += 1;
            }
            Err(_) => refused += 1,
        }
    }
    println!("{same} opened with all entries, {refused} refused");
    assert!(same >= 10 && refused >= 30, "{same} opened, {refused} refused: was anything flipped at all?");
}

#[tokio::test]
async fn a_backup_is_one_revision_and_restores_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&dir.path().join("one")));
    for number in 0..2500 {
        put(&store, &format!("k{number}"), format!("{number}")).await;
    }
    // Writers continue during the backup, which must be a snapshot of one revision.
    let writer = {
        let store = store.clone();
        async move {
            for number in 0..500 {
                put(&store, "left", format!("{number}")).await;
                put(&store, "right", format!("{number}")).await;
            }
        }
    };
    let mut file = Vec::new();
    let (summary, ()) = futures::join!(async { backup::export(&*store, &mut file).await.unwrap() }, writer);
    let page = Page { at: Some(summary.revision), ..Page::default() };
    let then = store.list(Range::all(), page).await.unwrap().value.entries;
    assert_eq!(then.len() as u64, summary.entries);

    let target = dir.path().join("two");
    let made = backup::import(&target, &mut &file[..]).unwrap();
    assert_eq!(made.entries, summary.entries);
    let restored = open(&target);
    assert_eq!(all(&restored).await, then);
    assert_eq!(put(&restored, "next", "1").await.revision, Revision(made.revision.0 + 1));
    let error = restored.watch(Range::all(), summary.revision).await.unwrap_err();
    assert!(
        matches!(error, ReadError::Compacted { .. }),
        "watchers of the earlier store must start over: {error}"
    );
    drop(restored);
    let error = backup::import(&target, &mut &file[..]).unwrap_err();
    assert!(error.to_string().contains("already holds a store"), "{error}");

    for (at, bad) in [(20, 1), (file.len() / 2, 1), (file.len() - 1, 1)] {
        let mut damaged = file.clone();
        damaged[at] ^= bad;
        let error = backup::import(&dir.path().join(format!("bad{at}")), &mut &damaged[..]).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
    for cut in [3, 30, file.len() / 2, file.len() - 40, file.len() - 1] {
        let error = backup::import(&dir.path().join(format!("cut{cut}")), &mut &file[..cut]).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

#[tokio::test]
async fn low_disk_space_refuses_growth_but_not_deletion() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), "k", "v").await;
    let store =
        Embedded::open(dir.path(), Options { free_bytes_min: u64::MAX, ..Options::default() }).unwrap();
    let error = store.commit(Key::from("new"), Expect::Absent, Change::Put("v".into())).await.unwrap_err();
    let CommitError::ReadOnly { reason } = error else { panic!("{error}") };
    assert!(reason.contains("the disk is full") && reason.contains("free at least"), "{reason}");
    assert_eq!(all(&store).await.len(), 1, "reads continue");
    delete(&store, "k").await;
    assert_eq!(*store.health().borrow(), Health::Writable);
}
