//! Which kinds are followed, and what their news makes us look at.
//!
//! In the mailbox: every kind something can be placed of. Below: only those of which something is placed, by our label;
//! and those that are projected, once something is placed that brings others about, in the namespaces where it is. A kind of
//! which nothing is placed is asked for once whether something of ours is there all the same: that is held, and somebody
//! should know. Where only some namespaces may be looked into, they are followed [one by one](crate::below).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::names::{BELOW_UID, PLACED, TRUE};
use controller::informer::{Key, News, Object as Stored, Scope, View, follow};
use controller::kind::Kind;
use controller::remote::Remote;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use crate::below::Below;
use crate::kinds::{KindName, Row, Served, discover};
use crate::mirror::{LED_BY, Object, is_projection};
use crate::project::claims_of;
use crate::sides::{Followed, Sides, Subject};

/// How often both sides are asked what they serve.
const DISCOVER: Duration = Duration::from_secs(30);
/// The same while something is placed that is not served yet, as it is after a definition was.
const DISCOVER_SOON: Duration = Duration::from_secs(1);
/// Not more often than this, whatever happens.
const DISCOVER_MOST: Duration = Duration::from_millis(50);

/// Follows what is to be followed, for as long as it is polled.
pub(crate) async fn tend(sides: Arc<Sides>) -> Result<Infallible, String> {
    let mut tender =
        Tender { sides, followers: JoinSet::new(), running: BTreeMap::new(), searched: BTreeSet::new() };
    let (mut mailbox, mut below) = (None, None);
    let mut asked: Option<Instant> = None;
    loop {
        let due = tender.due();
        if asked.is_none_or(|at| at.elapsed() >= due) || tender.sides.is_redefined() {
            asked = Some(Instant::now());
            mailbox = tender.ask(&tender.sides.mailbox, "the mailbox").await.or(mailbox);
            below = tender.ask(&tender.sides.below, "the physical cluster").await.or(below);
        }
        tender.follow(mailbox.as_ref(), below.as_ref());
        if tender.sides.has_missed() {
            tender.read_again();
        }
        // One after the other, so that news need not wait for all of them.
        let wait = if tender.search().await { Duration::ZERO } else { tender.due() };
        tokio::select! {
            _ = timeout(wait, tender.sides.bell.notified()) => {}
            Some(Err(error)) = tender.followers.join_next() => if error.is_panic() {
                return Err(error.to_string());
            },
        }
        sleep(DISCOVER_MOST).await;
    }
}

/// What of a kind is followed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Mailbox,
    Below,
    /// Below, in a namespace.
    Within(String),
}

struct Tender {
    sides: Arc<Sides>,
    followers: JoinSet<Infallible>,
    running: BTreeMap<(KindName, Side), AbortHandle>,
    /// Kinds that were searched for what is ours although nothing is placed.
    searched: BTreeSet<KindName>,
}

impl Tender {
    async fn ask(&self, remote: &Remote, who: &str) -> Option<Served> {
        match discover(remote).await {
            Ok(served) => Some(served),
            Err(error) => {
                tracing::warn!(%error, "cannot ask {who} what it serves");
                None
            }
        }
    }

    /// How long until both sides are asked again.
    fn due(&self) -> Duration {
        let all = self.sides.all_followed();
        let lacks = all.iter().any(|followed| !followed.row.below && !followed.mailbox.is_empty());
        if all.is_empty() || lacks { DISCOVER_SOON } else { DISCOVER }
    }

    fn follow(&mut self, mailbox: Option<&Served>, below: Option<&Served>) {
        let Some(below) = below else { return };
        let rows = match mailbox {
            Some(mailbox) => mailbox.rows(below),
            None => self.kept_rows(below),
        };
        let before = self.sides.all_followed();
        // A kind that is no longer known here is no longer followed. What there is of it below stays.
        let gone = before.iter().filter(|old| mailbox.is_some() && !rows.contains_key(&old.name));
        gone.for_each(|old| self.stop(&old.name));
        for (name, row) in rows {
            self.follow_here(name, row);
        }
        let all = self.sides.all_followed();
        all.iter().for_each(|kind| self.divide(kind));
        let idle: Vec<_> = all.iter().filter(|kind| kind.row.below && kind.below.is_none()).collect();
        if idle.is_empty() {
            return;
        }
        let used = self.used(&all);
        // What brings others about is known only when all of the mailbox is.
        let known = all.iter().all(|kind| kind.mailbox.known() || kind.mailbox.trouble().is_some());
        let brings = known && used.iter().any(|name| !name.is_inert());
        for kind in idle {
            if used.contains(&kind.name) || (brings && kind.name.is_projected()) {
                self.follow_below(kind);
            }
        }
    }

    /// The kinds of which something is placed, or was when the mailbox was last heard of.
    fn used(&self, all: &[Arc<Followed>]) -> BTreeSet<Arc<KindName>> {
        let kept = self.sides.kept().into_iter().map(|subject| subject.kind);
        let placed = all.iter().filter(|kind| has_placed(kind)).map(|kind| kind.name.clone());
        kept.chain(placed).collect()
    }

    /// Asks for one kind, of which the mailbox has nothing, whether something of ours is there all the same, and follows it
    /// then. Whether there may be more such kinds.
    async fn search(&mut self) -> bool {
        let is_idle = |kind: &Arc<Followed>| {
            kind.row.below && kind.below.is_none() && kind.mailbox.synced() && !kind.name.is_projected()
        };
        let all = self.sides.all_followed();
        let next = all.iter().find(|kind| is_idle(kind) && !self.searched.contains(&*kind.name));
        let Some(kind) = next else { return false };
        let path = format!("{}?limit=1&labelSelector={PLACED}%3D{TRUE}", kind.row.kind.path(""));
        match self.sides.below.read(&path).await {
            Ok(found) => {
                self.searched.insert((*kind.name).clone());
                if found["items"].as_array().is_some_and(|items| !items.is_empty()) {
                    self.follow_below(kind);
                }
                true
            }
            Err(error) => {
                tracing::debug!(%error, kind = %kind.row.kind, "cannot be searched");
                // Whoever was refused is refused again; the others are searched all the same.
                error.is_answer() && self.searched.insert((*kind.name).clone())
            }
        }
    }

    /// The kinds of what the mailbox asked for last.
    fn kept_rows(&self, below: &Served) -> BTreeMap<KindName, Row> {
        self.sides.kept_kinds().into_iter().map(|kind| below.kept_row(kind)).collect()
    }

    fn follow_here(&mut self, name: KindName, row: Row) {
        let old = self.sides.followed(&name);
        if old.as_ref().is_some_and(|old| old.row == row) {
            return;
        }
        let same_version = old.filter(|old| old.row.kind == row.kind);
        let changed = Arc::new(name.clone());
        if let Some(old) = same_version {
            // Only what the other side serves has changed.
            let below = if row.below { old.below.clone() } else { None };
            if !row.below {
                self.stop_below(&name);
            }
            self.sides.set_followed(Followed { name: changed, row, mailbox: old.mailbox.clone(), below });
            if let Some(followed) = self.sides.followed(&name) {
                self.sides.look_at(&followed);
            }
            return;
        }
        self.stop(&name);
        let view = Arc::new(View::new(row.kind.clone()));
        let labels = if name.is_mixed() { String::new() } else { format!("{PLACED}={TRUE}") };
        let scope = Scope { labels, ..Scope::default() };
        self.sides.set_followed(Followed { name: changed.clone(), row, mailbox: view.clone(), below: None });
        let sides = self.sides.clone();
        let told = move |view: &View, news: News<'_>| heard_here(&sides, &changed, view, news);
        let running =
            self.followers.spawn(follow(self.sides.mailbox.clone(), view, scope, told).in_current_span());
        self.running.insert((name, Side::Mailbox), running);
    }

    fn follow_below(&mut self, followed: &Followed) {
        let below = Arc::new(Below::new(&followed.row.kind));
        let view = below.whole.clone();
        let (name, row, mailbox) = (followed.name.clone(), followed.row.clone(), followed.mailbox.clone());
        self.sides.set_followed(Followed { name: name.clone(), row, mailbox, below: Some(below) });
        self.spawn_below(name, view, Side::Below);
    }

    /// Follows a kind in each namespace in which something of it is of interest, for as long as its whole may not be looked at.
    fn divide(&mut self, kind: &Followed) {
        let Some(below) = &kind.below else { return };
        if !below.is_divided() {
            return self.unite(&kind.name, below);
        }
        let namespaces: BTreeSet<String> = match kind.name.is_projected() {
            true => self.sides.noted().into_iter().collect(),
            false => {
                let kept = self.sides.kept().into_iter().filter(|subject| subject.kind == kind.name);
                let keys = kind.mailbox.keys().into_iter().chain(kept.map(|subject| subject.key));
                keys.map(|key| key.namespace).collect()
            }
        };
        for namespace in namespaces {
            if let Some(view) = below.divide(&namespace) {
                self.spawn_below(kind.name.clone(), view, Side::Within(namespace));
            }
        }
    }

    /// Stops following it by namespace.
    fn unite(&mut self, name: &KindName, below: &Below) {
        for namespace in below.unite() {
            self.abort(&(name.clone(), Side::Within(namespace)));
        }
    }

    fn spawn_below(&mut self, name: Arc<KindName>, view: Arc<View>, side: Side) {
        let namespace = match &side {
            Side::Within(namespace) => namespace.clone(),
            Side::Below | Side::Mailbox => String::new(),
        };
        let scope = match name.is_projected() {
            true => {
                let sides = self.sides.clone();
                let keep = move |key: &Key| sides.has_noted(&key.namespace);
                Scope { keep: Some(Box::new(keep)), namespace, ..Scope::default() }
            }
            false => Scope { labels: format!("{PLACED}={TRUE}"), namespace, ..Scope::default() },
        };
        let (sides, kind) = (self.sides.clone(), name.clone());
        let told = move |view: &View, news: News<'_>| heard_below(&sides, &kind, view, news);
        let following = follow(self.sides.below.clone(), view, scope, told).in_current_span();
        let running = self.followers.spawn(following);
        if let Some(before) = self.running.insert(((*name).clone(), side), running) {
            before.abort();
        }
    }

    /// Reads all that is projected again: what was read and forgotten may be somebody's now.
    fn read_again(&mut self) {
        for followed in self.sides.all_followed().into_iter().filter(|kind| kind.name.is_projected()) {
            let Some(below) = &followed.below else { continue };
            self.unite(&followed.name, below);
            self.spawn_below(followed.name.clone(), below.whole.clone(), Side::Below);
            self.divide(&followed);
        }
    }

    fn stop(&mut self, name: &KindName) {
        self.abort(&(name.clone(), Side::Mailbox));
        self.stop_below(name);
        self.sides.unfollow(name);
    }

    fn stop_below(&mut self, name: &KindName) {
        if let Some(below) = self.sides.followed(name).and_then(|followed| followed.below.clone()) {
            self.unite(name, &below);
        }
        self.abort(&(name.clone(), Side::Below));
    }

    fn abort(&mut self, which: &(KindName, Side)) {
        if let Some(running) = self.running.remove(which) {
            running.abort();
        }
    }
}

/// Whether something of this kind is placed. Most views have nothing else.
fn has_placed(kind: &Followed) -> bool {
    let is_placed = |stored: &Arc<Stored>| Object(&stored.read(&kind.row.kind)).is_placed();
    match kind.name.is_mixed() {
        true => kind.below.is_none() && kind.mailbox.all().iter().any(is_placed),
        false => !kind.mailbox.is_empty(),
    }
}

/// Something happened in the mailbox.
fn heard_here(sides: &Sides, name: &Arc<KindName>, view: &View, news: News<'_>) {
    match news {
        News::Put { now, new } => {
            if new {
                appeared_here(sides, name, &view.kind, now);
            }
            if name.is_definitions() {
                sides.redefined();
            }
            // The first of its kind, or of a kind of which not all are placed.
            let is_first = view.len() == 1 || (new && name.is_mixed());
            let followed = sides.followed(name).and_then(|kind| kind.below.clone());
            let is_divided = followed.as_ref().is_some_and(|below| new && below.is_divided());
            if is_divided || (is_first && followed.is_none()) {
                sides.bell.notify_one();
            }
            sides.queue.add(Subject { kind: name.clone(), key: now.key.clone() });
        }
        News::Gone { last, .. } => sides.queue.add(Subject { kind: name.clone(), key: last.key.clone() }),
        News::Synced => {
            sides.drop_kept(name);
            synced(sides, name);
            sides.bell.notify_one();
        }
        News::Lost => {}
    }
}

fn appeared_here(sides: &Sides, name: &KindName, kind: &Kind, stored: &Stored) {
    let object = stored.read(kind);
    if let Some(uid) = Object(&object).annotation(BELOW_UID).filter(|_| is_projection(&object)) {
        sides.note_namespace(&stored.key.namespace);
        return sides.wake(uid);
    }
    if !Object(&object).is_placed() {
        return;
    }
    // What was sent down before we knew of it, as when its kind could not be read at first, may have brought others about.
    if sides.note_namespace(&stored.key.namespace) && Object(&object).is_marked() {
        sides.missed();
    }
    if name.is_stateful_sets() {
        sides.wake(&claims_of(&stored.key.namespace));
    }
    let below = sides.followed(name).and_then(|followed| followed.below.as_ref()?.get(&stored.key));
    if let Some(below) = below {
        sides.wake(&below.uid);
    }
}

/// Something happened below.
fn heard_below(sides: &Sides, name: &Arc<KindName>, view: &View, news: News<'_>) {
    match news {
        News::Put { now, new } => {
            if name.is_namespaces() {
                sides.hear_leader(Object(&now.read(&view.kind)).annotation(LED_BY));
            }
            sides.queue.add(Subject { kind: name.clone(), key: now.key.clone() });
            if new {
                sides.wake(&now.uid);
            }
            if new && name.is_namespaces() {
                sides.look_into(&now.key.name);
            }
        }
        News::Gone { last, witnessed } => {
            // What is missing may be so because it was never in the cluster that was asked.
            if !witnessed {
                sides.doubt_cluster();
            }
            sides.queue.add(Subject { kind: name.clone(), key: last.key.clone() });
        }
        News::Synced => {
            synced(sides, name);
            sides.bell.notify_one();
        }
        News::Lost if view.forbidden().is_some() => refused(sides, name),
        // Whoever answers next need not be the one who did until now.
        News::Lost => sides.doubt_cluster(),
    }
}

/// We may not look at it: that is said about each object, and others may be found where we may.
fn refused(sides: &Sides, name: &KindName) {
    if let Some(followed) = sides.followed(name) {
        sides.look_at(&followed);
    }
    sides.bell.notify_one();
}

/// Whatever waited for this kind is looked at; and when it was the last that was missing, also what seemed to be nobody's.
fn synced(sides: &Sides, name: &KindName) {
    let all_synced = sides.is_all_synced();
    for followed in sides.all_followed() {
        if *followed.name == *name || (all_synced && followed.name.is_projected()) {
            sides.look_at(&followed);
        }
    }
}
