//! The contract of all engines, on every supported version of etcd.

use bytes::Bytes;
use storage::etcd::{Etcd, Mode};
use storage::{Change, CommitError, Expect, Key, Page, Range, ReadError, Revision, Store};

use crate::peer::Etcd as Peer;
use crate::{connect, create, current_of, delete, describe, next_events, options, soon, update, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_current_etcd_keeps_the_contract_and_is_read_from_memory() {
    let etcd = Peer::start("etcd", 1).await;
    let server = connect(options(etcd.endpoints())).await;
    assert_eq!(server.mode(), Mode::View);
    keeps_the_contract(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd-3.5.1"]
async fn etcd_3_5_1_is_detected_and_keeps_the_contract_by_direct_reads() {
    let etcd = Peer::start("etcd-3.5.1", 1).await;
    let server = connect(options(etcd.endpoints())).await;
    assert_eq!(server.mode(), Mode::Direct);
    keeps_the_contract(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd-3.4.23"]
async fn etcd_3_4_23_is_detected_and_keeps_the_contract_by_direct_reads() {
    let etcd = Peer::start("etcd-3.4.23", 1).await;
    let server = connect(options(etcd.endpoints())).await;
    assert_eq!(server.mode(), Mode::Direct);
    keeps_the_contract(&server).await;
}

async fn keeps_the_contract(store: &Etcd) {
    writes_succeed_only_at_the_expected_revision(store).await;
    odd_keys_and_values_come_back_as_they_were(store).await;
    pages_of_a_list_are_of_one_revision(store).await;
    a_watch_sees_every_change_once_and_in_order(store).await;
    too_large_is_refused(store).await;
    compacted_revisions_are_gone(store).await;
}

async fn writes_succeed_only_at_the_expected_revision(store: &Etcd) {
    let key = Key::from("writes/a");
    let absent = store.get(&key).await.unwrap();
    assert_eq!(absent.value, None);

    let first = create(store, "writes/a", "one").await;
    assert!(first.revision > absent.revision && first.previous.is_none(), "{first:?}");
    let found = store.get(&key).await.unwrap();
    assert!(found.revision >= first.revision);
    assert_eq!(found.value, first.current);

    let taken = store.commit(key.clone(), Expect::Absent, value("x")).await.unwrap_err();
    assert_eq!(current_of(taken), Some((first.revision, "one".into())));
    let second = update(store, &first, "two").await;
    assert_eq!(second.previous, first.current);
    for (expect, change) in [
        (Expect::Revision(first.revision), value("late")),
        (Expect::Revision(first.revision), Change::Delete),
        (Expect::Absent, Change::Delete),
        (Expect::Revision(Revision::ZERO), value("never")),
        (Expect::Revision(Revision(u64::MAX)), value("never")),
    ] {
        let lost = store.commit(key.clone(), expect, change).await.unwrap_err();
        assert_eq!(current_of(lost), Some((second.revision, "two".into())), "{expect:?}");
    }

    let gone = delete(store, &second).await;
    assert_eq!((gone.current.clone(), gone.previous), (None, second.current));
    let repeated = store.commit(key.clone(), Expect::Revision(second.revision), Change::Delete).await;
    let CommitError::Conflict { current } = repeated.unwrap_err() else { panic!() };
    assert!(current.revision >= gone.revision && current.value.is_none(), "{current:?}");
    let zero = store.commit(key.clone(), Expect::Revision(Revision::ZERO), value("x")).await.unwrap_err();
    assert_eq!(current_of(zero), None);
    assert!(create(store, "writes/a", "three").await.revision > gone.revision);
}

async fn odd_keys_and_values_come_back_as_they_were(store: &Etcd) {
    let keys: [&[u8]; 5] = [b"", b"\0", b"odd/\xff\xff", b"odd/\0/", &[255; 40]];
    for bytes in keys {
        let (key, empty) = (Key::from(bytes), Change::Put(Bytes::new()));
        let put = store.commit(key.clone(), Expect::Absent, empty).await.unwrap();
        assert_eq!(store.get(&key).await.unwrap().value, put.current);
        store.commit(key, Expect::Revision(put.revision), Change::Delete).await.unwrap();
    }
}

async fn pages_of_a_list_are_of_one_revision(store: &Etcd) {
    for name in ["a", "b", "c", "d", "e"] {
        create(store, &format!("pages/{name}"), name).await;
    }
    create(store, "pagesz", "not below pages/").await;
    let names = |listing: &storage::Listing| {
        listing.entries.iter().map(|entry| entry.value()[0] as char).collect::<String>()
    };
    let range = Range::prefix("pages/");
    let page = Page { limit: Some(2), count: true, ..Page::default() };
    let first = store.list(range.clone(), page.clone()).await.unwrap();
    assert_eq!((names(&first.value), first.value.more, first.value.remaining), ("ab".into(), true, Some(3)));

    // A change between two pages must not be on the second page.
    let added = create(store, "pages/bb", "x").await;
    let c = store.get(&Key::from("pages/c")).await.unwrap().value.unwrap();
    store.commit(c.key().clone(), Expect::Revision(c.revision()), Change::Delete).await.unwrap();
    let after = first.value.entries.last().map(|entry| entry.key().clone());
    let page = Page { after, at: Some(first.revision), ..page };
    let second = store.list(range.clone(), page.clone()).await.unwrap();
    assert_eq!(second.revision, first.revision);
    assert_eq!((names(&second.value), second.value.remaining), ("cd".into(), Some(1)));
    let after = second.value.entries.last().map(|entry| entry.key().clone());
    let last = store.list(range.clone(), Page { after, ..page }).await.unwrap();
    assert_eq!((names(&last.value), last.value.more, last.value.remaining), ("e".into(), false, Some(0)));

    let now = store.list(range.clone(), Page::default()).await.unwrap();
    assert_eq!(names(&now.value), "abxde");
    let none = store.list(range.clone(), Page { limit: Some(0), ..Page::default() }).await.unwrap();
    assert_eq!((none.value.entries.len(), none.value.more), (0, true));
    let at = Page { at: Some(added.revision), ..Page::default() };
    assert_eq!(names(&store.list(range.clone(), at).await.unwrap().value), "abxcde");
    let outside = Page { after: Some(Key::from("zzz")), ..Page::default() };
    assert_eq!(store.list(range.clone(), outside).await.unwrap().value.entries, []);
    let ahead = Page { at: Some(Revision(now.revision.0 + 1_000_000)), ..Page::default() };
    let error = store.list(range, ahead).await.unwrap_err();
    assert!(matches!(error, ReadError::Future { .. }), "{error}");
}

async fn a_watch_sees_every_change_once_and_in_order(store: &Etcd) {
    let before = create(store, "watched/a", "1").await;
    let mut watch = store.watch(Range::prefix("watched/"), Revision(before.revision.0 - 1)).await.unwrap();
    let second = update(store, &before, "2").await;
    create(store, "elsewhere", "x").await;
    delete(store, &second).await;
    let last = create(store, "watched/b", "3").await;
    let events = next_events(&mut watch, 4).await;
    let expected = ["watched/a: - -> 1", "watched/a: 1 -> 2", "watched/a: 2 -> -", "watched/b: - -> 3"];
    assert_eq!(describe(&events), expected);
    assert!(events.is_sorted_by(|earlier, later| earlier.revision < later.revision), "{events:?}");

    // The watch advances although nothing in its range changes.
    let after = create(store, "elsewhere-too", "x").await;
    assert!(watch.through() >= after.revision, "{watch:?}");
    let mut resumed = store.watch(Range::prefix("watched/"), events[1].revision).await.unwrap();
    assert_eq!(describe(&next_events(&mut resumed, 2).await), expected[2..]);
    update(store, &last, "4").await;
    assert_eq!(describe(&next_events(&mut resumed, 1).await), ["watched/b: 3 -> 4"]);
    assert_eq!(describe(&next_events(&mut watch, 1).await), ["watched/b: 3 -> 4"]);

    let error = store.watch(Range::all(), Revision(after.revision.0 + 1_000_000)).await.unwrap_err();
    assert!(matches!(error, ReadError::Future { .. }), "{error}");
}

async fn too_large_is_refused(store: &Etcd) {
    // The first is more than any engine accepts; the second is more than etcd accepts by default.
    for bytes in [storage::VALUE_BYTES_MAX + 1, 2 << 20] {
        let put = Change::Put(vec![7; bytes].into());
        let error = store.commit(Key::from("large"), Expect::Absent, put).await.unwrap_err();
        assert!(matches!(error, CommitError::Refused { .. }), "{bytes}: {error}");
    }
    let put = Change::Put(vec![7; 1 << 20].into());
    let large = store.commit(Key::from("large"), Expect::Absent, put).await.unwrap();
    assert_eq!(store.get(&Key::from("large")).await.unwrap().value, large.current);
}

async fn compacted_revisions_are_gone(store: &Etcd) {
    let one = create(store, "compacted", "1").await;
    let two = update(store, &one, "2").await;
    let three = update(store, &two, "3").await;
    let mut behind = store.watch(Range::key("compacted"), one.revision).await.unwrap();
    store.compact(two.revision).await.unwrap();

    let expected = ReadError::Compacted { requested: one.revision, oldest: two.revision };
    assert_eq!(store.watch(Range::all(), one.revision).await.unwrap_err(), expected);
    assert_eq!(soon(behind.next()).await.unwrap_err(), expected);
    let page = Page { at: Some(one.revision), ..Page::default() };
    let error = store.list(Range::all(), page).await.unwrap_err();
    assert!(matches!(error, ReadError::Compacted { .. }), "{error}");
    let page = Page { at: Some(two.revision), ..Page::default() };
    let listing = store.list(Range::key("compacted"), page).await.unwrap();
    assert_eq!(listing.value.entries, [two.current.clone().unwrap()]);
    let mut watch = store.watch(Range::key("compacted"), two.revision).await.unwrap();
    assert_eq!(next_events(&mut watch, 1).await, std::slice::from_ref(&three));

    // Compacting again, to an earlier revision and beyond the end are all allowed.
    store.compact(one.revision).await.unwrap();
    store.compact(Revision(u64::MAX)).await.unwrap();
    assert_eq!(store.get(&three.key).await.unwrap().value, three.current);
    let error = store.watch(Range::all(), two.revision).await.unwrap_err();
    assert!(matches!(error, ReadError::Compacted { .. }), "{error}");
    let newest = store.get(&three.key).await.unwrap().revision;
    let mut watch = store.watch(Range::all(), newest).await.unwrap();
    let four = update(store, &three, "4").await;
    assert_eq!(next_events(&mut watch, 1).await, [four]);
}
