//! The policies of all logical clusters, kept in step with the store.
//!
//! ```text
//!   the store's history of roles and bindings ─► a cursor ─► own policies, by logical cluster
//!   bootstrap roles and bindings ──────────────────────────► one shared policy, made once
//! ```
//!
//! The index is never behind what it is asked about ([`Replica`]). So a binding whose deletion was acknowledged is
//! gone for the next request, on every server that shares the store.
//!
//! It follows what is *kept*, not what is seen: a logical cluster that has touched none of the roles it was born with
//! has no entry here, and a record is none of its business.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use api::cluster::Id;
use serde::de::DeserializeOwned;
use storage::{Entry, Event, Range, ReadError, Revision, Store};

use crate::authz::notifier::{PolicyNotifier, Topic};
use crate::clusters::bootstrap::BootstrapObject;
use crate::keys;
use crate::objects::replica;
use crate::objects::replica::Replica;
use crate::objects::stored;
use crate::rbac::GROUP;
use crate::rbac::object::{Binding, Role};
use crate::rbac::policy::{Layers, Policy, PolicyKey};

#[derive(Debug)]
pub struct Index {
    /// The policy of the bootstrap objects.
    shared: Policy,
    own: Replica<Owned>,
}

/// What logical clusters have of their own.
#[derive(Debug, Default)]
struct Owned {
    policies: RwLock<Policies>,
    /// Tells those who wait for a policy that it has changed.
    notifier: Arc<PolicyNotifier>,
}

#[derive(Debug, Default)]
struct Policies {
    own: HashMap<Id, Own>,
    /// When the last of those that are no longer here changed.
    gone: Revision,
}

#[derive(Debug, Default)]
struct Own {
    policy: Policy,
    changed: Revision,
}

/// The policy of these bootstrap objects.
pub fn shared<'a>(objects: impl IntoIterator<Item = &'a BootstrapObject>) -> Policy {
    let mut policy = Policy::default();
    for BootstrapObject { collection, value } in objects {
        if collection.group != GROUP {
            continue;
        }
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
        let place = PolicyKey::new(text("namespace"), text("name"));
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
        // Everything that is kept of the group, in all logical clusters.
        let range = Range::prefix(format!("{GROUP}/"));
        Index { shared, own: Replica::new(kept, range, Owned::default()) }
    }

    /// Brings the index up to a revision, which must have happened.
    pub async fn reach(&self, revision: Revision) -> Result<(), ReadError> {
        self.own.reach(revision).await
    }

    /// What holds in a logical cluster, as far as the index has reached.
    pub fn read<T>(&self, cluster: Id, read: impl FnOnce(Layers<'_>) -> T) -> T {
        let policies = self.policies().read().unwrap_or_else(PoisonError::into_inner);
        let own = policies.own.get(&cluster).map(|own| &own.policy);
        read(Layers { own, shared: &self.shared })
    }

    /// When the policy of a logical cluster last changed; perhaps later than it did, never earlier.
    pub(crate) fn changed(&self, cluster: Id) -> Revision {
        let policies = self.policies().read().unwrap_or_else(PoisonError::into_inner);
        policies.own.get(&cluster).map_or(policies.gone, |own| own.changed.max(policies.gone))
    }

    /// Heard by those who wait for a policy to change.
    pub(crate) fn notifier(&self) -> &Arc<PolicyNotifier> {
        &self.own.state().notifier
    }

    pub(crate) fn kept(&self) -> &Arc<dyn Store> {
        self.own.kept()
    }

    /// Follows the store without being asked, for those who wait for changes. Goes on for as long as it is polled.
    pub async fn follow(&self) -> std::convert::Infallible {
        self.own.follow().await
    }

    fn policies(&self) -> &RwLock<Policies> {
        &self.own.state().policies
    }
}

impl replica::State for Owned {
    type Draft = HashMap<Id, Own>;

    fn add(draft: &mut HashMap<Id, Own>, entry: &Entry) {
        let Some(place) = keys::ObjectKey::of(entry.key()) else { return };
        if let Some(said) = Said::of(&place, Some(entry)) {
            draft.entry(place.cluster).or_default().policy.put(said);
        }
    }

    fn replace(&self, own: HashMap<Id, Own>, at: Revision) {
        // What changed while we did not look is unknown: all of it may have.
        *self.policies.write().unwrap_or_else(PoisonError::into_inner) = Policies { own, gone: at };
        self.notifier.notify_all();
    }

    fn apply(&self, events: &[Event], _through: Revision) {
        // A role can be megabytes, and all requests wait for the lock: it is parsed before.
        let said = |event: &Event| {
            let place = keys::ObjectKey::of(&event.key)?;
            Some((place.cluster, event.revision, Said::of(&place, event.current.as_ref())?))
        };
        let said: Vec<_> = events.iter().filter_map(said).collect();
        let clusters: Vec<Id> = said.iter().map(|(cluster, ..)| *cluster).collect();
        let mut policies = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        for (cluster, revision, said) in said {
            let own = policies.own.entry(cluster).or_default();
            own.policy.put(said);
            own.changed = revision;
            if own.policy.is_empty() {
                policies.own.remove(&cluster);
                policies.gone = revision;
            }
        }
        drop(policies);
        self.notifier.notify(clusters.into_iter().map(Topic::Policy));
    }
}

/// The stored role or binding at a key. Nothing: the shared one is visible. Something that is no such object, as the empty
/// value that stands for a deletion: nothing does.
enum Said {
    Role(PolicyKey, Option<Option<Role>>),
    Binding(PolicyKey, Option<Option<Binding>>),
}

impl Said {
    /// None if the place is one of neither.
    fn of(place: &keys::ObjectKey<'_>, entry: Option<&Entry>) -> Option<Said> {
        let at = PolicyKey::new(place.namespace.unwrap_or_default(), place.name);
        match place.collection.plural {
            "roles" | "clusterroles" => Some(Said::Role(at, entry.map(parsed))),
            "rolebindings" | "clusterrolebindings" => Some(Said::Binding(at, entry.map(parsed))),
            _ => None,
        }
    }
}

impl Policy {
    fn put(&mut self, said: Said) {
        match said {
            Said::Role(at, Some(role)) => self.set_role(at, role),
            Said::Role(at, None) => self.unset_role(&at),
            Said::Binding(at, Some(binding)) => self.set_binding(at, binding),
            Said::Binding(at, None) => self.unset_binding(&at),
        }
    }
}

fn parsed<T: DeserializeOwned>(entry: &Entry) -> Option<T> {
    serde_json::from_slice(stored::json(entry)?).ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;
    use storage::memory::Memory;
    use storage::{Change, Expect};

    use super::*;
    use crate::keys::Collection;
    use crate::rbac::Who;
    use crate::request::attributes::Attributes;

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
                BootstrapObject { collection: ROLES, value: role },
                BootstrapObject { collection: BINDINGS, value: binding("masters", "master") },
            ];
            World { index: Index::new(store.clone(), super::shared(&objects)), store }
        }

        async fn write(&self, cluster: u64, name: &str, change: Change) -> Revision {
            let key = BINDINGS.key(Id::new(cluster), None, name);
            let found = self.store.get(&key).await.unwrap().value;
            let expect = found.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
            self.store.commit(key, expect, change).await.unwrap().revision
        }

        /// Whether a user may do anything, now.
        async fn may(&self, cluster: u64, name: &str) -> bool {
            let now = self.store.get(&keys::cluster_record(Id::ROOT)).await.unwrap().revision;
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
        assert!(world.index.policies().read().unwrap().own.is_empty(), "nothing of it is left");
    }

    #[tokio::test]
    async fn a_deletion_of_a_bootstrap_role_is_kept_as_an_empty_value() {
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
        let [mine, others] =
            [1, 2].map(|cluster| world.index.notifier().subscribe(vec![Topic::Policy(Id::new(cluster))]));
        let changing = async {
            world.write(1, "b", bound("ann")).await;
            mine.notified().await;
        };
        tokio::select! {
            () = changing => {}
            never = world.index.follow() => match never {},
        }
        assert!(world.index.changed(Id::new(1)) > one);
        assert_eq!(world.index.changed(Id::new(2)), other);
        assert!(others.notified().now_or_never().is_none(), "it is woken for nothing");
    }
}
