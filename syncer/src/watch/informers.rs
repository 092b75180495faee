//! Manages the informers of the syncer.
//!
//! In the mailbox the syncer watches every kind that can be placed. Downstream it watches the kinds with placed
//! objects, by our label; and, once an object is placed that creates others, the projected kinds in the namespaces of
//! placed objects. A kind without placed objects is listed once, to find objects of ours that the mailbox does not
//! have: they are held and reported. If only some namespaces may be listed, each is watched [in a view of its
//! own](crate::state::downstream).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::names::{PLACED, TRUE};
use controller::informer::{CachedObject, Key, News, Scope, View, follow};
use controller::remote::Remote;
use controller::tasks::KeyedTasks;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use super::events::{on_downstream_event, on_mailbox_event};
use crate::mirror::AnyObject;
use crate::state::context::{SyncerContext, WatchedKind};
use crate::state::downstream::DownstreamView;
use crate::state::kinds::{KindName, ServedKinds, SyncedResource, discover};

/// How often discovery of both servers is read.
const DISCOVER_EVERY: Duration = Duration::from_secs(30);
/// The interval while a placed object has a kind that is not served yet, for example just after its definition was
/// placed.
const DISCOVER_SOON_EVERY: Duration = Duration::from_secs(1);
/// The minimum interval.
const DISCOVER_MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Starts and stops informers while it is polled.
pub(crate) async fn manage_informers(context: Arc<SyncerContext>) -> Result<Infallible, String> {
    let mut manager =
        InformerManager { context, informers: KeyedTasks::default(), listed_unplaced: BTreeSet::new() };
    let (mut mailbox, mut downstream) = (None, None);
    let mut discovered_at: Option<Instant> = None;
    loop {
        let due = manager.due();
        if discovered_at.is_none_or(|at| at.elapsed() >= due) || manager.context.take_rediscover() {
            discovered_at = Some(Instant::now());
            mailbox = manager.discover(&manager.context.mailbox, "the mailbox").await.or(mailbox);
            downstream =
                manager.discover(&manager.context.downstream, "the physical cluster").await.or(downstream);
        }
        manager.update(mailbox.as_ref(), downstream.as_ref());
        if manager.context.take_reread_projected() {
            manager.relist_projected();
        }
        // Searches one kind per round, so that events do not have to wait for all of them.
        let wait = if manager.search_unplaced().await { Duration::ZERO } else { manager.due() };
        tokio::select! {
            _ = timeout(wait, manager.context.kinds_changed.notified()) => {}
            Some((_, Err(panic))) = manager.informers.next_ended() => return Err(panic),
        }
        sleep(DISCOVER_MIN_INTERVAL).await;
    }
}

/// The scope of an informer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum InformerScope {
    Mailbox,
    Downstream,
    /// One namespace downstream.
    Namespace(String),
}

type InformerKey = (KindName, InformerScope);

struct InformerManager {
    context: Arc<SyncerContext>,
    informers: KeyedTasks<InformerKey, Infallible>,
    /// Kinds without placed objects that were already listed for objects of ours.
    listed_unplaced: BTreeSet<KindName>,
}

impl InformerManager {
    async fn discover(&self, remote: &Remote, server: &str) -> Option<ServedKinds> {
        match discover(remote).await {
            Ok(served) => Some(served),
            Err(error) => {
                tracing::warn!(%error, "cannot read the discovery of {server}");
                None
            }
        }
    }

    /// Returns the time until discovery is read again.
    fn due(&self) -> Duration {
        let all = self.context.watched_kinds();
        let lacks_kind =
            all.iter().any(|watched| !watched.resource.is_served_downstream && !watched.mailbox.is_empty());
        if all.is_empty() || lacks_kind { DISCOVER_SOON_EVERY } else { DISCOVER_EVERY }
    }

    fn update(&mut self, mailbox: Option<&ServedKinds>, downstream: Option<&ServedKinds>) {
        let Some(downstream) = downstream else { return };
        let resources = match mailbox {
            Some(mailbox) => mailbox.synced_resources(downstream),
            None => self.stored_resources(downstream),
        };
        let before = self.context.watched_kinds();
        // A kind that the mailbox no longer serves is no longer watched. Its downstream objects stay.
        let removed = before.iter().filter(|old| mailbox.is_some() && !resources.contains_key(&old.name));
        removed.for_each(|old| self.stop(&old.name));
        for (name, resource) in resources {
            self.watch_mailbox(name, resource);
        }
        let all = self.context.watched_kinds();
        all.iter().for_each(|kind| self.watch_namespaces(kind));
        let idle: Vec<_> = all
            .iter()
            .filter(|kind| kind.resource.is_served_downstream && kind.downstream.is_none())
            .collect();
        if idle.is_empty() {
            return;
        }
        let placed_kinds = self.placed_kinds(&all);
        // Whether any placed object creates others is known only after the whole mailbox was listed.
        let known = all.iter().all(|kind| kind.mailbox.known() || kind.mailbox.error().is_some());
        let creates_dependents = known && placed_kinds.iter().any(|name| !name.is_inert());
        for kind in idle {
            if placed_kinds.contains(&kind.name) || (creates_dependents && kind.name.is_projected()) {
                self.watch_downstream(kind);
            }
        }
    }

    /// Returns the kinds with placed objects, including stored ones.
    fn placed_kinds(&self, all: &[Arc<WatchedKind>]) -> BTreeSet<Arc<KindName>> {
        let stored = self.context.stored().into_iter().map(|id| id.kind);
        let placed = all.iter().filter(|kind| has_placed(kind)).map(|kind| kind.name.clone());
        stored.chain(placed).collect()
    }

    /// Lists one kind without placed objects, and watches it if objects of ours exist. Returns whether more such kinds
    /// may remain.
    async fn search_unplaced(&mut self) -> bool {
        let is_idle = |kind: &Arc<WatchedKind>| {
            kind.resource.is_served_downstream
                && kind.downstream.is_none()
                && kind.mailbox.synced()
                && !kind.name.is_projected()
        };
        let all = self.context.watched_kinds();
        let next = all.iter().find(|kind| is_idle(kind) && !self.listed_unplaced.contains(&*kind.name));
        let Some(kind) = next else { return false };
        let path = format!("{}?limit=1&labelSelector={PLACED}%3D{TRUE}", kind.resource.kind.path(""));
        match self.context.downstream.read(&path).await {
            Ok(page) => {
                self.listed_unplaced.insert((*kind.name).clone());
                if page["items"].as_array().is_some_and(|items| !items.is_empty()) {
                    self.watch_downstream(kind);
                }
                true
            }
            Err(error) => {
                tracing::debug!(%error, kind = %kind.resource.kind, "cannot list a kind without placed objects");
                // A forbidden kind stays forbidden; the other kinds are still listed.
                error.is_answer() && self.listed_unplaced.insert((*kind.name).clone())
            }
        }
    }

    /// Returns the kinds of the stored objects.
    fn stored_resources(&self, downstream: &ServedKinds) -> BTreeMap<KindName, SyncedResource> {
        self.context.stored_kinds().into_iter().map(|kind| downstream.stored_resource(kind)).collect()
    }

    fn watch_mailbox(&mut self, name: KindName, resource: SyncedResource) {
        let old = self.context.watched(&name);
        if old.as_ref().is_some_and(|old| old.resource == resource) {
            return;
        }
        let same_version = old.filter(|old| old.resource.kind == resource.kind);
        let changed = Arc::new(name.clone());
        if let Some(old) = same_version {
            // Only the set of kinds that the physical cluster serves has changed.
            let downstream = if resource.is_served_downstream { old.downstream.clone() } else { None };
            if !resource.is_served_downstream {
                self.stop_downstream(&name);
            }
            self.context.set_watched(WatchedKind {
                name: changed,
                resource,
                mailbox: old.mailbox.clone(),
                downstream,
            });
            if let Some(watched) = self.context.watched(&name) {
                self.context.requeue_kind(&watched);
            }
            return;
        }
        self.stop(&name);
        let view = Arc::new(View::new(resource.kind.clone()));
        let labels = if name.is_mixed() { String::new() } else { format!("{PLACED}={TRUE}") };
        let scope = Scope { labels, ..Scope::default() };
        self.context.set_watched(WatchedKind {
            name: changed.clone(),
            resource,
            mailbox: view.clone(),
            downstream: None,
        });
        let context = self.context.clone();
        let handle = move |view: &View, news: News<'_>| on_mailbox_event(&context, &changed, view, news);
        let informer = follow(self.context.mailbox.clone(), view, scope, handle).in_current_span();
        self.informers.spawn((name, InformerScope::Mailbox), informer);
    }

    fn watch_downstream(&mut self, watched: &WatchedKind) {
        let downstream = Arc::new(DownstreamView::new(&watched.resource.kind));
        let view = downstream.all.clone();
        let (name, resource, mailbox) =
            (watched.name.clone(), watched.resource.clone(), watched.mailbox.clone());
        self.context.set_watched(WatchedKind {
            name: name.clone(),
            resource,
            mailbox,
            downstream: Some(downstream),
        });
        self.spawn_downstream(name, view, InformerScope::Downstream);
    }

    /// Watches a kind in each namespace with objects of ours, while listing it in the whole cluster is forbidden.
    fn watch_namespaces(&mut self, kind: &WatchedKind) {
        let Some(downstream) = &kind.downstream else { return };
        if !downstream.is_per_namespace() {
            return self.unwatch_namespaces(&kind.name, downstream);
        }
        let namespaces: BTreeSet<String> = match kind.name.is_projected() {
            true => self.context.namespaces().into_iter().collect(),
            false => {
                let stored = self.context.stored().into_iter().filter(|id| id.kind == kind.name);
                let keys = kind.mailbox.keys().into_iter().chain(stored.map(|id| id.key));
                keys.map(|key| key.namespace).collect()
            }
        };
        for namespace in namespaces {
            if let Some(view) = downstream.add_namespace(&namespace) {
                self.spawn_downstream(kind.name.clone(), view, InformerScope::Namespace(namespace));
            }
        }
    }

    /// Stops watching a kind per namespace.
    fn unwatch_namespaces(&mut self, name: &KindName, downstream: &DownstreamView) {
        for namespace in downstream.remove_namespaces() {
            self.informers.abort(&(name.clone(), InformerScope::Namespace(namespace)));
        }
    }

    fn spawn_downstream(&mut self, name: Arc<KindName>, view: Arc<View>, scope: InformerScope) {
        let namespace = match &scope {
            InformerScope::Namespace(namespace) => namespace.clone(),
            InformerScope::Downstream | InformerScope::Mailbox => String::new(),
        };
        let selected = match name.is_projected() {
            true => {
                let context = self.context.clone();
                let keep = move |key: &Key| context.has_namespace(&key.namespace);
                Scope { keep: Some(Box::new(keep)), namespace, ..Scope::default() }
            }
            false => Scope { labels: format!("{PLACED}={TRUE}"), namespace, ..Scope::default() },
        };
        let (context, kind) = (self.context.clone(), name.clone());
        let handle = move |view: &View, news: News<'_>| on_downstream_event(&context, &kind, view, news);
        let informer = follow(self.context.downstream.clone(), view, selected, handle).in_current_span();
        self.informers.spawn(((*name).clone(), scope), informer);
    }

    /// Lists all projected kinds again, because objects that were skipped may be owned by placed ones now.
    fn relist_projected(&mut self) {
        for watched in self.context.watched_kinds().into_iter().filter(|kind| kind.name.is_projected()) {
            let Some(downstream) = &watched.downstream else { continue };
            self.unwatch_namespaces(&watched.name, downstream);
            self.spawn_downstream(watched.name.clone(), downstream.all.clone(), InformerScope::Downstream);
            self.watch_namespaces(&watched);
        }
    }

    fn stop(&mut self, name: &KindName) {
        self.informers.abort(&(name.clone(), InformerScope::Mailbox));
        self.stop_downstream(name);
        self.context.unwatch(name);
    }

    fn stop_downstream(&mut self, name: &KindName) {
        if let Some(downstream) = self.context.watched(name).and_then(|watched| watched.downstream.clone()) {
            self.unwatch_namespaces(name, &downstream);
        }
        self.informers.abort(&(name.clone(), InformerScope::Downstream));
    }
}

/// Returns whether objects of this kind are placed. Most views contain only placed objects.
fn has_placed(kind: &WatchedKind) -> bool {
    let is_placed = |stored: &Arc<CachedObject>| AnyObject(&stored.read(&kind.resource.kind)).is_placed();
    match kind.name.is_mixed() {
        true => kind.downstream.is_none() && kind.mailbox.all().iter().any(is_placed),
        false => !kind.mailbox.is_empty(),
    }
}
