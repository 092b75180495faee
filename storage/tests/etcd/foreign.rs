//! Changes of our keys by other clients.

use etcd_client::{Client, DeleteOptions, Txn, TxnOp};
use storage::etcd::{ConnectError, Etcd};
use storage::{Expect, Key, Page, Range, ReadError, Store};

use crate::peer::Etcd as Peer;
use crate::{connect, create, describe, eventually, next_events, options, soon, text_of, update, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_store_in_another_format_is_refused_by_name() {
    let etcd = Peer::start("etcd", 1).await;
    let mut client = etcd.client(0).await.unwrap();
    client.put("/holon/format", "7", None).await.unwrap();
    let error = Etcd::connect(options(etcd.endpoints())).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Format { found, .. } if found == "7"), "{error}");

    // Another prefix is another store.
    let mut other = options(etcd.endpoints());
    other.prefix = "/elsewhere".into();
    let (server, neighbour) = (connect(other.clone()).await, {
        other.prefix = "/else".into();
        connect(other).await
    });
    create(&server, "a", "1").await;
    assert_eq!(text_of(&neighbour, "a").await, None);
    assert_eq!(text_of(&server, "a").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn writes_elsewhere_in_etcd_do_not_hold_up_reads() {
    let etcd = Peer::start("etcd", 1).await;
    let server = connect(options(etcd.endpoints())).await;
    create(&server, "a", "1").await;
    let mut client = etcd.client(0).await.unwrap();
    for count in 0..50 {
        // The revision advances without an event of our watch, so the feed must ask for its progress.
        client.put("not-ours", count.to_string(), None).await.unwrap();
        assert_eq!(text_of(&server, "a").await.as_deref(), Some("1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_foreign_value_breaks_only_its_own_key() {
    let etcd = Peer::start("etcd", 1).await;
    let server = connect(options(etcd.endpoints())).await;
    create(&server, "a", "1").await;
    let mut client = etcd.client(0).await.unwrap();
    client.put("/holon/k/b", "no envelope", None).await.unwrap();
    assert_eq!(text_of(&server, "b").await.as_deref(), Some("no envelope"));
    let listed = server.list(Range::all(), Page::default()).await.unwrap();
    assert_eq!(listed.value.entries.len(), 2);
    let found = server.get(&Key::from("b")).await.unwrap().value.unwrap();
    let fixed = server.commit(Key::from("b"), Expect::Revision(found.revision()), value("2")).await.unwrap();
    assert_eq!(describe(&[fixed]), ["b: no envelope -> 2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn several_keys_changed_at_one_revision_cannot_be_watched_past() {
    let etcd = Peer::start("etcd", 1).await;
    let server = connect(options(etcd.endpoints())).await;
    let one = create(&server, "a", "1").await;
    create(&server, "b", "1").await;
    let kept = create(&server, "keep", "1").await;
    let mut watch = server.watch(Range::all(), one.revision).await.unwrap();
    next_events(&mut watch, 2).await;

    // A watcher that resumed between the two revisions would miss the second, so none may.
    remove_two(&mut etcd.client(0).await.unwrap()).await;
    let error = soon(watch.next()).await.unwrap_err();
    assert!(matches!(error, ReadError::Compacted { .. }), "{error}");
    assert_eq!(watch.next().await.unwrap_err(), error, "the error is final");
    let listed = server.list(Range::all(), Page::default()).await.unwrap();
    assert_eq!(listed.value.entries, [kept.current.clone().unwrap()]);
    let mut watch = server.watch(Range::all(), listed.revision).await.unwrap();
    update(&server, &kept, "2").await;
    assert_eq!(describe(&next_events(&mut watch, 1).await), ["keep: 1 -> 2"]);
    eventually("reads continue", async || text_of(&server, "a").await.is_none()).await;
}

async fn remove_two(client: &mut Client) {
    let both = Txn::new().and_then([
        TxnOp::delete("/holon/k/a", Some(DeleteOptions::new())),
        TxnOp::delete("/holon/k/b", Some(DeleteOptions::new())),
    ]);
    client.txn(both).await.unwrap();
}
