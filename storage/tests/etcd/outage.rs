//! The connection to etcd fails and is restored.

use std::time::{Duration, Instant};

use storage::{Key, Page, Range, ReadError, Revision, Store};

use crate::peer::{Etcd as Peer, Proxy};
use crate::{connect, create, delete, describe, eventually, next_events, options, soon, text_of, update};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_watch_survives_cuts_and_delays_without_missing_or_repeating_events() {
    let etcd = Peer::start("etcd", 1).await;
    let proxy = Proxy::start(etcd.port(0)).await;
    let (a, b) = (connect(options([proxy.endpoint()])).await, connect(options(etcd.endpoints())).await);
    let first = create(&b, "a", "0").await;
    let mut watch = a.watch(Range::all(), first.revision).await.unwrap();
    let mut last = first;
    for count in 1..=300 {
        last = update(&b, &last, &count.to_string()).await;
        match count % 60 {
            20 => proxy.cut(),
            40 => proxy.delay(Duration::from_millis(20)),
            0 => proxy.heal(),
            _ => {}
        }
    }
    let expected: Vec<_> = (0..300).map(|count| format!("a: {count} -> {}", count + 1)).collect();
    assert_eq!(describe(&next_events(&mut watch, 300).await), expected);
    assert_eq!(text_of(&a, "a").await.as_deref(), Some("300"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_silent_connection_is_detected_and_reads_fail_rather_than_be_stale() {
    let etcd = Peer::start("etcd", 1).await;
    let proxy = Proxy::start(etcd.port(0)).await;
    let mut impatient = options([proxy.endpoint()]);
    impatient.timeouts.overall = Duration::from_secs(2);
    let (a, b) = (connect(impatient).await, connect(options(etcd.endpoints())).await);
    let first = create(&a, "a", "old").await;
    let mut watch = a.watch(Range::all(), first.revision).await.unwrap();
    proxy.black_hole();
    update(&b, &first, "new").await;

    let started = Instant::now();
    let error = a.get(&Key::from("a")).await.unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
    let error = a.list(Range::all(), Page::default()).await.unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());

    proxy.heal();
    eventually("reads work again", async || a.get(&Key::from("a")).await.is_ok()).await;
    assert_eq!(text_of(&a, "a").await.as_deref(), Some("new"));
    assert_eq!(describe(&next_events(&mut watch, 1).await), ["a: old -> new"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_feed_that_alone_stops_responding_is_reopened_on_another_member() {
    // Only the responses of the first member are lost; the second leads to the same etcd.
    let etcd = Peer::start("etcd", 1).await;
    let proxy = Proxy::start(etcd.port(0)).await;
    let a = connect(options([proxy.endpoint(), etcd.endpoint(0)])).await;
    let b = connect(options(etcd.endpoints())).await;
    let first = create(&a, "a", "0").await;
    let mut watch = a.watch(Range::all(), first.revision).await.unwrap();
    proxy.swallow_answers();
    update(&b, &first, "1").await;
    // No client reads from `a`, so only its own heartbeats can detect the silence.
    assert_eq!(describe(&next_events(&mut watch, 1).await), ["a: 0 -> 1"]);
    assert_eq!(text_of(&a, "a").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn an_idle_feed_keeps_its_watch() {
    // etcd reports no progress to a watch that begins in the future, as ours would on an idle store. The feed then
    // reopened it again and again.
    let etcd = Peer::start("etcd", 1).await;
    let mut restless = options(etcd.endpoints());
    restless.timeouts.request = Duration::from_millis(300);
    restless.timeouts.heartbeat = Duration::from_millis(50);
    let server = connect(restless).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(etcd.metric("grpc_server_started_total{grpc_method=\"Watch\"").await, 1.0);
    create(&server, "a", "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_watcher_behind_a_compaction_in_an_outage_gets_compacted_and_lists_are_current() {
    let etcd = Peer::start("etcd", 1).await;
    let proxy = Proxy::start(etcd.port(0)).await;
    let (a, b) = (connect(options([proxy.endpoint()])).await, connect(options(etcd.endpoints())).await);
    let changed = create(&b, "changed", "1").await;
    let deleted = create(&b, "deleted", "1").await;
    let recreated = create(&b, "recreated", "1").await;
    let kept = create(&b, "kept", "1").await;
    assert_eq!(text_of(&a, "kept").await.as_deref(), Some("1"));
    let mut everything = a.watch(Range::all(), kept.revision).await.unwrap();
    let mut quiet = a.watch(Range::key("nothing-happens-here"), kept.revision).await.unwrap();

    // While `a` is disconnected, entries change and the history is compacted.
    proxy.black_hole();
    let changed = update(&b, &changed, "2").await;
    delete(&b, &deleted).await;
    delete(&b, &recreated).await;
    let recreated = create(&b, "recreated", "2").await;
    let added = create(&b, "added", "2").await;
    b.compact(Revision(u64::MAX)).await.unwrap();
    proxy.heal();

    for watch in [&mut everything, &mut quiet] {
        let error = soon(watch.next()).await.unwrap_err();
        assert!(matches!(error, ReadError::Compacted { oldest, .. } if oldest >= added.revision), "{error}");
        assert_eq!(watch.next().await.unwrap_err(), error, "the error is final");
    }
    let listed = soon(a.list(Range::all(), Page::default())).await.unwrap();
    let expected = [added, changed.clone(), kept, recreated].map(|event| event.current.unwrap());
    assert_eq!(listed.value.entries, expected);
    // From here on everything works, also on the server that was disconnected.
    let mut watch = a.watch(Range::all(), listed.revision).await.unwrap();
    let updated = update(&a, &changed, "3").await;
    assert_eq!(next_events(&mut watch, 1).await, [updated]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_compaction_by_an_operator_is_reported_to_watchers_that_need_old_history() {
    let etcd = Peer::start("etcd", 1).await;
    let a = connect(options(etcd.endpoints())).await;
    let one = create(&a, "a", "1").await;
    let two = update(&a, &one, "2").await;
    let gone = delete(&a, &two).await;
    // Connected afterwards, so that this server has none of the history in memory.
    let b = connect(options(etcd.endpoints())).await;
    let mut client = etcd.client(0).await.unwrap();
    // Exactly at the delete: etcd lets a watch begin there, and may omit the delete.
    client.compact(gone.revision.0 as i64, None).await.unwrap();
    for requested in [one.revision, two.revision] {
        let mut watch = b.watch(Range::all(), requested).await.unwrap();
        let error = soon(watch.next()).await.unwrap_err();
        assert_eq!(error, ReadError::Compacted { requested, oldest: gone.revision });
    }
    let mut watch = b.watch(Range::all(), gone.revision).await.unwrap();
    create(&a, "a", "3").await;
    assert_eq!(describe(&next_events(&mut watch, 1).await), ["a: - -> 3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_compaction_during_the_load_makes_it_start_over() {
    let etcd = Peer::start_with("etcd", 1, "http", &["--unsafe-no-fsync"]).await;
    let writer = connect(options(etcd.endpoints())).await;
    let text = "x".repeat(4000);
    // More than two pages of four mebibytes.
    let write = |batch: u32| {
        let (store, text) = (&writer.store, &text);
        async move {
            for index in 0..80 {
                create(store, &format!("{batch:02}/{index:02}"), text).await;
            }
        }
    };
    futures::future::join_all((0..30).map(write)).await;

    // Slow enough that the first attempt is still in progress when its revision is compacted.
    let proxy = Proxy::start(etcd.port(0)).await;
    proxy.delay(Duration::from_millis(10));
    let loading = tokio::spawn(connect(options([proxy.endpoint()])));
    let mut client = etcd.client(0).await.unwrap();
    let mut marker = create(&writer, "marker", "0").await;
    let compacted = "grpc_server_handled_total{grpc_code=\"OutOfRange\",grpc_method=\"Range\"";
    eventually("a page is requested after a compaction", async || {
        marker = update(&writer, &marker, "1").await;
        client.compact(marker.revision.0 as i64, None).await.unwrap();
        etcd.metric(compacted).await > 0.0
    })
    .await;
    proxy.heal();
    let server = soon(loading).await.unwrap();
    let listed = server.list(Range::all(), Page::default()).await.unwrap();
    assert_eq!(listed.value.entries.len(), 30 * 80 + 1);
    assert_eq!(listed.value, writer.list(Range::all(), Page::default()).await.unwrap().value);
}
