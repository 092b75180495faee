//! Commits: expectations, conflicts, size limits and concurrency.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::key_space::{KeySpace, assert_same};
use crate::store::{
    At, Change, CommitError, Entry, Event, Expect, KEY_BYTES_MAX, Page, Revision, VALUE_BYTES_MAX,
};

fn put(value: &'static str) -> Change {
    Change::Put(Bytes::from_static(value.as_bytes()))
}

#[track_caller]
fn conflict(outcome: Result<Event, CommitError>) -> At<Option<Entry>> {
    match outcome {
        Err(CommitError::Conflict { current }) => current,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

pub(super) async fn a_key_changes_only_as_expected(space: KeySpace) {
    let created = space.commit("k", Expect::Absent, put("one")).await.expect("absent, as expected");
    let one = created.current.clone().expect("a put has a current entry");
    assert_eq!((&created.key, &created.previous), (&space.key("k"), &None));
    assert_eq!((one.key(), one.revision(), &one.value()[..]), (&created.key, created.revision, &b"one"[..]));

    let current = conflict(space.commit("k", Expect::Absent, put("again")).await);
    assert_eq!(current.value.as_ref(), Some(&one), "the conflict contains the current entry");
    assert!(current.revision >= created.revision);

    let updated =
        space.commit("k", Expect::Revision(created.revision), put("two")).await.expect("unchanged since");
    assert!(updated.revision > created.revision);
    assert_eq!(updated.previous.as_ref(), Some(&one));

    let stale = Expect::Revision(created.revision);
    for change in [put("three"), Change::Delete] {
        let current = conflict(space.commit("k", stale, change).await);
        assert_eq!(current.value, updated.current);
    }
    assert_eq!(space.get("k").await.value, updated.current, "a conflict writes nothing");
    assert_eq!(space.list(Page::default()).await.value.entries, [updated.current.unwrap()]);
}

pub(super) async fn a_deleted_key_is_absent_and_can_come_back(space: KeySpace) {
    let first = space.put("k", "one").await;
    let current = conflict(space.commit("k", Expect::Absent, Change::Delete).await);
    assert_eq!(current.value, first.current, "deleting what should be absent always conflicts");

    let deleted =
        space.commit("k", Expect::Revision(first.revision), Change::Delete).await.expect("unchanged since");
    assert!(deleted.revision > first.revision, "a delete has its own revision");
    assert_eq!((&deleted.current, &deleted.previous), (&None, &first.current));
    let absent = space.get("k").await;
    assert!(absent.value.is_none() && absent.revision >= deleted.revision);

    let cases = [
        (Expect::Absent, Change::Delete),
        (Expect::Revision(first.revision), Change::Delete),
        (Expect::Revision(first.revision), put("x")),
        (Expect::Revision(deleted.revision), put("x")),
    ];
    for (expect, change) in cases {
        let current = conflict(space.commit("k", expect, change).await);
        assert!(current.value.is_none() && current.revision >= deleted.revision, "{expect:?}: {current:?}");
    }

    let back = space.commit("k", Expect::Absent, put("two")).await.expect("the key is absent again");
    assert!(back.previous.is_none(), "a new entry has no previous entry: {back:?}");
    conflict(space.commit("k", Expect::Revision(first.revision), Change::Delete).await);
    assert_eq!(space.get("k").await.value, back.current);
}

/// In etcd "modified at revision 0" means absent, and revisions are signed; neither must affect the contract.
pub(super) async fn impossible_expectations_conflict(space: KeySpace) {
    let impossible = [0, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX].map(Revision);
    for revision in impossible {
        for change in [put("x"), Change::Delete] {
            let current = conflict(space.commit("absent", Expect::Revision(revision), change).await);
            assert!(current.value.is_none(), "{revision:?}: {current:?}");
        }
    }
    let existing = space.put("there", "one").await;
    for revision in impossible {
        for change in [put("x"), Change::Delete] {
            let current = conflict(space.commit("there", Expect::Revision(revision), change).await);
            assert_eq!(current.value, existing.current, "{revision:?}");
        }
    }
}

pub(super) async fn a_conflict_is_true_at_its_revision(space: KeySpace) {
    let busy = {
        let space = space.clone();
        tokio::spawn(async move { space.load("k", 3, 60, 2).await })
    };
    for nth in 0..60 {
        let before = space.head().await;
        // A revision of the past, so this always conflicts.
        let current = conflict(space.commit("k0", Expect::Revision(Revision::ZERO), put("never")).await);
        assert!(
            current.revision >= before,
            "number {nth}: {current:?} is older than the read {before:?} before it"
        );
        let page = Page { at: Some(current.revision), ..Page::default() };
        let then = space.list(page).await.value.entries;
        let key = space.key("k0");
        let listed = then.into_iter().find(|entry| *entry.key() == key);
        assert_eq!(listed, current.value, "at {:?}", current.revision);
    }
    busy.await.expect("the load completes");
}

pub(super) async fn one_of_many_racing_writers_wins(space: KeySpace) {
    let mut expect = Expect::Absent;
    for round in 0..20 {
        let mut racers = JoinSet::new();
        for racer in 0..16 {
            let space = space.clone();
            let value = Bytes::from(format!("{round}.{racer}"));
            racers.spawn(async move { space.commit("k", expect, Change::Put(value)).await });
        }
        let (won, lost): (Vec<_>, Vec<_>) = racers.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "round {round}: {won:?}");
        let winner = won.into_iter().flatten().next().expect("one writer succeeds");
        for loser in lost {
            assert_eq!(
                conflict(loser).value,
                winner.current,
                "round {round}: a conflict contains the entry of the winner"
            );
        }
        expect = Expect::Revision(winner.revision);
    }
}

pub(super) async fn revisions_increase_across_concurrent_writers(space: KeySpace) {
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let space = space.clone();
        writers.spawn(async move {
            let mut revisions = Vec::new();
            let mut floor = space.head().await;
            for nth in 0..40 {
                let event = space.put(&format!("{}", (writer + nth) % 3), format!("{writer}.{nth}")).await;
                assert!(
                    event.revision > floor,
                    "{event:?} is not newer than {floor:?}, read before it began"
                );
                floor = space.head().await;
                assert!(floor >= event.revision, "read {floor:?} after {event:?} was acknowledged");
                revisions.push(event.revision);
            }
            revisions
        });
    }
    let revisions = writers.join_all().await.concat();
    let distinct: BTreeSet<_> = revisions.iter().collect();
    assert_eq!(distinct.len(), revisions.len(), "every commit has its own revision");
}

pub(super) async fn reads_reflect_every_acknowledged_write(space: KeySpace) {
    let mut writers = JoinSet::new();
    for writer in 0..6 {
        let space = space.clone();
        writers.spawn(async move {
            let name = format!("own{writer}");
            for nth in 0..30 {
                let wrote = if nth % 4 == 3 {
                    space.delete(&name).await
                } else {
                    space.put(&name, format!("{nth}")).await
                };
                let got = space.get(&name).await;
                assert_eq!(got.value, wrote.current, "a get after {wrote:?}");
                assert!(got.revision >= wrote.revision);
                let listed = space.list(Page::default()).await;
                assert!(listed.revision >= got.revision, "revisions increase");
                let ours = listed.value.entries.into_iter().find(|entry| *entry.key() == wrote.key);
                assert_eq!(ours, wrote.current, "a list after {wrote:?}");
            }
        });
    }
    writers.join_all().await;
}

pub(super) async fn too_large_is_refused_and_nothing_is_written(space: KeySpace) {
    let mut follower = space.follow(space.all(), space.head().await).await;
    let available = KEY_BYTES_MAX - space.key("").as_bytes().len();
    let (longest, too_long) = ("k".repeat(available), "k".repeat(available + 1));
    let (largest, too_large) =
        (Bytes::from(vec![7; VALUE_BYTES_MAX]), Bytes::from(vec![7; VALUE_BYTES_MAX + 1]));

    let refused = [
        space.commit(&too_long, Expect::Absent, put("x")).await,
        space.commit("k", Expect::Absent, Change::Put(too_large)).await,
    ];
    for outcome in refused {
        assert!(matches!(outcome, Err(CommitError::Refused { .. })), "{outcome:?}");
    }
    assert!(space.get("k").await.value.is_none());

    let mut expected =
        vec![space.commit(&longest, Expect::Absent, put("x")).await.expect("within the maximum")];
    // An engine may have a smaller limit than the contract (etcd's is configured in etcd), but must then refuse the
    // write.
    match space.commit("k", Expect::Absent, Change::Put(largest)).await {
        Ok(event) => expected.push(event),
        Err(error) => assert!(matches!(error, CommitError::Refused { .. }), "{error}"),
    }
    let mebibyte = Change::Put(vec![8; 1 << 20].into());
    expected.push(space.commit("m", Expect::Absent, mebibyte).await.expect("a mebibyte always fits"));
    assert_same("all that was written", &follower.take(expected.len()).await, &expected);
    let entries = space.list(Page::default()).await.value.entries;
    assert_eq!(entries.len(), expected.len());
}

pub(super) async fn keys_and_values_are_any_bytes(space: KeySpace) {
    let mut names: Vec<&[u8]> = vec![
        b"a",
        b"a\0",
        b"a\0\0",
        b"a\0\xff",
        b"a\x01",
        b"a\xff",
        b"a\xff\0",
        b"a\xff\xff",
        b"b",
        b"\0",
        b"\xff",
        b"\xff\xff",
        b"",
        b"\xc3\x28",
    ];
    let mut follower = space.follow(space.all(), space.head().await).await;
    let mut expected = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        let value: Bytes = if nth % 2 == 0 { Bytes::new() } else { vec![0, 255, nth as u8].into() };
        let event = space.commit(name, Expect::Absent, Change::Put(value.clone())).await.expect("absent");
        let got = space.get(name).await.value.expect("an empty value is not an absent one");
        assert_eq!((got.key(), got.value()), (&space.key(name), &value));
        expected.push(event);
    }
    assert_same("watched", &follower.take(expected.len()).await, &expected);
    names.sort();
    let listed = space.list(Page::default()).await.value.entries;
    let keys: Vec<_> = listed.iter().map(|entry| entry.key().clone()).collect();
    assert_eq!(keys, names.iter().map(|name| space.key(name)).collect::<Vec<_>>(), "in byte order");
    for start in names {
        let found =
            space.store.list(space.range(start), Page::default()).await.expect("listed").value.entries;
        let begins =
            listed.iter().filter(|entry| entry.key().as_bytes().starts_with(space.key(start).as_bytes()));
        assert_eq!(found, begins.cloned().collect::<Vec<_>>(), "below {}", start.escape_ascii());
    }
}

/// Each round drops a commit after some polls and then writes with the expectation from before it. If that conflicts,
/// the dropped commit happened, and must be complete; if not, it must never happen.
pub(super) async fn a_dropped_commit_happens_completely_or_not_at_all(space: KeySpace) {
    let mut last = space.put("k", "start").await;
    let mut follower = space.follow(space.all(), last.revision).await;
    let mut expected = Vec::new();
    for round in 0..60 {
        let expect = Expect::Revision(last.revision);
        let value = Bytes::from(format!("dropped {round}"));
        let mut commit = space.store.commit(space.key("k"), expect, Change::Put(value.clone()));
        for _ in 0..round % 4 {
            let done = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context).is_ready())).await;
            if done {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(commit);
        let fence = Change::Put(format!("fence {round}").into());
        last = match space.commit("k", expect, fence.clone()).await {
            Ok(event) => event,
            Err(CommitError::Conflict { current }) => {
                let dropped = current.value.expect("no other client deletes");
                assert_eq!(dropped.value(), &value, "completely or not at all");
                expected.push(Event {
                    revision: dropped.revision(),
                    key: space.key("k"),
                    current: Some(dropped.clone()),
                    previous: last.current.clone(),
                });
                let expect = Expect::Revision(dropped.revision());
                space.commit("k", expect, fence).await.expect("no other client writes")
            }
            Err(error) => panic!("round {round}: {error}"),
        };
        expected.push(last.clone());
    }
    let seen = follower.until(space.head().await).await.expect("history is kept");
    assert_same("dropped commits appear once, and only those that happened", &seen, &expected);
}
