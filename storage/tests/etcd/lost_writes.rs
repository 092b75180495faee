//! Writes whose response is lost. The engine must determine whether they happened, and report each once.

use std::time::Duration;

use etcd_client::GetOptions;
use storage::etcd::Etcd;
use storage::{Change, CommitError, Event, Expect, Key, Range, Revision, Store};
use tokio::task::JoinHandle;

use crate::peer::{Etcd as Peer, Proxy};
use crate::{
    Server, connect, create, delete, describe, eventually, next_events, options, text_of, update, value,
};

/// A writer behind a proxy that loses responses, and an onlooker without a proxy.
struct Scene {
    etcd: Peer,
    proxy: Proxy,
    writer: Server,
    onlooker: Server,
}

impl Scene {
    async fn new() -> Self {
        let etcd = Peer::start("etcd", 1).await;
        let proxy = Proxy::start(etcd.port(0)).await;
        let writer = connect(options([proxy.endpoint()])).await;
        let onlooker = connect(options(etcd.endpoints())).await;
        Scene { etcd, proxy, writer, onlooker }
    }

    /// Begins a commit whose response is lost, and returns when it has happened.
    async fn lose(
        &self,
        key: &str,
        expect: Expect,
        change: Change,
    ) -> JoinHandle<Result<Event, CommitError>> {
        let before = text_of(&self.onlooker, key).await;
        self.proxy.swallow_answers();
        let (store, owned) = (self.writer.store.clone(), Key::from(key));
        let commit = tokio::spawn(async move { store.commit(owned, expect, change).await });
        eventually("the write has happened", async || text_of(&self.onlooker, key).await != before).await;
        assert!(!commit.is_finished(), "the writer cannot have a result yet");
        commit
    }

    async fn entry(&self, key: &str) -> Event {
        let found = self.onlooker.get(&Key::from(key)).await.unwrap().value.unwrap();
        Event { revision: found.revision(), key: Key::from(key), current: Some(found), previous: None }
    }
}

async fn history(store: &Etcd, after: Revision, count: usize) -> Vec<String> {
    let mut watch = store.watch(Range::all(), after).await.unwrap();
    describe(&next_events(&mut watch, count).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_lost_create_is_recognised_in_the_key() {
    let scene = Scene::new().await;
    let start = create(&scene.writer, "start", "0").await.revision;
    let commit = scene.lose("a", Expect::Absent, value("mine")).await;
    let written = scene.entry("a").await;
    scene.proxy.heal();
    let event = commit.await.unwrap().unwrap();
    assert_eq!((event.revision, event.current, event.previous), (written.revision, written.current, None));
    // Exactly once: the next event in the history is the next write.
    create(&scene.writer, "end", "0").await;
    assert_eq!(history(&scene.onlooker, start, 2).await, ["a: - -> mine", "end: - -> 0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_lost_update_that_was_overwritten_is_found_in_the_history() {
    let scene = Scene::new().await;
    let first = create(&scene.writer, "a", "1").await;
    let commit = scene.lose("a", Expect::Revision(first.revision), value("mine")).await;
    let mine = scene.entry("a").await;
    let theirs = update(&scene.onlooker, &mine, "theirs").await;
    update(&scene.onlooker, &theirs, "theirs again").await;
    scene.proxy.heal();
    let event = commit.await.unwrap().unwrap();
    assert_eq!((event.revision, event.current, event.previous), (mine.revision, mine.current, first.current));
    let expected = ["a: 1 -> mine", "a: mine -> theirs", "a: theirs -> theirs again"];
    assert_eq!(history(&scene.onlooker, first.revision, 3).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_lost_create_that_was_deleted_again_is_not_made_twice() {
    let scene = Scene::new().await;
    let start = create(&scene.writer, "start", "0").await.revision;
    let commit = scene.lose("a", Expect::Absent, value("mine")).await;
    let mine = scene.entry("a").await;
    delete(&scene.onlooker, &mine).await;
    scene.proxy.heal();
    // The key is absent, as expected, so a plain retry would bring back a deleted entry.
    let event = commit.await.unwrap().unwrap();
    assert_eq!(event.revision, mine.revision);
    assert_eq!(text_of(&scene.writer, "a").await, None);
    create(&scene.writer, "end", "0").await;
    let expected = ["a: - -> mine", "a: mine -> -", "end: - -> 0"];
    assert_eq!(history(&scene.onlooker, start, 3).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_lost_delete_is_recognised_even_if_the_key_exists_again() {
    let scene = Scene::new().await;
    for back in [false, true] {
        let key = if back { "back" } else { "gone" };
        let first = create(&scene.writer, key, "1").await;
        let commit = scene.lose(key, Expect::Revision(first.revision), Change::Delete).await;
        if back {
            create(&scene.onlooker, key, "theirs").await;
        }
        scene.proxy.heal();
        let event = commit.await.unwrap().unwrap();
        assert_eq!((event.current.clone(), event.previous.clone()), (None, first.current));
        let expected = [format!("{key}: 1 -> -"), format!("{key}: - -> theirs")];
        let count = 1 + usize::from(back);
        assert_eq!(history(&scene.onlooker, first.revision, count).await, expected[..count]);
        assert_eq!(text_of(&scene.writer, key).await.is_some(), back);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_lost_delete_is_found_although_another_server_used_the_slot_since() {
    let scene = Scene::new().await;
    let first = create(&scene.writer, "a", "1").await;
    let commit = scene.lose("a", Expect::Revision(first.revision), Change::Delete).await;
    // Simulates another server that uses the same slot: it writes the id of its own delete into the slot.
    let mut client = scene.etcd.client(0).await.unwrap();
    let slots = GetOptions::new().with_prefix();
    let slot = client.get("/holon/s/", Some(slots)).await.unwrap().kvs()[0].key().to_vec();
    let theirs = [&[1][..], b"another server's"].concat();
    for _ in 0..2 {
        client.put(slot.clone(), theirs.clone(), None).await.unwrap();
    }
    scene.proxy.heal();
    let event = commit.await.unwrap().unwrap();
    assert_eq!((event.current, event.previous), (None, first.current));
    // The same without a lost response: the next user of the slot finds it changed, and continues.
    client.put(slot, theirs, None).await.unwrap();
    let second = create(&scene.writer, "a", "2").await;
    delete(&scene.writer, &second).await;
    let expected = ["a: 1 -> -", "a: - -> 2", "a: 2 -> -"];
    assert_eq!(history(&scene.onlooker, first.revision, 3).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_delete_by_another_writer_is_not_reported_as_ours() {
    let scene = Scene::new().await;
    let first = create(&scene.writer, "a", "1").await;
    scene.proxy.black_hole();
    let (store, expect) = (scene.writer.store.clone(), Expect::Revision(first.revision));
    let commit = tokio::spawn(async move { store.commit(Key::from("a"), expect, Change::Delete).await });
    let theirs = delete(&scene.onlooker, &first).await;
    scene.proxy.heal();
    let error = commit.await.unwrap().unwrap_err();
    let CommitError::Conflict { current } = error else { panic!("{error}") };
    assert!(current.value.is_none() && current.revision >= theirs.revision, "{current:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_write_that_never_arrived_is_retried_when_etcd_is_reachable() {
    let scene = Scene::new().await;
    let start = create(&scene.writer, "start", "0").await.revision;
    scene.proxy.black_hole();
    let store = scene.writer.store.clone();
    let commit = tokio::spawn(async move { store.commit(Key::from("a"), Expect::Absent, value("1")).await });
    // Longer than one attempt, so that it counts as lost at least once.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(text_of(&scene.onlooker, "a").await, None);
    scene.proxy.heal();
    let event = commit.await.unwrap().unwrap();
    create(&scene.writer, "end", "0").await;
    assert_eq!(history(&scene.onlooker, start, 2).await, ["a: - -> 1", "end: - -> 0"]);
    assert_eq!(scene.entry("a").await.revision, event.revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_write_without_a_known_outcome_is_reported_as_unknown() {
    let etcd = Peer::start("etcd", 1).await;
    let proxy = Proxy::start(etcd.port(0)).await;
    let mut impatient = options([proxy.endpoint()]);
    impatient.timeouts.request = Duration::from_millis(300);
    impatient.timeouts.settle = Duration::from_millis(700);
    let writer = connect(impatient).await;
    proxy.swallow_answers();
    let error = writer.commit(Key::from("a"), Expect::Absent, value("1")).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown { .. }), "{error}");

    // If no process listens, it is certain that nothing was written, and the error says so.
    let mut nowhere = options(etcd.endpoints());
    nowhere.timeouts.overall = Duration::from_millis(700);
    let writer = connect(nowhere).await;
    drop(etcd);
    eventually("the lost response is detected", async || writer.get(&Key::from("a")).await.is_err()).await;
    let error = writer.commit(Key::from("b"), Expect::Absent, value("1")).await.unwrap_err();
    assert!(matches!(error, CommitError::Unavailable { .. }), "{error}");
}
