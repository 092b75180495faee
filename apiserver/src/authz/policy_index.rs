//! The policies of all logical clusters, kept up to date with the store.
//!
//! ```text
//!   the store's history of roles and bindings ─► a cursor ─► own policies, by logical cluster
//!   bootstrap roles and bindings ──────────────────────────► one shared policy, built once
//! ```
//!
//! The index is never older than the revision it is read at ([`Replica`]). So a binding whose deletion was acknowledged
//! has no effect on the next request, on every server that shares the store.
//!
//! It follows the store without the bootstrap layer, so a logical cluster that changed none of its bootstrap roles has
//! no entry here.

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
    replica: Replica<IndexState>,
}

/// The policies of logical clusters that changed or added roles or bindings.
#[derive(Debug, Default)]
struct IndexState {
    policies: RwLock<Policies>,
    /// Notifies the subscribers of a policy.
    notifier: Arc<PolicyNotifier>,
}

#[derive(Debug, Default)]
struct Policies {
    by_cluster: HashMap<Id, ClusterPolicy>,
    /// The revision at which an entry was last removed.
    removed_at: Revision,
}

#[derive(Debug, Default)]
struct ClusterPolicy {
    policy: Policy,
    changed: Revision,
}

/// Returns the policy of these bootstrap objects.
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
    /// Creates an index of `inner_store`, which has no bootstrap layer, and the shared policy.
    pub fn new(inner_store: Arc<dyn Store>, shared: Policy) -> Index {
        // All objects of the group, in all logical clusters.
        let range = Range::prefix(format!("{GROUP}/"));
        Index { shared, replica: Replica::new(inner_store, range, IndexState::default()) }
    }

    /// Brings the index up to a revision, which must exist.
    pub async fn reach(&self, revision: Revision) -> Result<(), ReadError> {
        self.replica.reach(revision).await
    }

    /// Reads the effective policy of a logical cluster, as far as the index has got.
    pub fn read<T>(&self, cluster: Id, read: impl FnOnce(Layers<'_>) -> T) -> T {
        let policies = self.policies().read().unwrap_or_else(PoisonError::into_inner);
        let own = policies.by_cluster.get(&cluster).map(|cluster| &cluster.policy);
        read(Layers { own, shared: &self.shared })
    }

    /// Returns the revision at which the policy of a logical cluster last changed, or a later one.
    pub(crate) fn changed(&self, cluster: Id) -> Revision {
        let policies = self.policies().read().unwrap_or_else(PoisonError::into_inner);
        policies
            .by_cluster
            .get(&cluster)
            .map_or(policies.removed_at, |own| own.changed.max(policies.removed_at))
    }

    /// Returns the notifier of policy changes.
    pub(crate) fn notifier(&self) -> &Arc<PolicyNotifier> {
        &self.replica.state().notifier
    }

    pub(crate) fn inner_store(&self) -> &Arc<dyn Store> {
        self.replica.inner_store()
    }

    /// Follows the store, for subscribers of changes. Never returns.
    pub async fn follow(&self) -> std::convert::Infallible {
        self.replica.follow().await
    }

    fn policies(&self) -> &RwLock<Policies> {
        &self.replica.state().policies
    }
}

impl replica::State for IndexState {
    type Draft = HashMap<Id, ClusterPolicy>;

    fn add(draft: &mut HashMap<Id, ClusterPolicy>, entry: &Entry) {
        let Some(place) = keys::ObjectKey::of(entry.key()) else { return };
        if let Some(policy_entry) = PolicyEntry::of(&place, Some(entry)) {
            draft.entry(place.cluster).or_default().policy.put(policy_entry);
        }
    }

    fn replace(&self, by_cluster: HashMap<Id, ClusterPolicy>, at: Revision) {
        // It is unknown what changed between the two states, so every policy counts as changed.
        *self.policies.write().unwrap_or_else(PoisonError::into_inner) =
            Policies { by_cluster, removed_at: at };
        self.notifier.notify_all();
    }

    fn apply(&self, events: &[Event], _through: Revision) {
        // Parsed before the lock is taken: a role can be megabytes, and all requests wait for the lock.
        let policy_entry = |event: &Event| {
            let place = keys::ObjectKey::of(&event.key)?;
            Some((place.cluster, event.revision, PolicyEntry::of(&place, event.current.as_ref())?))
        };
        let entries: Vec<_> = events.iter().filter_map(policy_entry).collect();
        let clusters: Vec<Id> = entries.iter().map(|(cluster, ..)| *cluster).collect();
        let mut policies = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        for (cluster, revision, entry) in entries {
            let own = policies.by_cluster.entry(cluster).or_default();
            own.policy.put(entry);
            own.changed = revision;
            if own.policy.is_empty() {
                policies.by_cluster.remove(&cluster);
                policies.removed_at = revision;
            }
        }
        drop(policies);
        self.notifier.notify(clusters.into_iter().map(Topic::Policy));
    }
}

/// The stored role or binding at a key. `None`: nothing is stored, so the shared one applies. `Some(None)`: the entry
/// is a tombstone or cannot be parsed, so none applies.
enum PolicyEntry {
    Role(PolicyKey, Option<Option<Role>>),
    Binding(PolicyKey, Option<Option<Binding>>),
}

impl PolicyEntry {
    /// Returns None if the key is not that of a role or binding.
    fn of(place: &keys::ObjectKey<'_>, entry: Option<&Entry>) -> Option<PolicyEntry> {
        let at = PolicyKey::new(place.namespace.unwrap_or_default(), place.name);
        match place.collection.plural {
            "roles" | "clusterroles" => Some(PolicyEntry::Role(at, entry.map(parsed))),
            "rolebindings" | "clusterrolebindings" => Some(PolicyEntry::Binding(at, entry.map(parsed))),
            _ => None,
        }
    }
}

impl Policy {
    fn put(&mut self, entry: PolicyEntry) {
        match entry {
            PolicyEntry::Role(at, Some(role)) => self.set_role(at, role),
            PolicyEntry::Role(at, None) => self.unset_role(&at),
            PolicyEntry::Binding(at, Some(binding)) => self.set_binding(at, binding),
            PolicyEntry::Binding(at, None) => self.unset_binding(&at),
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
    use crate::rbac::UserInfo;
    use crate::request::attributes::Attributes;

    const BINDINGS: Collection<'static> = Collection { group: GROUP, plural: "clusterrolebindings" };
    const ROLES: Collection<'static> = Collection { group: GROUP, plural: "clusterroles" };

    struct TestIndex {
        store: Arc<dyn Store>,
        index: Index,
    }

    impl TestIndex {
        fn new() -> TestIndex {
            let store: Arc<dyn Store> = Arc::new(Memory::new());
            let role = json!({
                "metadata": { "name": "all" },
                "rules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            });
            let objects = [
                BootstrapObject { collection: ROLES, value: role },
                BootstrapObject { collection: BINDINGS, value: binding("masters", "master") },
            ];
            TestIndex { index: Index::new(store.clone(), super::shared(&objects)), store }
        }

        async fn write(&self, cluster: u64, name: &str, change: Change) -> Revision {
            let key = BINDINGS.key(Id::new(cluster), None, name);
            let found = self.store.get(&key).await.unwrap().value;
            let expect = found.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
            self.store.commit(key, expect, change).await.unwrap().revision
        }

        /// Decides whether a user may do anything now.
        async fn may(&self, cluster: u64, name: &str) -> bool {
            let now = self.store.get(&keys::cluster_record(Id::ROOT)).await.unwrap().revision;
            self.index.reach(now).await.unwrap();
            let attributes = Attributes::Path { path: "/".to_owned(), verb: "get".to_owned() };
            let decide =
                |layers: Layers<'_>| layers.decide(UserInfo { name, groups: &[] }, &attributes).allowed;
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
    async fn a_binding_applies_once_it_is_written_and_only_in_its_logical_cluster() {
        let test = TestIndex::new();
        assert!(test.may(1, "master").await && !test.may(1, "ann").await);
        test.write(1, "b", bound("ann")).await;
        assert!(test.may(1, "ann").await && !test.may(2, "ann").await);
        test.write(1, "b", bound("bob")).await;
        assert!(!test.may(1, "ann").await && test.may(1, "bob").await);
        test.write(1, "b", Change::Delete).await;
        assert!(!test.may(1, "bob").await);
        assert!(
            test.index.policies().read().unwrap().by_cluster.is_empty(),
            "the policy of an unchanged logical cluster is removed"
        );
    }

    #[tokio::test]
    async fn a_deletion_of_a_bootstrap_role_is_stored_as_an_empty_value() {
        let test = TestIndex::new();
        test.write(1, "masters", Change::Put(bytes::Bytes::new())).await;
        assert!(!test.may(1, "master").await && test.may(2, "master").await);
        test.write(1, "masters", Change::Delete).await;
        assert!(test.may(1, "master").await);
    }

    #[tokio::test]
    async fn an_index_behind_a_compaction_lists_again() {
        let test = TestIndex::new();
        test.write(1, "b", bound("ann")).await;
        assert!(test.may(1, "ann").await);
        test.write(1, "b", bound("bob")).await;
        let last = test.write(2, "b", bound("eve")).await;
        test.store.compact(last).await.unwrap();
        assert!(!test.may(1, "ann").await && test.may(1, "bob").await && test.may(2, "eve").await);
    }

    #[tokio::test]
    async fn only_subscribers_of_the_changed_policy_are_notified() {
        let test = TestIndex::new();
        assert!(!test.may(1, "ann").await);
        let (one, other) = (test.index.changed(Id::new(1)), test.index.changed(Id::new(2)));
        let [mine, others] =
            [1, 2].map(|cluster| test.index.notifier().subscribe(vec![Topic::Policy(Id::new(cluster))]));
        let changing = async {
            test.write(1, "b", bound("ann")).await;
            mine.notified().await;
        };
        tokio::select! {
            () = changing => {}
            never = test.index.follow() => match never {},
        }
        assert!(test.index.changed(Id::new(1)) > one);
        assert_eq!(test.index.changed(Id::new(2)), other);
        assert!(others.notified().now_or_never().is_none(), "it is notified without a change");
    }
}
