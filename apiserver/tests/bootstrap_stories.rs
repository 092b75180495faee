//! The life of a logical cluster, seen through its store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore, Template};
use apiserver::clusters::records;
use apiserver::clusters::records::LogicalClusterRecord;
use apiserver::keys::Collection;
use apiserver::objects::stored;
use bytes::Bytes;
use serde_json::{Value, json};
use storage::embedded::{Embedded, Options};
use storage::memory::Memory;
use storage::{Change, CommitError, Entry, Event, Expect, Key, Page, Range, Revision, Store, Watch};
use tokio::task::JoinSet;

const MAPS: Collection<'static> = Collection { group: "", plural: "configmaps" };
const ACCOUNTS: Collection<'static> = Collection { group: "", plural: "serviceaccounts" };
const AUTHORITY: &str = "kube-root-ca.crt";

fn over(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    let surroundings =
        BootstrapOptions { authority: "a certificate", address: "192.0.2.10:6443".parse().unwrap() };
    Arc::new(BootstrapStore::new(inner, Template::new(bootstrap::objects(&surroundings))))
}

async fn list(store: &dyn Store, range: Range) -> Vec<Entry> {
    store.list(range, Page::default()).await.unwrap().value.entries
}

async fn get(store: &dyn Store, key: &Key) -> Option<Entry> {
    store.get(key).await.unwrap().value
}

async fn next(watch: &mut Watch) -> Vec<Event> {
    tokio::time::timeout(Duration::from_secs(30), watch.next())
        .await
        .expect("an event within 30 s")
        .unwrap()
        .events
}

/// Returns the type of an event as in a watch.
fn kind(event: &Event) -> &'static str {
    match (&event.previous, &event.current) {
        (None, _) => "ADDED",
        (Some(_), Some(_)) => "MODIFIED",
        (Some(_), None) => "DELETED",
    }
}

#[tokio::test]
async fn a_new_logical_cluster_has_every_bootstrap_object_once_its_record_exists() {
    let store = over(Arc::new(Memory::new()));
    let (id, other) = (Id::new(7), Id::new(8));
    assert_eq!(list(&*store, Range::all()).await, [], "no object is visible before the record");
    let record = LogicalClusterRecord::new(Id::ROOT, "team-a");
    records::write(&*store, id, &record).await.unwrap();
    records::write(&*store, other, &LogicalClusterRecord::new(Id::ROOT, "team-b")).await.unwrap();
    let created_at = get(&*store, &apiserver::keys::cluster_record(id)).await.unwrap().revision();

    let mut names = BTreeMap::<String, Vec<String>>::new();
    let mut uids = BTreeSet::new();
    for entry in list(&*store, Range::prefix("")).await {
        let Ok(tree) = stored::tree(&entry) else { continue };
        let Some(kind) = tree["kind"].as_str() else { continue };
        assert!(uids.insert(tree["metadata"]["uid"].to_string()), "{entry:?} has a uid of its own");
        assert_eq!(
            get(&*store, entry.key()).await,
            Some(entry.clone()),
            "get and list return the same entry"
        );
        if entry.revision() == created_at {
            assert_eq!(tree["metadata"]["creationTimestamp"], record.time);
            let metadata = &tree["metadata"];
            let name = match metadata["namespace"].as_str() {
                Some(namespace) => format!("{namespace}/{}", metadata["name"].as_str().unwrap()),
                None => metadata["name"].as_str().unwrap().to_owned(),
            };
            names.entry(kind.to_owned()).or_default().push(name);
        }
    }
    assert_eq!(names["Namespace"], ["default", "kube-node-lease", "kube-public", "kube-system"]);
    for kind in ["ServiceAccount", "ConfigMap"] {
        let namespaces: Vec<_> = names[kind].iter().map(|name| name.split('/').next().unwrap()).collect();
        assert_eq!(namespaces, ["default", "kube-node-lease", "kube-public", "kube-system"], "{kind}");
    }
    for kind in ["Service", "Endpoints", "EndpointSlice"] {
        assert_eq!(names[kind], ["default/kubernetes"]);
    }
    assert_eq!(names["IPAddress"], ["10.96.0.1"]);
    assert_eq!(names["ServiceCIDR"], ["kubernetes"]);
    assert_eq!(names["PriorityClass"], ["system-cluster-critical", "system-node-critical"]);
    assert_eq!((names["FlowSchema"].len(), names["PriorityLevelConfiguration"].len()), (11, 8));
    assert_eq!(
        names.values().map(Vec::len).sum::<usize>() * 2,
        uids.len(),
        "the other logical cluster has it too"
    );
}

#[tokio::test]
async fn an_edited_object_is_modified_not_added_and_others_are_unchanged() {
    let store = over(Arc::new(Memory::new()));
    let (id, other) = (Id::new(7), Id::new(8));
    for id in [id, other] {
        records::write(&*store, id, &LogicalClusterRecord::new(Id::ROOT, "team")).await.unwrap();
    }
    let key = ACCOUNTS.key(id, Some("default"), "default");
    let found = store.get(&key).await.unwrap();
    let bootstrapped = found.value.unwrap();
    let mut watch = store.watch(ACCOUNTS.range(id, None), found.revision).await.unwrap();

    let taken = store.commit(key.clone(), Expect::Absent, Change::Put("{}".into())).await;
    let Err(CommitError::Conflict { current }) = taken else { panic!("{taken:?}") };
    assert_eq!(current.value, Some(bootstrapped.clone()), "the error of a create has the current object");

    let mut tree: Value = stored::tree(&bootstrapped).unwrap();
    tree["metadata"]["labels"] = json!({ "edited": "yes" });
    let edit = Change::Put(stored::encode(&tree));
    let event = store.commit(key.clone(), Expect::Revision(bootstrapped.revision()), edit).await.unwrap();
    assert_eq!((kind(&event), &event.previous), ("MODIFIED", &Some(bootstrapped)));
    assert_eq!(
        next(&mut watch).await,
        std::slice::from_ref(&event),
        "a watcher gets the event of the writer"
    );
    assert_eq!(get(&*store, &key).await, event.current);
    assert_eq!(list(&*store, ACCOUNTS.range(id, None)).await.len(), 4);
    let neighbour = get(&*store, &ACCOUNTS.key(other, Some("default"), "default")).await.unwrap();
    assert!(stored::tree(&neighbour).unwrap()["metadata"]["labels"].is_null());
}

#[tokio::test]
async fn a_deleted_object_stays_deleted_until_it_is_created_again() {
    let inner = Arc::new(Memory::new());
    let store = over(inner.clone());
    let id = Id::new(7);
    records::write(&*store, id, &LogicalClusterRecord::new(Id::ROOT, "team")).await.unwrap();
    let key = MAPS.key(id, Some("default"), AUTHORITY);
    let found = store.get(&key).await.unwrap();
    let mut watch = store.watch(MAPS.everywhere(), found.revision).await.unwrap();
    let bootstrapped = found.value.unwrap();
    let delete =
        store.commit(key.clone(), Expect::Revision(bootstrapped.revision()), Change::Delete).await.unwrap();
    assert_eq!((kind(&delete), &delete.previous), ("DELETED", &Some(bootstrapped.clone())));
    assert_eq!(get(&*store, &key).await, None);
    assert_eq!(list(&*store, MAPS.range(id, None)).await.len(), 3);
    let repeated = store.commit(key.clone(), Expect::Revision(bootstrapped.revision()), Change::Delete).await;
    assert!(matches!(repeated, Err(CommitError::Conflict { current }) if current.value.is_none()));

    let create = store.commit(key.clone(), Expect::Absent, Change::Put("{}".into())).await.unwrap();
    assert_eq!((kind(&create), &create.previous), ("ADDED", &None));
    let expect = Expect::Revision(create.revision);
    let last = store.commit(key.clone(), expect, Change::Delete).await.unwrap();
    assert_eq!(get(&*store, &key).await, None, "neither the stored nor the template object is visible");
    let mut seen = next(&mut watch).await;
    while seen.len() < 3 {
        seen.extend(next(&mut watch).await);
    }
    assert_eq!(seen, [delete, create, last]);

    records::end(&*store, id).await.unwrap();
    assert_eq!(list(&*inner, Range::all()).await, [], "no entry remains, not even a tombstone");
}

#[tokio::test]
async fn deleting_a_logical_cluster_deletes_its_unmodified_bootstrap_objects() {
    let store = over(Arc::new(Memory::new()));
    let (id, other) = (Id::new(7), Id::new(8));
    let mut everywhere = store.watch(MAPS.everywhere(), Revision::ZERO).await.unwrap();
    for id in [id, other] {
        records::write(&*store, id, &LogicalClusterRecord::new(Id::ROOT, "team")).await.unwrap();
    }
    let mut inside =
        store.watch(MAPS.range(id, None), store.get(&Key::from("")).await.unwrap().revision).await.unwrap();
    let key = MAPS.key(id, Some("default"), AUTHORITY);
    let bootstrapped = get(&*store, &key).await.unwrap();
    let edit = Change::Put(Bytes::from_static(b"{}"));
    let edited = store.commit(key.clone(), Expect::Revision(bootstrapped.revision()), edit).await.unwrap();
    records::end(&*store, id).await.unwrap();

    let mut seen = Vec::new();
    while seen.len() < 4 + 4 + 1 + 3 {
        seen.extend(next(&mut everywhere).await);
    }
    let kinds: Vec<_> = seen.iter().map(kind).collect();
    assert_eq!(kinds, [["ADDED"; 8].as_slice(), &["MODIFIED"], &["DELETED"; 3]].concat());
    assert!(
        seen[9..].iter().all(|deleted| deleted.revision == Revision(edited.revision.0 + 1)),
        "all at once: {seen:?}"
    );
    assert_eq!(everywhere.through(), seen[11].revision);
    let mut narrow = next(&mut inside).await;
    while narrow.len() < 4 {
        narrow.extend(next(&mut inside).await);
    }
    assert_eq!(narrow, seen[8..]);
    let remaining: Vec<_> =
        list(&*store, MAPS.everywhere()).await.iter().map(|entry| entry.key().clone()).collect();
    assert_eq!(
        remaining.len(),
        1 + 4,
        "edited objects remain until a controller deletes them: {remaining:?}"
    );

    let late_commit =
        store.commit(MAPS.key(id, Some("kube-system"), AUTHORITY), Expect::Absent, Change::Put("{}".into()));
    assert!(
        matches!(late_commit.await, Err(CommitError::ReadOnly { .. })),
        "no object can be created after the record is deleted"
    );
    store.commit(key, Expect::Revision(edited.revision), Change::Delete).await.unwrap();
    assert_eq!(list(&*store, MAPS.range(id, None)).await, []);
}

/// Eight writers increment a counter in one object, starting from the template's: every count occurs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost_between_writers_of_a_bootstrap_object() {
    let store = over(Arc::new(Memory::new()));
    let id = Id::new(7);
    records::write(&*store, id, &LogicalClusterRecord::new(Id::ROOT, "team")).await.unwrap();
    let key = MAPS.key(id, Some("default"), AUTHORITY);
    let mut watch = store.watch(MAPS.range(id, None), Revision(1)).await.unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..8 {
        let (store, key) = (store.clone(), key.clone());
        writers.spawn(async move {
            for nth in 0..25 {
                let mut current = get(&*store, &key).await;
                loop {
                    let count = current
                        .as_ref()
                        .and_then(|entry| std::str::from_utf8(entry.value()).ok()?.parse::<u32>().ok());
                    let expect = current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
                    // Now and then the object is deleted and the count starts over in a new one.
                    let change = match (nth % 10, expect) {
                        (9, Expect::Revision(_)) => Change::Delete,
                        _ => Change::Put((count.unwrap_or(0) + 1).to_string().into()),
                    };
                    match store.commit(key.clone(), expect, change).await {
                        Ok(_) => break,
                        Err(CommitError::Conflict { current: now }) => current = now.value,
                        Err(error) => panic!("{error}"),
                    }
                    tokio::task::yield_now().await;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    writers.join_all().await;
    let mut seen = Vec::new();
    while seen.len() < 8 * 25 {
        seen.extend(next(&mut watch).await);
    }
    assert_eq!(
        seen[0].previous.as_ref().map(Entry::revision),
        Some(Revision(1)),
        "starting with the template's object"
    );
    for pair in seen.windows(2) {
        assert_eq!(pair[0].current, pair[1].previous, "each event has the previous state of the one before");
    }
    assert_eq!(seen[199].current, get(&*store, &key).await);
}

/// Logical clusters are created and deleted, objects are edited and deleted, all at once. A watcher that applies all
/// its events has the same state as a list in the end.
async fn watchers_add_up(inner: Arc<dyn Store>) {
    let store = over(inner);
    let ranges = [MAPS.everywhere(), MAPS.range(Id::new(3), None), Range::all(), ACCOUNTS.everywhere()];
    let mut watches = Vec::new();
    for range in &ranges {
        watches.push(store.watch(range.clone(), Revision::ZERO).await.unwrap());
    }
    let mut writers = JoinSet::new();
    for writer in 0..6u64 {
        let store = store.clone();
        writers.spawn(async move {
            for round in 0..4 {
                let id = Id::new(writer + 6 * round);
                records::write(&*store, id, &LogicalClusterRecord::new(Id::ROOT, "team")).await.unwrap();
                let entries = list(&*store, MAPS.range(id, None)).await;
                for (nth, entry) in entries.iter().enumerate().take(3) {
                    let change = [Change::Delete, Change::Put("{}".into())][nth % 2].clone();
                    let expect = Expect::Revision(entry.revision());
                    store.commit(entry.key().clone(), expect, change).await.unwrap();
                    tokio::task::yield_now().await;
                }
                if round % 2 == 0 {
                    records::end(&*store, id).await.unwrap();
                }
            }
        });
    }
    let mut readers = JoinSet::new();
    for (range, mut watch) in ranges.into_iter().zip(watches) {
        readers.spawn(async move {
            let mut state = BTreeMap::new();
            // Reads beside the writers while events arrive; the rest is read when they are done.
            while let Ok(batch) = tokio::time::timeout(Duration::from_millis(200), watch.next()).await {
                apply(&mut state, batch.unwrap().events);
            }
            (range, watch, state)
        });
    }
    writers.join_all().await;
    for (range, mut watch, mut state) in readers.join_all().await {
        let head = store.get(&Key::from("")).await.unwrap().revision;
        while let Some(batch) = watch.until(head).await.unwrap() {
            apply(&mut state, batch.events);
        }
        let listed = list(&*store, range.clone()).await;
        assert_eq!(state.into_values().collect::<Vec<_>>(), listed, "{range:?}");
    }
}

fn apply(state: &mut BTreeMap<Key, Entry>, events: Vec<Event>) {
    for event in events {
        let was = match event.current {
            Some(entry) => state.insert(event.key, entry),
            None => state.remove(&event.key),
        };
        assert_eq!(was, event.previous);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_add_up_over_memory() {
    watchers_add_up(Arc::new(Memory::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_add_up_over_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { tail_events: Some(8), ..Options::default() };
    watchers_add_up(Arc::new(Embedded::open(dir.path(), options).unwrap())).await;
}
