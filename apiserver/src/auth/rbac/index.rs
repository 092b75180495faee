//! The policies of all logical clusters, kept in step with the store.
//!
//! ```text
//!   the store's history of roles and bindings ─► a cursor ─► own policies, by logical cluster
//!   what every newborn has ────────────────────────────────► one shared policy, made once
//! ```
//!
//! The index is never behind what it is asked about: whoever decides says at which revision, and the cursor is read up
//! to there first. When nothing happened to roles and bindings since, that is a look at two numbers. So a binding that
//! is gone when somebody was told so is gone for the next request, on every server that shares the store.
//!
//! It follows what is *kept*, not what is seen: a logical cluster that has touched none of the roles it was born with
//! has no entry here, and a birth is none of its business.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use api::cluster::Id;
use serde::de::DeserializeOwned;
use storage::{Entry, Event, Page, Range, ReadError, Revision, Store, Watch};
use tokio::sync::Mutex;
use tokio::sync::watch::{Receiver, Sender};

use super::GROUP;
use super::object::{Binding, Role};
use super::policy::{Layers, Place, Policy};
use crate::newborn::Object;
use crate::{keys, stored};

/// Entries read together at the beginning.
const PAGE_ENTRIES: usize = 1000;
/// Before looking again when the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Index {
    kept: Arc<dyn Store>,
    /// What every newborn has.
    shared: Policy,
    state: RwLock<State>,
    /// The state is as of this revision. Written after the state, so whoever reads it finds at least that.
    reached: AtomicU64,
    /// Whoever holds it reads on for all who wait. None before the first, and when history was lost.
    cursor: Mutex<Option<Watch>>,
    /// Says to those who wait that somebody's policy has changed.
    changed: Sender<Revision>,
}

#[derive(Debug, Default)]
struct State {
    own: HashMap<Id, Own>,
    /// When the last of those that are no longer here changed.
    gone: Revision,
}

#[derive(Debug, Default)]
struct Own {
    policy: Policy,
    changed: Revision,
}

/// The policy every newborn has, among its other objects.
pub fn shared<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Policy {
    let mut policy = Policy::default();
    for Object { collection, value } in objects {
        if collection.group != GROUP {
            continue;
        }
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
        let place = Place::new(text("namespace"), text("name"));
        if collection.plural.ends_with("bindings") {
            policy.set_binding(place, serde_json::from_value(value.clone()).ok());
        } else {
            policy.set_role(place, serde_json::from_value(value.clone()).ok());
        }
    }
    policy
}

impl Index {
    /// Over what is kept, with what shines through where nothing is.
    pub fn new(kept: Arc<dyn Store>, shared: Policy) -> Index {
        Index {
            kept,
            shared,
            state: RwLock::default(),
            reached: AtomicU64::new(0),
            cursor: Mutex::default(),
            changed: Sender::default(),
        }
    }

    /// Brings the index up to a revision, which must have happened.
    pub async fn reach(&self, revision: Revision) -> Result<(), ReadError> {
        if self.reached.load(Ordering::Acquire) >= revision.0 && revision != Revision::ZERO {
            return Ok(());
        }
        // Held while reading: this is a queue at the cursor, and who comes first reads for the others.
        let mut cursor = self.cursor.lock().await;
        loop {
            let watch = match cursor.as_mut() {
                Some(watch) => watch,
                None => cursor.insert(self.begin().await?),
            };
            match watch.until(revision).await {
                Ok(Some(batch)) => self.apply(&batch.events, batch.through),
                Ok(None) => {
                    self.reached.fetch_max(watch.through().0, Ordering::Release);
                    return Ok(());
                }
                Err(ReadError::Compacted { .. }) => *cursor = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// What holds in a logical cluster, as far as the index has reached.
    pub fn read<T>(&self, cluster: Id, read: impl FnOnce(Layers<'_>) -> T) -> T {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let own = state.own.get(&cluster).map(|own| &own.policy);
        read(Layers { own, shared: &self.shared })
    }

    /// When the policy of a logical cluster last changed; perhaps later than it did, never earlier.
    pub(crate) fn changed(&self, cluster: Id) -> Revision {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.own.get(&cluster).map_or(state.gone, |own| own.changed.max(state.gone))
    }

    /// Hears of every change to any policy.
    pub(crate) fn listen(&self) -> Receiver<Revision> {
        self.changed.subscribe()
    }

    /// Follows the store without being asked, for those who wait for changes. Goes on for as long as it is polled.
    pub async fn follow(&self) -> std::convert::Infallible {
        loop {
            if let Err(error) = self.followed().await
                && !matches!(error, ReadError::Compacted { .. })
            {
                tracing::warn!(%error, "cannot follow roles and bindings; will try again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn followed(&self) -> Result<std::convert::Infallible, ReadError> {
        let now = self.kept.get(&keys::birth(Id::ROOT)).await?.revision;
        self.reach(now).await?;
        let mut bell = self.kept.watch(range(), now).await?;
        loop {
            let through = bell.next().await?.through;
            self.reach(through).await?;
        }
    }

    /// Reads everything there is, and returns a cursor that goes on from there.
    async fn begin(&self) -> Result<Watch, ReadError> {
        let mut own = HashMap::<Id, Own>::new();
        let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
        let revision = loop {
            let read = self.kept.list(range(), page.clone()).await?;
            for entry in &read.value.entries {
                if let Some(place) = keys::Place::of(entry.key()) {
                    own.entry(place.cluster).or_default().policy.put(&place, Some(entry));
                }
            }
            page.at = Some(read.revision);
            page.after = read.value.entries.last().map(|entry| entry.key().clone());
            if !read.value.more {
                break read.revision;
            }
        };
        let watch = self.kept.watch(range(), revision).await?;
        // What changed while we did not look is unknown: all of it may have.
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State { own, gone: revision };
        self.reached.fetch_max(revision.0, Ordering::Release);
        self.changed.send_replace(revision);
        Ok(watch)
    }

    fn apply(&self, events: &[Event], through: Revision) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let Some(place) = keys::Place::of(&event.key) else { continue };
            let own = state.own.entry(place.cluster).or_default();
            own.policy.put(&place, event.current.as_ref());
            own.changed = event.revision;
            if own.policy.is_empty() {
                state.own.remove(&place.cluster);
                state.gone = event.revision;
            }
        }
        drop(state);
        self.reached.fetch_max(through.0, Ordering::Release);
        self.changed.send_replace(through);
    }
}

impl Policy {
    /// Takes over what is stored at a place. Nothing: what is shared shines through. Something that is no such object,
    /// as the empty value that stands for a deletion: nothing does.
    fn put(&mut self, place: &keys::Place<'_>, entry: Option<&Entry>) {
        let at = Place::new(place.namespace.unwrap_or_default(), place.name);
        match (place.collection.plural, entry) {
            ("roles" | "clusterroles", Some(entry)) => self.set_role(at, parsed::<Role>(entry)),
            ("roles" | "clusterroles", None) => self.unset_role(&at),
            ("rolebindings" | "clusterrolebindings", Some(entry)) => {
                self.set_binding(at, parsed::<Binding>(entry));
            }
            ("rolebindings" | "clusterrolebindings", None) => self.unset_binding(&at),
            _ => {}
        }
    }
}

fn parsed<T: DeserializeOwned>(entry: &Entry) -> Option<T> {
    serde_json::from_slice(stored::json(entry)?).ok()
}

/// Everything that is kept of the group, in all logical clusters.
fn range() -> Range {
    Range::prefix(format!("{GROUP}/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use storage::memory::Memory;
    use storage::{Change, Expect};

    use super::*;
    use crate::auth::rbac::Who;
    use crate::authorize::Attributes;
    use crate::keys::Collection;

    const BINDINGS: Collection<'static> = Collection { group: GROUP, plural: "clusterrolebindings" };
    const ROLES: Collection<'static> = Collection { group: GROUP, plural: "clusterroles" };

    struct World {
        store: Arc<dyn Store>,
        index: Index,
    }

    impl World {
        fn new() -> World {
            let store: Arc<dyn Store> = Arc::new(Memory::new());
            let role = json!({
                "metadata": { "name": "all" },
                "rules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            });
            let objects = [
                Object { collection: ROLES, value: role },
                Object { collection: BINDINGS, value: binding("masters", "master") },
            ];
            World { index: Index::new(store.clone(), super::shared(&objects)), store }
        }

        async fn write(&self, cluster: u64, name: &str, change: Change) -> Revision {
            let key = BINDINGS.key(Id::new(cluster), None, name);
            let found = self.store.get(&key).await.unwrap().value;
            let expect = found.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
            self.store.commit(key, expect, change).await.unwrap().revision
        }

        /// Whether somebody may do anything, now.
        async fn may(&self, cluster: u64, name: &str) -> bool {
            let now = self.store.get(&keys::birth(Id::ROOT)).await.unwrap().revision;
            self.index.reach(now).await.unwrap();
            let wanted = Attributes::Path { path: "/".to_owned(), verb: "get".to_owned() };
            let decide = |layers: Layers<'_>| layers.decide(Who { name, groups: &[] }, &wanted).allowed;
            self.index.read(Id::new(cluster), decide)
        }
    }

    fn binding(name: &str, user: &str) -> serde_json::Value {
        json!({
            "metadata": { "name": name },
            "subjects": [{ "kind": "User", "name": user }],
            "roleRef": { "kind": "ClusterRole", "name": "all" },
        })
    }

    fn bound(user: &str) -> Change {
        Change::Put(stored::encode(&binding("b", user)))
    }

    #[tokio::test]
    async fn a_binding_counts_from_the_moment_it_is_written_and_only_in_its_logical_cluster() {
        let world = World::new();
        assert!(world.may(1, "master").await && !world.may(1, "ann").await);
        world.write(1, "b", bound("ann")).await;
        assert!(world.may(1, "ann").await && !world.may(2, "ann").await);
        world.write(1, "b", bound("bob")).await;
        assert!(!world.may(1, "ann").await && world.may(1, "bob").await);
        world.write(1, "b", Change::Delete).await;
        assert!(!world.may(1, "bob").await);
        assert!(world.index.state.read().unwrap().own.is_empty(), "nothing of it is left");
    }

    #[tokio::test]
    async fn a_deletion_of_what_every_newborn_has_is_kept_as_an_empty_value() {
        let world = World::new();
        world.write(1, "masters", Change::Put(bytes::Bytes::new())).await;
        assert!(!world.may(1, "master").await && world.may(2, "master").await);
        world.write(1, "masters", Change::Delete).await;
        assert!(world.may(1, "master").await);
    }

    #[tokio::test]
    async fn who_fell_behind_the_history_begins_again() {
        let world = World::new();
        world.write(1, "b", bound("ann")).await;
        assert!(world.may(1, "ann").await);
        world.write(1, "b", bound("bob")).await;
        let last = world.write(2, "b", bound("eve")).await;
        world.store.compact(last).await.unwrap();
        assert!(!world.may(1, "ann").await && world.may(1, "bob").await && world.may(2, "eve").await);
    }

    #[tokio::test]
    async fn who_waits_is_told_whose_policy_changed() {
        let world = World::new();
        assert!(!world.may(1, "ann").await);
        let (one, other) = (world.index.changed(Id::new(1)), world.index.changed(Id::new(2)));
        let mut heard = world.index.listen();
        heard.mark_unchanged();
        let changing = async {
            world.write(1, "b", bound("ann")).await;
            heard.changed().await.unwrap();
        };
        tokio::select! {
            () = changing => {}
            never = world.index.follow() => match never {},
        }
        assert!(world.index.changed(Id::new(1)) > one);
        assert_eq!(world.index.changed(Id::new(2)), other);
    }
}
