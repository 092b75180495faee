//! Which projections exist for which source, and which sources wait for an owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use api::cluster::Id;
use controller::informer::Key;
use controller::queue::Queue;

use crate::context::{WorkItem, lock};
use crate::snapshot::ObjectRef;

#[derive(Debug, Default)]
pub(crate) struct ProjectionIndex(Mutex<ProjectionState>);

#[derive(Debug, Default)]
struct ProjectionState {
    /// By source. More than one only until the older is deleted.
    projected: HashMap<ObjectRef, BTreeSet<Key>>,
    /// The projected ReplicaSets of a Deployment, in a mailbox or in a user's logical cluster.
    sets: HashMap<ObjectRef, BTreeSet<String>>,
    /// The object that each source waits for: one at a time.
    awaited: HashMap<ObjectRef, ObjectRef>,
    waiting: HashMap<ObjectRef, BTreeSet<ObjectRef>>,
    /// The target clusters of each record.
    targets: HashMap<Key, BTreeSet<String>>,
    /// How many records of a logical cluster have a target on each physical cluster.
    uses: HashMap<Id, BTreeMap<String, usize>>,
}

fn add_or_remove<K: std::hash::Hash + Eq + Clone, V: Ord>(
    of: &mut HashMap<K, BTreeSet<V>>,
    key: &K,
    value: V,
    gone: bool,
) {
    if !gone {
        of.entry(key.clone()).or_default().insert(value);
    } else if let Some(values) = of.get_mut(key) {
        values.remove(&value);
        if values.is_empty() {
            of.remove(key);
        }
    }
}

impl ProjectionIndex {
    /// Adds or removes a projection of a source.
    pub(crate) fn set_projection(&self, source: &ObjectRef, key: &Key, gone: bool) {
        add_or_remove(&mut lock(&self.0).projected, source, key.clone(), gone);
    }

    pub(crate) fn projected(&self, source: &ObjectRef) -> Vec<Key> {
        lock(&self.0).projected.get(source).into_iter().flatten().cloned().collect()
    }

    /// All sources in a mailbox, or in one of its namespaces.
    pub(crate) fn sources(&self, mailbox: Id, namespace: Option<&str>) -> Vec<ObjectRef> {
        let is_in_mailbox = |source: &&ObjectRef| {
            source.cluster() == mailbox && namespace.is_none_or(|name| source.key.namespace == name)
        };
        lock(&self.0).projected.keys().filter(is_in_mailbox).cloned().collect()
    }

    /// Adds or removes a ReplicaSet of a Deployment.
    pub(crate) fn set(&self, deployment: &ObjectRef, name: &str, gone: bool) {
        add_or_remove(&mut lock(&self.0).sets, deployment, name.to_owned(), gone);
    }

    pub(crate) fn sets(&self, deployment: &ObjectRef) -> Vec<Key> {
        let state = lock(&self.0);
        let names = state.sets.get(deployment).into_iter().flatten();
        names.map(|name| Key { name: name.clone(), ..deployment.key.clone() }).collect()
    }

    /// Sets the target clusters of a record. Returns whether its logical cluster uses others now.
    pub(crate) fn record(&self, record: &Key, targets: BTreeSet<String>) -> bool {
        let Some(cluster) = record.cluster else { return false };
        let state = &mut *lock(&self.0);
        let before = match targets.is_empty() {
            true => state.targets.remove(record),
            false => state.targets.insert(record.clone(), targets.clone()),
        };
        let before = before.unwrap_or_default();
        let uses = state.uses.entry(cluster).or_default();
        let mut changed = false;
        for target in targets.difference(&before) {
            let count = uses.entry(target.clone()).or_default();
            changed |= *count == 0;
            *count += 1;
        }
        for target in before.difference(&targets) {
            let count = uses.entry(target.clone()).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                uses.remove(target);
                changed = true;
            }
        }
        if uses.is_empty() {
            state.uses.remove(&cluster);
        }
        changed
    }

    /// The physical clusters that a logical cluster uses.
    pub(crate) fn used(&self, cluster: Id) -> BTreeSet<String> {
        lock(&self.0).uses.get(&cluster).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Requeues a source at the next event of `on`.
    pub(crate) fn wait(&self, source: &ObjectRef, on: ObjectRef) {
        let state = &mut *lock(&self.0);
        if let Some(before) = state.awaited.insert(source.clone(), on.clone()) {
            add_or_remove(&mut state.waiting, &before, source.clone(), true);
        }
        add_or_remove(&mut state.waiting, &on, source.clone(), false);
    }

    /// The source waits no more.
    pub(crate) fn stop_waiting(&self, source: &ObjectRef) {
        let state = &mut *lock(&self.0);
        if let Some(on) = state.awaited.remove(source) {
            add_or_remove(&mut state.waiting, &on, source.clone(), true);
        }
    }

    pub(crate) fn wake_waiting(&self, queue: &Queue<WorkItem>, on: &ObjectRef) {
        let woken = {
            let state = &mut *lock(&self.0);
            let woken = state.waiting.remove(on).unwrap_or_default();
            woken.iter().for_each(|source| drop(state.awaited.remove(source)));
            woken
        };
        woken.into_iter().for_each(|source| queue.add(WorkItem::Projected(source)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str) -> ObjectRef {
        ObjectRef { kind: "pods".into(), key: Key { cluster: Some(Id::new(7)), ..Key::new("shop", name) } }
    }

    #[tokio::test]
    async fn a_waiting_projection_has_one_dependency_and_is_woken_once() {
        let (index, queue) = (ProjectionIndex::default(), Queue::new());
        let (pod, set, other) = (subject("pod"), subject("set"), subject("other"));
        index.wait(&pod, set.clone());
        index.wait(&pod, other.clone());
        index.wake_waiting(&queue, &set);
        assert!(queue.is_empty(), "the pod waits for another object now");
        index.wake_waiting(&queue, &other);
        assert_eq!(queue.next().await, WorkItem::Projected(pod.clone()));
        index.wake_waiting(&queue, &other);
        index.wait(&pod, set.clone());
        index.stop_waiting(&pod);
        index.wake_waiting(&queue, &set);
        assert_eq!(queue.len(), 1, "one reconcile is queued");
        assert!(lock(&index.0).waiting.is_empty() && lock(&index.0).awaited.is_empty());
    }

    #[test]
    fn a_cluster_is_used_as_long_as_a_record_names_it() {
        let index = ProjectionIndex::default();
        let key = |name: &str| Key { cluster: Some(Id::new(7)), ..Key::new("shop", name) };
        let targets = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert!(index.record(&key("a"), targets(&["east", "west"])));
        assert!(!index.record(&key("b"), targets(&["east"])));
        assert!(!index.record(&key("b"), targets(&["east"])), "an unchanged record changes nothing");
        assert!(index.record(&key("a"), targets(&[])), "west is used no more");
        assert_eq!(index.used(Id::new(7)), targets(&["east"]));
        assert!(index.record(&key("b"), targets(&["west"])));
        assert!(index.record(&key("b"), targets(&[])));
        assert!(index.used(Id::new(7)).is_empty() && lock(&index.0).uses.is_empty());
    }

    #[test]
    fn projected_objects_are_found_by_their_source() {
        let (index, source, key) = (ProjectionIndex::default(), subject("a"), Key::new("shop", "a-east"));
        index.set_projection(&source, &key, false);
        assert_eq!(
            (index.projected(&source), index.sources(Id::new(7), Some("shop"))),
            (vec![key.clone()], vec![source.clone()])
        );
        assert_eq!(index.sources(Id::new(7), Some("other")), []);
        index.set_projection(&source, &key, true);
        assert_eq!(index.projected(&source), []);
    }
}
