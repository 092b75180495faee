//! Which kinds are followed, and what their news makes us look at.
//!
//! In the mailbox: every kind something can be placed of. Below: only those of which something is placed, by our label;
//! and those that are projected, once something is placed that brings others about, in the namespaces where it is. A kind of
//! which nothing is placed is asked for once whether something of ours is there all the same: that is held, and somebody
//! should know.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::names::{BELOW_UID, PLACED, TRUE};
use controller::informer::{Key, News, Object as Stored, Scope, View, follow};
use controller::kind::Kind;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::kinds::{KindName, Row, Served, discover};
use crate::mirror::{Object, is_projection};
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
        tender.search().await;
        tokio::select! {
            _ = timeout(tender.due(), tender.sides.bell.notified()) => {}
            Some(Err(error)) = tender.followers.join_next() => if error.is_panic() {
                return Err(error.to_string());
            },
        }
        sleep(DISCOVER_MOST).await;
    }
}

struct Tender {
    sides: Arc<Sides>,
    followers: JoinSet<Infallible>,
    /// By kind, and whether it is the one below.
    running: BTreeMap<(KindName, bool), AbortHandle>,
    /// Kinds that were searched for what is ours although nothing is placed.
    searched: BTreeSet<KindName>,
}

impl Tender {
    async fn ask(&self, remote: &controller::remote::Remote, who: &str) -> Option<Served> {
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
        let gone: Vec<_> =
            self.sides.all_followed().into_iter().filter(|old| !rows.contains_key(&old.name)).collect();
        // A kind that is no longer known here is no longer followed. What there is of it below stays.
        gone.iter().filter(|_| mailbox.is_some()).for_each(|followed| self.stop(&followed.name));
        for (name, row) in rows {
            self.follow_here(name, row);
        }
        // What brings others about is known only when all of the mailbox is.
        let all = self.sides.all_followed();
        let known =
            all.iter().all(|followed| followed.mailbox.known() || followed.mailbox.trouble().is_some());
        let kept = self.sides.kept();
        let is_kept = |name: &KindName| kept.iter().any(|subject| *subject.kind == *name);
        let is_used = |followed: &Arc<Followed>| !followed.mailbox.is_empty() || is_kept(&followed.name);
        let brings = known
            && all.iter().any(|followed| is_used(followed) && !followed.name.is_inert() && placed(followed));
        for followed in all.iter().filter(|followed| followed.row.below && followed.below.is_none()) {
            if is_used(followed) || (brings && followed.name.is_projected()) {
                self.follow_below(followed);
            }
        }
    }

    /// Follows what has something of ours although the mailbox asks for none of it.
    async fn search(&mut self) {
        for followed in self.sides.all_followed() {
            let is_idle = followed.row.below && followed.below.is_none() && followed.mailbox.synced();
            if !is_idle || followed.name.is_projected() || self.searched.contains(&followed.name) {
                continue;
            }
            let path = followed.row.kind.path("");
            let ours =
                self.sides.below.read(&format!("{path}?limit=1&labelSelector={PLACED}%3D{TRUE}")).await;
            match ours {
                Ok(found) => {
                    self.searched.insert((*followed.name).clone());
                    if found["items"].as_array().is_some_and(|items| !items.is_empty()) {
                        self.follow_below(&followed);
                    }
                }
                Err(error) => return tracing::debug!(%error, kind = %followed.row.kind, "cannot be searched"),
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
                self.abort(&(name.clone(), true));
            }
            self.sides.set_followed(Followed { name: changed, row, mailbox: old.mailbox.clone(), below });
            if let Some(followed) = self.sides.followed(&name) {
                self.sides.look_at(&followed);
            }
            return;
        }
        self.stop(&name);
        let view = Arc::new(View::new(row.kind.clone()));
        // Of projected kinds, what is projected is of interest too.
        let labels = if name.is_projected() { String::new() } else { format!("{PLACED}={TRUE}") };
        let scope = Scope { labels, ..Scope::default() };
        self.sides.set_followed(Followed { name: changed.clone(), row, mailbox: view.clone(), below: None });
        let sides = self.sides.clone();
        let told = move |view: &View, news: News<'_>| heard_here(&sides, &changed, view, news);
        let running = self.followers.spawn(follow(self.sides.mailbox.clone(), view, scope, told));
        self.running.insert((name, false), running);
    }

    fn follow_below(&mut self, followed: &Followed) {
        let (name, row) = (followed.name.clone(), followed.row.clone());
        let view = Arc::new(View::new(row.kind.clone()));
        let scope = match name.is_projected() {
            true => {
                let namespaces = self.sides.namespaces.clone();
                let keep =
                    move |key: &Key| namespaces.read().expect("nobody panics").contains(&key.namespace);
                Scope { keep: Some(Box::new(keep)), ..Scope::default() }
            }
            false => Scope { labels: format!("{PLACED}={TRUE}"), ..Scope::default() },
        };
        let mailbox = followed.mailbox.clone();
        self.sides.set_followed(Followed { name: name.clone(), row, mailbox, below: Some(view.clone()) });
        let (sides, kind) = (self.sides.clone(), name.clone());
        let told = move |view: &View, news: News<'_>| heard_below(&sides, &kind, view, news);
        let running = self.followers.spawn(follow(self.sides.below.clone(), view, scope, told));
        self.running.insert(((*name).clone(), true), running);
    }

    fn stop(&mut self, name: &KindName) {
        self.abort(&(name.clone(), false));
        self.abort(&(name.clone(), true));
        self.sides.unfollow(name);
    }

    fn abort(&mut self, which: &(KindName, bool)) {
        if let Some(running) = self.running.remove(which) {
            running.abort();
        }
    }
}

/// Whether something in the mailbox's view is placed. Of kinds that are not projected everything is.
fn placed(followed: &Followed) -> bool {
    let is_placed = |stored: &Arc<Stored>| Object(&stored.read(&followed.row.kind)).is_placed();
    !followed.name.is_projected() || followed.mailbox.all().iter().any(is_placed)
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
            if view.len() == 1 {
                sides.bell.notify_one();
            }
            sides.queue.add(Subject { kind: name.clone(), key: now.key.clone() });
        }
        News::Gone { last, .. } => sides.queue.add(Subject { kind: name.clone(), key: last.key.clone() }),
        News::Synced => {
            sides.drop_kept(name);
            if let Some(followed) = sides.followed(name) {
                sides.look_at(&followed);
            }
            sides.bell.notify_one();
        }
        News::Lost => {}
    }
}

fn appeared_here(sides: &Sides, name: &KindName, kind: &Kind, stored: &Stored) {
    let object = stored.read(kind);
    if let Some(uid) = Object(&object).annotation(BELOW_UID).filter(|_| is_projection(&object)) {
        return sides.wake(uid);
    }
    if !Object(&object).is_placed() {
        return;
    }
    if !stored.key.namespace.is_empty() {
        sides.namespaces.write().expect("nobody panics").insert(stored.key.namespace.clone());
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
fn heard_below(sides: &Sides, name: &Arc<KindName>, _: &View, news: News<'_>) {
    match news {
        News::Put { now, new } => {
            sides.queue.add(Subject { kind: name.clone(), key: now.key.clone() });
            if new {
                sides.wake(&now.uid);
            }
            if new && name.is_namespaces() {
                sides.look_into(&now.key.name);
            }
        }
        News::Gone { last, .. } => sides.queue.add(Subject { kind: name.clone(), key: last.key.clone() }),
        News::Synced => {
            if let Some(followed) = sides.followed(name) {
                sides.look_at(&followed);
            }
        }
        News::Lost => {}
    }
}
