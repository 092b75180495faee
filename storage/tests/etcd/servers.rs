//! Several equal servers on one etcd.

use std::time::{Duration, Instant};

use storage::etcd::{Compaction, Options};
use storage::{CommitError, Expect, Key, Page, Range, ReadError, Store};

use crate::peer::{Etcd as Peer, Proxy};
use crate::{
    connect, create, delete, describe, eventually, next_events, options, soon, text_of, update, value,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_read_on_one_server_sees_writes_acknowledged_by_another() {
    let etcd = Peer::start("etcd", 1).await;
    let (a, b) = (connect(options(etcd.endpoints())).await, connect(options(etcd.endpoints())).await);
    let mut last = create(&a, "counter", "0").await;
    for count in 1..=1000 {
        let (writer, reader) = if count % 2 == 0 { (&a, &b) } else { (&b, &a) };
        last = update(writer, &last, &count.to_string()).await;
        let found = reader.get(&last.key).await.unwrap();
        assert!(found.revision >= last.revision);
        assert_eq!(found.value, last.current, "after {count} writes");
    }
    let listed = a.list(Range::all(), Page::default()).await.unwrap();
    assert_eq!(listed.value.entries, [last.current.unwrap()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn no_update_is_lost_when_all_servers_write_one_key() {
    let etcd = Peer::start("etcd", 1).await;
    let (a, b) = (connect(options(etcd.endpoints())).await, connect(options(etcd.endpoints())).await);
    let first = create(&a, "counter", "0").await;
    let mut watch = b.watch(Range::all(), first.revision).await.unwrap();
    let writers = [&a, &b, &a, &b].map(|server| {
        let (store, mut entry) = (server.store.clone(), first.current.clone().unwrap());
        tokio::spawn(async move {
            let mut written = 0;
            while written < 50 {
                let next = std::str::from_utf8(entry.value()).unwrap().parse::<u32>().unwrap() + 1;
                let expect = Expect::Revision(entry.revision());
                match store.commit(entry.key().clone(), expect, value(next.to_string())).await {
                    Ok(event) => (entry, written) = (event.current.unwrap(), written + 1),
                    // A conflict contains the current entry, so no read is necessary.
                    Err(CommitError::Conflict { current }) => entry = current.value.unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(text_of(&a, "counter").await.as_deref(), Some("200"));
    let steps: Vec<_> = (0..200).map(|step| format!("counter: {step} -> {}", step + 1)).collect();
    assert_eq!(describe(&next_events(&mut watch, 200).await), steps);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_thousand_readers_share_a_few_requests() {
    let etcd = Peer::start("etcd", 1).await;
    let proxy = Proxy::start(etcd.port(0)).await;
    let server = connect(options([proxy.endpoint()])).await;
    create(&server, "a", "1").await;
    proxy.delay(Duration::from_millis(50));
    let started = Instant::now();
    let key = Key::from("a");
    let reads = futures::future::join_all((0..1000).map(|_| server.get(&key))).await;
    assert!(reads.iter().all(|read| read.as_ref().is_ok_and(|found| found.value.is_some())));
    // Each request takes at least a tenth of a second. One at a time they would take minutes.
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn watchers_of_a_server_started_later_receive_earlier_events() {
    let etcd = Peer::start("etcd", 1).await;
    let a = connect(options(etcd.endpoints())).await;
    let first = create(&a, "a", "0").await;
    let mut last = first.clone();
    for count in 1..=1500 {
        last = update(&a, &last, &count.to_string()).await;
    }
    let gone = delete(&a, &last).await;
    create(&a, "b", "new").await;

    let b = connect(options(etcd.endpoints())).await;
    let mut watch = b.watch(Range::all(), first.revision).await.unwrap();
    let events = next_events(&mut watch, 1502).await;
    assert_eq!(events.len(), 1502);
    assert!(events.is_sorted_by(|earlier, later| earlier.revision < later.revision));
    assert_eq!(events[1500], gone);
    for (count, event) in events[..1500].iter().enumerate() {
        assert_eq!(describe(std::slice::from_ref(event)), [format!("a: {count} -> {}", count + 1)]);
    }
    let page = Page { at: Some(last.revision), ..Page::default() };
    let past = b.list(Range::all(), page).await.unwrap();
    assert_eq!(past.value.entries, [last.current.unwrap()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_compaction_on_one_server_applies_to_all() {
    let etcd = Peer::start("etcd", 1).await;
    let (a, b) = (connect(options(etcd.endpoints())).await, connect(options(etcd.endpoints())).await);
    let one = create(&a, "a", "1").await;
    let two = update(&a, &one, "2").await;
    let mut behind = b.watch(Range::all(), one.revision).await.unwrap();
    a.compact(two.revision).await.unwrap();
    let expected = ReadError::Compacted { requested: one.revision, oldest: two.revision };
    eventually("b is compacted too", async || {
        b.watch(Range::all(), one.revision).await.is_err_and(|error| error == expected)
    })
    .await;
    assert_eq!(soon(behind.next()).await.unwrap_err(), expected);
    let c = connect(options(etcd.endpoints())).await;
    assert_eq!(c.watch(Range::all(), one.revision).await.unwrap_err(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn old_history_is_compacted_automatically() {
    let etcd = Peer::start("etcd", 1).await;
    let every = Duration::from_millis(200);
    let compacting = || Options { compaction: Some(Compaction { every }), ..options(etcd.endpoints()) };
    let (a, b) = (connect(compacting()).await, connect(compacting()).await);
    let one = create(&a, "a", "1").await;
    let two = update(&b, &one, "2").await;
    for server in [&a, &b] {
        eventually("the first write is compacted", async || {
            let watch = server.watch(Range::all(), one.revision).await;
            watch.is_err_and(|error| matches!(error, ReadError::Compacted { .. }))
        })
        .await;
        assert_eq!(server.get(&two.key).await.unwrap().value, two.current);
    }
    // etcd itself has compacted: a plain client cannot read that revision either.
    let mut client = etcd.client(0).await.unwrap();
    let past = etcd_client::GetOptions::new().with_revision(one.revision.0 as i64 - 1);
    let error = client.get("any", Some(past)).await.unwrap_err();
    assert!(error.to_string().contains("compacted"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn the_feed_ends_with_the_last_handle_and_not_before() {
    let etcd = Peer::start("etcd", 1).await;
    let (store, feed) = storage::etcd::Etcd::connect(options(etcd.endpoints())).await.unwrap();
    let feed = tokio::spawn(feed.run());
    let clone = store.clone();
    drop(store);
    create(&clone, "a", "1").await;
    assert!(!feed.is_finished());
    drop(clone);
    soon(feed).await.unwrap();

    // Without its feed a store reports that it is unavailable.
    let (store, feed) = storage::etcd::Etcd::connect(options(etcd.endpoints())).await.unwrap();
    drop(feed);
    let error = store.get(&Key::from("a")).await.unwrap_err();
    assert!(matches!(&error, ReadError::Unavailable { reason } if reason.contains("feed")), "{error}");
}
