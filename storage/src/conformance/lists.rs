//! Lists: order, pages, and past revisions.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::key_space::KeySpace;
use crate::range::Range;
use crate::store::{Entry, Page, ReadError, Revision};

/// Reads all pages. All are at the revision of the first one.
async fn pages(space: &KeySpace, limit: usize, count: bool) -> (Revision, Vec<Entry>) {
    let mut page = Page { limit: Some(limit), count, ..Page::default() };
    let mut entries = Vec::new();
    let mut remaining = None;
    loop {
        let read = space.list(page.clone()).await;
        if let Some(at) = page.at {
            assert_eq!(read.revision, at, "a page has the requested revision");
        }
        let listing = read.value;
        assert!(listing.entries.len() <= limit);
        assert_eq!(listing.remaining.is_some(), count, "remaining entries are counted only if requested");
        if let (Some(before), Some(now)) = (remaining, listing.remaining) {
            assert_eq!(before, now + listing.entries.len(), "the count is this page and those after it");
        }
        assert_eq!(listing.remaining.unwrap_or(usize::from(listing.more)) > 0, listing.more);
        remaining = listing.remaining;
        page.at = Some(read.revision);
        page.after = listing.entries.last().map(|entry| entry.key().clone());
        entries.extend(listing.entries);
        if !listing.more {
            return (read.revision, entries);
        }
    }
}

pub(super) async fn pages_add_up_in_key_order(space: KeySpace) {
    let mut names: Vec<_> = (0..25).map(|nth| format!("{nth:02}")).collect();
    names.shuffle(&mut StdRng::seed_from_u64(25));
    for name in &names {
        space.put(name, name.clone()).await;
    }
    let complete = space.list(Page { count: true, ..Page::default() }).await.value;
    assert_eq!((complete.more, complete.remaining), (false, Some(0)));
    let keys: Vec<_> = complete.entries.iter().map(|entry| entry.key()).collect();
    assert!(keys.len() == 25 && keys.is_sorted(), "{keys:?}");
    for limit in [1, 2, 5, 7, 24, 25, 26, usize::MAX] {
        for count in [false, true] {
            let (_, entries) = pages(&space, limit, count).await;
            assert_eq!(entries, complete.entries, "in pages of {limit}");
        }
    }
    let none = space.list(Page { limit: Some(0), count: true, ..Page::default() }).await.value;
    assert_eq!((none.entries.len(), none.more, none.remaining), (0, true, Some(25)), "an empty page");
}

pub(super) async fn a_range_excludes_neighbouring_keys(space: KeySpace) {
    for name in ["a", "a/", "a/x", "a/y", "a0", "ab/", "ab/x", "b"] {
        space.put(name, name).await;
    }
    let check = async |range: Range, after: Option<&str>, expected: &[&str]| {
        let page = Page { after: after.map(|name| space.key(name)), count: true, ..Page::default() };
        let listing = space.store.list(range.clone(), page).await.expect("listed").value;
        let keys: Vec<_> = listing.entries.iter().map(|entry| entry.key().clone()).collect();
        let expected: Vec<_> = expected.iter().map(|name| space.key(name)).collect();
        assert_eq!(keys, expected, "{range:?} after {after:?}");
    };
    check(space.range("a/"), None, &["a/", "a/x", "a/y"]).await;
    check(space.range("ab/"), None, &["ab/", "ab/x"]).await;
    check(space.range("a/x"), None, &["a/x"]).await;
    check(space.range("c"), None, &[]).await;
    check(Range::key(space.key("a")), None, &["a"]).await;
    check(Range::key(space.key("ab")), None, &[]).await;
    check(Range::between(space.key("a/x"), space.key("ab/")), None, &["a/x", "a/y", "a0"]).await;
    check(Range::between(space.key("b"), space.key("a")), None, &[]).await;
    // A page may start anywhere, also outside its range.
    check(space.range("a/"), Some("a"), &["a/", "a/x", "a/y"]).await;
    check(space.range("a/"), Some(""), &["a/", "a/x", "a/y"]).await;
    check(space.range("a/"), Some("a/"), &["a/x", "a/y"]).await;
    check(space.range("a/"), Some("a/xx"), &["a/y"]).await;
    check(space.range("a/"), Some("b"), &[]).await;
}

pub(super) async fn a_past_revision_reads_as_it_was_read_then(space: KeySpace) {
    let mut rng = StdRng::seed_from_u64(60);
    let mut read_then = vec![space.list(Page::default()).await];
    for nth in 0..60 {
        let name = format!("{}", rng.random_range(0..12));
        match space.get(&name).await.value {
            Some(_) if rng.random_bool(0.4) => space.delete(&name).await,
            _ => space.put(&name, format!("{nth}")).await,
        };
        read_then.push(space.list(Page::default()).await);
    }
    read_then.shuffle(&mut rng);
    for then in read_then {
        let repeated = space.list(Page { at: Some(then.revision), ..Page::default() }).await;
        assert_eq!(repeated, then);
        let half = Page { at: Some(then.revision), limit: Some(5), count: true, ..Page::default() };
        let half = space.list(half).await;
        assert_eq!(half.revision, then.revision);
        assert_eq!(half.value.entries, then.value.entries[..then.value.entries.len().min(5)]);
        assert_eq!(half.value.remaining, Some(then.value.entries.len().saturating_sub(5)));
    }
}

pub(super) async fn pages_read_one_snapshot_while_writers_run(space: KeySpace) {
    for name in 0..20 {
        space.put(&format!("k{name}"), "start").await;
    }
    let mut busy = {
        let space = space.clone();
        tokio::spawn(async move { space.load("k", 4, 100, 20).await })
    };
    let mut lists = 0;
    while !busy.is_finished() || lists < 3 {
        lists += 1;
        // A store in memory never waits, and the writers may be queued behind this task.
        tokio::task::yield_now().await;
        let (revision, entries) = pages(&space, 3, lists % 2 == 0).await;
        let newer = entries.iter().find(|entry| entry.revision() > revision);
        assert_eq!(newer, None, "written after {revision:?}");
        let complete = space.list(Page { at: Some(revision), ..Page::default() }).await;
        assert_eq!(entries, complete.value.entries, "pages and the complete list at {revision:?}");
        let keys: Vec<_> = entries.iter().map(|entry| entry.key()).collect();
        assert!(keys.is_sorted_by(|one, next| one < next), "{keys:?}");
    }
    (&mut busy).await.expect("the load completes");
}

pub(super) async fn a_future_revision_is_refused(space: KeySpace) {
    let head = space.put("k", "one").await.revision;
    // Far ahead, because other clients may write to this store meanwhile.
    for ahead in [head.0 + 1_000_000, i64::MAX as u64, u64::MAX].map(Revision) {
        let page = Page { at: Some(ahead), ..Page::default() };
        let listed = space.store.list(space.all(), page).await.map(|_| ());
        let watched = space.try_follow(space.all(), ahead).await.map(|_| ());
        for refused in [listed, watched] {
            match refused {
                Err(ReadError::Future { requested, newest }) => {
                    assert!(requested == ahead && newest >= head && newest < ahead, "{refused:?}");
                }
                other => panic!("{ahead:?}: {other:?}"),
            }
        }
    }
    let now = space.list(Page { at: Some(head), ..Page::default() }).await;
    assert_eq!(now.value.entries.len(), 1, "the newest revision can be listed");
}
