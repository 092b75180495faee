use std::collections::{BTreeMap, VecDeque};

use api::cluster::Id;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::*;
use crate::history::{Boxed, SharedObject};
use crate::key::Key;
use crate::kind::ResourceKind;
use crate::tasks::KeyedTasks;

/// A history in memory: one write is one revision.
#[derive(Debug, Default)]
struct FakeHistory(Arc<FakeState>);

#[derive(Debug, Default)]
struct FakeState {
    writes: Mutex<Vec<FakeWrite>>,
    /// The next read at or before this revision fails once.
    compacted: Mutex<Option<u64>>,
    written: Notify,
}

/// The plural of the kind, the name, and whether the object exists afterwards.
type FakeWrite = (&'static str, &'static str, bool);

struct FakeChanges {
    state: Arc<FakeState>,
    through: u64,
    followed: BTreeMap<String, usize>,
}

fn key(name: &str) -> Key {
    Key { cluster: Some(Id::ROOT), ..Key::new("shop", name) }
}

fn object(name: &str, revision: u64) -> SharedObject {
    let json = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}").into_bytes().into();
    SharedObject { key: key(name), uid: name.to_owned(), revision, json, version_at: 13 }
}

impl FakeState {
    fn write(&self, write: FakeWrite) -> u64 {
        let mut writes = self.writes.lock().unwrap();
        writes.push(write);
        self.written.notify_waiters();
        writes.len() as u64
    }

    fn read_at(&self, revision: u64) -> Result<(), HistoryError> {
        let mut compacted = self.compacted.lock().unwrap();
        match compacted.take_if(|compacted| revision <= *compacted) {
            Some(_) => Err(HistoryError::Compacted),
            None => Ok(()),
        }
    }
}

impl History for FakeHistory {
    fn newest(&self) -> Boxed<'_, Result<u64, HistoryError>> {
        Box::pin(async { Ok(self.0.writes.lock().unwrap().len() as u64) })
    }

    fn list<'a>(
        &'a self,
        kind: &'a ResourceKind,
        at: u64,
    ) -> Boxed<'a, Result<Vec<SharedObject>, HistoryError>> {
        Box::pin(async move {
            self.0.read_at(at)?;
            if kind.plural == "forbidden" {
                return Err(HistoryError::Forbidden("cannot list".to_owned()));
            }
            let mut objects = BTreeMap::new();
            for (revision, (plural, name, exists)) in
                (1..=at).zip(self.0.writes.lock().unwrap().iter().copied())
            {
                if plural == kind.plural && exists {
                    objects.insert(name, object(name, revision));
                } else if plural == kind.plural {
                    objects.remove(name);
                }
            }
            Ok(objects.into_values().collect())
        })
    }

    fn changes(&self, after: u64) -> Boxed<'_, Result<Box<dyn Changes>, HistoryError>> {
        let changes = FakeChanges { state: self.0.clone(), through: after, followed: BTreeMap::new() };
        Box::pin(async move { Ok(Box::new(changes) as Box<dyn Changes>) })
    }
}

impl Changes for FakeChanges {
    fn follow(&mut self, kind: &ResourceKind, number: usize) {
        self.followed.insert(kind.plural.clone(), number);
    }

    fn next(&mut self, goal: Option<u64>) -> Boxed<'_, Result<ChangeBatch, HistoryError>> {
        Box::pin(async move {
            loop {
                let written = self.state.written.notified();
                self.state.read_at(self.through)?;
                let next: VecDeque<FakeWrite> =
                    self.state.writes.lock().unwrap().iter().skip(self.through as usize).copied().collect();
                if let Some((plural, name, exists)) = next.front() {
                    self.through += 1;
                    let number = self.followed.get(*plural).copied();
                    let change = number.map(|number| match exists {
                        true => ObjectChange::Put { number, object: object(name, self.through) },
                        false => ObjectChange::Deleted { number, key: key(name), revision: self.through },
                    });
                    return Ok(ChangeBatch { changes: change.into_iter().collect(), through: self.through });
                }
                if goal.is_some_and(|goal| self.through >= goal) {
                    return Ok(ChangeBatch { changes: Vec::new(), through: self.through });
                }
                written.await;
            }
        })
    }
}

fn view(plural: &str) -> Arc<View> {
    Arc::new(View::new(ResourceKind::new("", "v1", plural, plural, true)))
}

/// A follower of `a` and `b`, without the objects named `hidden`, and the news it reports.
struct Fixture {
    state: Arc<FakeState>,
    follower: Arc<Follower>,
    news: Arc<Mutex<Vec<String>>>,
    b: Arc<View>,
    _task: KeyedTasks<&'static str, ()>,
}

impl Fixture {
    async fn of(writes: &[FakeWrite]) -> Fixture {
        let history = FakeHistory::default();
        let state = history.0.clone();
        for write in writes {
            state.write(*write);
        }
        let follower = Arc::new(Follower::new(Arc::new(history)));
        let (news, b) = (Arc::new(Mutex::new(Vec::new())), view("b"));
        let (log, running) = (news.clone(), follower.clone());
        let views = vec![
            FollowedView::all(&view("a")),
            FollowedView::filtered(&b, |object| object.key.name != "hidden"),
        ];
        let mut task = KeyedTasks::default();
        task.spawn("follower", async move {
            let note = |view: &View, news: News| {
                let kind = &view.kind.plural;
                log.lock().unwrap().push(match news {
                    News::Put { now, new } => {
                        format!("{}{kind}/{}@{}", if new { "+" } else { "~" }, now.key.name, now.version)
                    }
                    News::Gone { last, witnessed } => {
                        format!("-{kind}/{}{}", last.key.name, if witnessed { "" } else { "?" })
                    }
                    News::Synced => format!("{kind} synced"),
                    News::Lost => format!("{kind} lost"),
                });
            };
            match running.run(views, note).await {}
        });
        Fixture { state, follower, news, b, _task: task }
    }

    /// Waits for a revision, and takes the news.
    async fn news_through(&self, revision: u64) -> String {
        let reached = timeout(Duration::from_secs(60), self.follower.reach(revision)).await;
        assert!(reached.is_ok(), "revision {revision} is not reached");
        std::mem::take(&mut *self.news.lock().unwrap()).join(" ")
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_all_kinds_arrive_in_the_order_of_their_revisions() {
    let fixture =
        Fixture::of(&[("b", "one", true), ("a", "one", true), ("a", "two", true), ("a", "two", false)]).await;
    assert!(!fixture.b.known());
    assert_eq!(fixture.news_through(4).await, "+a/one@2 +b/one@1 a synced b synced");
    let writes = [
        ("b", "two", true),
        ("a", "one", true),
        ("c", "other", true),
        ("b", "two", false),
        ("a", "one", false),
    ];
    let last = writes.map(|write| fixture.state.write(write))[4];
    assert_eq!(fixture.news_through(last).await, "+b/two@5 ~a/one@6 -b/two -a/one");
    // A revision that no followed kind has changed is reached too.
    let other = fixture.state.write(("c", "other", false));
    assert_eq!(fixture.news_through(other).await, "");
    assert!(fixture.b.synced());
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_not_kept_are_gone() {
    let fixture = Fixture::of(&[("b", "hidden", true)]).await;
    assert_eq!(fixture.news_through(1).await, "a synced b synced");
    let last = fixture.state.write(("b", "hidden", true));
    assert_eq!(fixture.news_through(last).await, "");
    assert!(fixture.b.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_further_kind_is_listed_at_the_reached_revision_and_followed_from_there() {
    let fixture = Fixture::of(&[("c", "one", true)]).await;
    assert_eq!(fixture.news_through(1).await, "a synced b synced");
    let c = view("c");
    fixture.follower.follow(FollowedView::all(&c));
    let last = fixture.state.write(("a", "one", true));
    fixture.news_through(last).await;
    let last = fixture.state.write(("c", "two", true));
    let news = fixture.news_through(last).await;
    assert!(news.ends_with("+c/two@3"), "{news}");
    assert_eq!(c.len(), 2);
    // Another view of the same kind replaces it: the kind is followed in another version.
    let other = view("c");
    fixture.follower.follow(FollowedView::all(&other));
    tokio::task::yield_now().await;
    let last = fixture.state.write(("c", "three", true));
    fixture.news_through(last).await;
    assert_eq!((c.len(), other.len()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn after_a_compaction_the_kinds_are_listed_again() {
    let fixture = Fixture::of(&[("a", "one", true), ("a", "two", true)]).await;
    fixture.news_through(2).await;
    *fixture.state.compacted.lock().unwrap() = Some(5);
    // Written at once, so the follower sees none of the changes in between.
    let last = [("a", "one", false), ("b", "one", true), ("b", "one", true)]
        .map(|write| fixture.state.write(write))[2];
    assert_eq!(fixture.news_through(last).await, "-a/one? +b/one@5");
}

/// Tenants choose the groups of their kinds. One whose kind may not be read would have stopped the controller for all.
#[tokio::test(start_paused = true)]
async fn a_further_kind_that_is_forbidden_does_not_keep_the_others_from_being_followed() {
    let fixture = Fixture::of(&[("a", "one", true)]).await;
    assert_eq!(fixture.news_through(1).await, "+a/one@1 a synced b synced");
    let forbidden = view("forbidden");
    fixture.follower.follow(FollowedView::all(&forbidden));
    let last = fixture.state.write(("forbidden", "one", true));
    fixture.news_through(last).await;
    let last = fixture.state.write(("a", "two", true));
    let news = fixture.news_through(last).await;
    assert!(news.ends_with("+a/two@3") && !news.contains("a lost"), "{news}");
    assert_eq!((forbidden.synced(), forbidden.forbidden().as_deref()), (false, Some("cannot list (403)")));
    // The same after everything was listed again.
    *fixture.state.compacted.lock().unwrap() = Some(9);
    let last = fixture.state.write(("b", "one", true));
    let news = fixture.news_through(last).await;
    assert!(news.ends_with("+b/one@4"), "{news}");
    assert!(!forbidden.synced());
}

/// A tenant defined `customresourcedefinitions.apiextensions.k8s.io`. Its view would have taken the place of the one that
/// tells the splitter about all custom kinds.
#[tokio::test(start_paused = true)]
async fn a_further_kind_does_not_replace_one_that_is_followed_from_the_start() {
    let fixture = Fixture::of(&[("a", "one", true)]).await;
    assert_eq!(fixture.news_through(1).await, "+a/one@1 a synced b synced");
    let other = view("a");
    fixture.follower.follow(FollowedView::all(&other));
    tokio::task::yield_now().await;
    let last = fixture.state.write(("a", "two", true));
    assert_eq!(fixture.news_through(last).await, "+a/two@2");
    assert!(other.is_empty() && !other.synced());
}

/// The first complete state has the kinds that listed objects define.
#[tokio::test(start_paused = true)]
async fn kinds_that_are_requested_during_the_first_list_are_part_of_it() {
    let history = FakeHistory::default();
    let state = history.0.clone();
    state.write(("a", "one", true));
    state.write(("c", "one", true));
    let follower = Arc::new(Follower::new(Arc::new(history)));
    let (c, running, mut task) = (view("c"), follower.clone(), KeyedTasks::default());
    let requested = c.clone();
    task.spawn("follower", async move {
        let on_news = |view: &View, _: News| {
            if view.kind.plural == "a" && !requested.known() {
                running.follow(FollowedView::all(&requested));
            }
        };
        match running.run(vec![FollowedView::all(&view("a"))], on_news).await {}
    });
    follower.reach(0).await;
    assert_eq!((c.len(), c.synced()), (1, true));
    drop::<KeyedTasks<&str, ()>>(task);
}
