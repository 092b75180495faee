//! The etcd engine against real etcd members.

#[path = "../peer/mod.rs"]
mod peer;

mod cluster;
mod contract;
mod foreign;
mod full;
mod linearizability;
mod lost_writes;
mod outage;
mod secure;
mod servers;

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use storage::etcd::{ConnectError, Etcd, Options, Timeouts};
use storage::{Change, CommitError, Event, Expect, Key, Revision, Store, Watch};
use tokio::task::JoinHandle;

/// One server on a store in etcd: the store and its running feed.
struct Server {
    store: Etcd,
    feed: JoinHandle<()>,
}

impl Deref for Server {
    type Target = Etcd;

    fn deref(&self) -> &Etcd {
        &self.store
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

/// Connects, and retries while a busy machine still starts etcd.
async fn connect(options: Options) -> Server {
    let connecting = async {
        loop {
            match Etcd::connect(options.clone()).await {
                Ok(connected) => break connected,
                Err(ConnectError::Unavailable { reason }) => println!("not yet connected: {reason}"),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let (store, feed) = soon(connecting).await;
    Server { store, feed: tokio::spawn(feed.run()) }
}

/// Returns options with shorter timeouts than the defaults, so that tests of outages take seconds.
fn options(endpoints: impl IntoIterator<Item = String>) -> Options {
    let mut options = Options::new(endpoints);
    options.timeouts = Timeouts {
        connect: Duration::from_millis(500),
        request: Duration::from_millis(1000),
        heartbeat: Duration::from_millis(500),
        settle: Duration::from_secs(20),
        ..Timeouts::default()
    };
    options.compaction = None;
    options
}

fn value(text: impl Into<String>) -> Change {
    Change::Put(Bytes::from(text.into()))
}

async fn create(store: &Etcd, key: &str, text: &str) -> Event {
    store.commit(Key::from(key), Expect::Absent, value(text)).await.expect("created")
}

async fn update(store: &Etcd, over: &Event, text: &str) -> Event {
    let expect = Expect::Revision(over.revision);
    store.commit(over.key.clone(), expect, value(text)).await.expect("updated")
}

async fn delete(store: &Etcd, over: &Event) -> Event {
    let expect = Expect::Revision(over.revision);
    store.commit(over.key.clone(), expect, Change::Delete).await.expect("deleted")
}

async fn text_of(store: &Etcd, key: &str) -> Option<String> {
    let found = store.get(&Key::from(key)).await.expect("a read");
    found.value.map(|entry| String::from_utf8_lossy(entry.value()).into_owned())
}

/// Returns the next `count` events.
async fn next_events(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let batch = soon(watch.next()).await.expect("the watch continues");
        assert!(batch.events.last().is_some_and(|last| last.revision <= batch.through), "{batch:?}");
        events.extend(batch.events);
    }
    events
}

fn describe(events: &[Event]) -> Vec<String> {
    let text = |entry: &storage::Entry| String::from_utf8_lossy(entry.value()).into_owned();
    let line = |event: &Event| {
        let (previous, current) = (event.previous.as_ref().map(text), event.current.as_ref().map(text));
        format!("{:?}: {} -> {}", event.key, previous.unwrap_or("-".into()), current.unwrap_or("-".into()))
    };
    events.iter().map(line).collect()
}

fn current_of(error: CommitError) -> Option<(Revision, String)> {
    let CommitError::Conflict { current } = error else { panic!("not a conflict: {error}") };
    current.value.map(|entry| (entry.revision(), String::from_utf8_lossy(entry.value()).into_owned()))
}

/// Waits for something that must happen, with a timeout.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(peer::PATIENCE, work).await.expect("not within the timeout")
}

/// Waits until `check` holds.
async fn eventually(condition: &str, mut check: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(peer::PATIENCE, waiting).await.is_ok(), "still not: {condition}");
}
