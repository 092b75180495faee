//! A cluster of three members, some of which are killed.

use std::time::{Duration, Instant};

use storage::etcd::Etcd;
use storage::{CommitError, Event, Expect, Key, Page, Range, ReadError, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::peer::Etcd as Peer;
use crate::{connect, create, describe, eventually, next_events, options, text_of, value};

/// Counts upwards in one key until `stop`, and returns every acknowledged write.
fn count_until(stop: &watch::Receiver<bool>, store: Etcd, key: &'static str) -> JoinHandle<Vec<Event>> {
    let stop = stop.clone();
    tokio::spawn(async move {
        let mut steps = vec![create(&store, key, "0").await];
        while !*stop.borrow() {
            let expect = Expect::Revision(steps.last().expect("the first entry").revision);
            match store.commit(Key::from(key), expect, value(steps.len().to_string())).await {
                Ok(step) => steps.push(step),
                // No other client writes this key, so a conflict would mean that our own write was reported as lost.
                Err(error @ (CommitError::Conflict { .. } | CommitError::Unknown { .. })) => {
                    panic!("{error}")
                }
                Err(error) => println!("{key}: {error}"),
            }
        }
        steps
    })
}

/// Reads the counters on another server, and fails if they ever decrease.
fn read_until(stop: &watch::Receiver<bool>, store: Etcd, key: &'static str) -> JoinHandle<u64> {
    let stop = stop.clone();
    tokio::spawn(async move {
        let (mut seen, mut reads) = (0, 0);
        while !*stop.borrow() {
            if let Ok(found) = store.get(&Key::from(key)).await {
                assert!(found.revision.0 >= seen, "{key} went back from {seen} to {:?}", found.revision);
                (seen, reads) = (found.revision.0, reads + 1);
            }
        }
        reads
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn no_acknowledged_write_is_lost_when_a_member_and_then_the_leader_crash() {
    let mut etcd = Peer::start("etcd", 3).await;
    let (a, b) = (connect(options(etcd.endpoints())).await, connect(options(etcd.endpoints())).await);
    let before = create(&a, "before", "0").await;
    let mut watch = b.watch(Range::key("counted-by-a"), before.revision).await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let writers = [
        count_until(&stopped, a.store.clone(), "counted-by-a"),
        count_until(&stopped, b.store.clone(), "counted-by-b"),
    ];
    let reader = read_until(&stopped, b.store.clone(), "counted-by-a");

    let mut probe = before;
    for round in 0..2 {
        let leader = etcd.leader().await;
        for victim in [(leader + 1) % 3, leader] {
            for _ in 0..30 {
                progress(&a, &mut probe).await;
            }
            etcd.kill(victim);
            let dead = Instant::now();
            progress(&a, &mut probe).await;
            println!("round {round}: a write {:?} after {victim} was killed", dead.elapsed());
            etcd.revive(victim);
            progress(&b, &mut probe).await;
        }
    }
    stop.send_replace(true);
    let mut counted = Vec::new();
    for writer in writers {
        counted.push(writer.await.unwrap());
    }
    println!("{} and {} writes, {} reads", counted[0].len(), counted[1].len(), reader.await.unwrap());

    // Every acknowledged write is in the history, once, in order, with the revision that its writer got.
    assert_eq!(next_events(&mut watch, counted[0].len()).await, counted[0]);
    for (key, steps) in ["counted-by-a", "counted-by-b"].into_iter().zip(&counted) {
        let last = steps.last().and_then(|step| step.current.clone());
        assert_eq!(a.get(&Key::from(key)).await.unwrap().value, last);
        assert_eq!(b.get(&Key::from(key)).await.unwrap().value, last);
    }
}

/// Retries a write until it succeeds.
async fn progress(store: &Etcd, last: &mut Event) {
    eventually("a write succeeds", async || {
        let expect = Expect::Revision(last.revision);
        let written = store.commit(last.key.clone(), expect, value("again")).await;
        written.map(|event| *last = event).is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn requests_fail_without_a_quorum_and_succeed_once_it_is_restored() {
    let mut etcd = Peer::start("etcd", 3).await;
    let mut impatient = options(etcd.endpoints());
    impatient.timeouts.overall = Duration::from_secs(2);
    impatient.timeouts.settle = Duration::from_secs(2);
    let server = connect(impatient).await;
    let first = create(&server, "a", "1").await;
    let mut watch = server.watch(Range::all(), first.revision).await.unwrap();
    let leader = etcd.leader().await;
    etcd.kill(leader);
    etcd.kill((leader + 1) % 3);

    let error = server.get(&first.key).await.unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
    let error = server.list(Range::all(), Page::default()).await.unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
    let error =
        server.commit(first.key.clone(), Expect::Revision(first.revision), value("2")).await.unwrap_err();
    let honest = matches!(error, CommitError::Unavailable { .. } | CommitError::Unknown { .. });
    assert!(honest, "{error}");

    etcd.revive(leader);
    etcd.leader().await;
    let back = Instant::now();
    eventually("reads work again", async || server.get(&first.key).await.is_ok()).await;
    println!("recovery took {:?}", back.elapsed());
    // If the result was unknown, the write may have happened or not; the next write shows which.
    let found = server.get(&first.key).await.unwrap().value.unwrap();
    let expect = Expect::Revision(found.revision());
    let third = server.commit(first.key.clone(), expect, value("3")).await.unwrap();
    let between = usize::from(found.revision() != first.revision);
    let events = next_events(&mut watch, 1 + between).await;
    assert_eq!(events.last(), Some(&third), "{:?}", describe(&events));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_restart_of_all_members_is_survived_by_watches_and_data() {
    let mut etcd = Peer::start("etcd", 3).await;
    let server = connect(options(etcd.endpoints())).await;
    let first = create(&server, "a", "1").await;
    let mut watch = server.watch(Range::all(), first.revision).await.unwrap();
    (0..3).for_each(|index| etcd.kill(index));
    (0..3).for_each(|index| etcd.revive(index));
    eventually("reads work again", async || server.get(&first.key).await.is_ok()).await;
    assert_eq!(text_of(&server, "a").await.as_deref(), Some("1"));
    create(&server, "b", "2").await;
    assert_eq!(describe(&next_events(&mut watch, 1).await), ["b: - -> 2"]);
}
