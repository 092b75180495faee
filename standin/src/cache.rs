//! The objects that a stand-in's controllers read.
//!
//! They come from the store alone, so every controller sees all writes and nothing else. Timestamps in objects are
//! whole seconds, and a container may be ready after a tenth of one; so the cache also records, to the nanosecond, when
//! it observed a pod enter its stage, and which owners failed to create objects. Both records are lost when a stand-in
//! restarts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use api::meta::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::Value;

use crate::objects::fields::{controller_reference, is_being_deleted, name, namespace, selects, text, uid};
use crate::objects::kind::ObjectKind;
use crate::objects::pod_stage::PodStage;

#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// By kind, namespace and name. The namespace of cluster-scoped objects is empty.
    objects: BTreeMap<ObjectKind, BTreeMap<String, BTreeMap<String, Arc<Value>>>>,
    /// Namespaces and names of objects by the uid of their controller.
    by_controller: HashMap<(ObjectKind, String), BTreeSet<(String, String)>>,
    /// The stage of a pod and when it entered it, by its uid.
    pod_stages: HashMap<String, (PodStage, Timestamp)>,
    /// The last failed create of an owner by its uid: when, and the message of the server.
    create_failures: HashMap<String, (Timestamp, String)>,
}

impl Cache {
    pub(crate) fn put(&mut self, kind: ObjectKind, object: Value, now: Timestamp) {
        self.remove_from_index(kind, namespace(&object), name(&object));
        if let Some(owner) = controller_reference(&object) {
            let key = (namespace(&object).to_owned(), name(&object).to_owned());
            self.by_controller.entry((kind, text(owner, "/uid").to_owned())).or_default().insert(key);
        }
        if kind == ObjectKind::Pods {
            let stage = PodStage::of(&object);
            let entered = self.pod_stages.entry(uid(&object).to_owned()).or_insert((stage, now));
            if entered.0 != stage {
                *entered = (stage, now);
            }
        }
        let namespaces = self.objects.entry(kind).or_default();
        let ns = namespaces.entry(namespace(&object).to_owned()).or_default();
        ns.insert(name(&object).to_owned(), Arc::new(object));
    }

    /// Removes an object, and returns it if there was one.
    pub(crate) fn remove(&mut self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.remove_from_index(kind, namespace, name);
        let removed = self.objects.get_mut(&kind)?.get_mut(namespace)?.remove(name)?;
        self.pod_stages.remove(uid(&removed));
        self.create_failures.remove(uid(&removed));
        Some(removed)
    }

    fn remove_from_index(&mut self, kind: ObjectKind, namespace: &str, name: &str) {
        let owner = self
            .get(kind, namespace, name)
            .and_then(|old| controller_reference(old).map(|owner| text(owner, "/uid").to_owned()));
        let Some(owner) = owner else { return };
        let key = (kind, owner);
        if let Some(objects) = self.by_controller.get_mut(&key) {
            objects.remove(&(namespace.to_owned(), name.to_owned()));
            if objects.is_empty() {
                self.by_controller.remove(&key);
            }
        }
    }

    /// Removes all objects before a new list. Pod stages and failures stay until [`Cache::prune`].
    pub(crate) fn clear_objects(&mut self) {
        self.objects.clear();
        self.by_controller.clear();
    }

    /// Removes pod stages and failures of objects that no longer exist.
    pub(crate) fn prune(&mut self) {
        let objects = self.objects.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        let existing: HashSet<&str> = objects.map(|object| uid(object)).collect();
        self.pod_stages.retain(|uid, _| existing.contains(uid.as_str()));
        self.create_failures.retain(|uid, _| existing.contains(uid.as_str()));
    }

    pub(crate) fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&kind)?.get(namespace)?.get(name).map(|object| &**object)
    }

    /// Returns all objects of a namespace.
    pub(crate) fn list(&self, kind: ObjectKind, namespace: &str) -> impl Iterator<Item = &Value> {
        let ns = self.objects.get(&kind).and_then(|namespaces| namespaces.get(namespace));
        ns.into_iter().flat_map(BTreeMap::values).map(|object| &**object)
    }

    /// Returns all objects of all namespaces.
    pub(crate) fn list_all(&self, kind: ObjectKind) -> impl Iterator<Item = &Value> {
        let namespaces = self.objects.get(&kind).into_iter().flat_map(BTreeMap::values);
        namespaces.flat_map(BTreeMap::values).map(|object| &**object)
    }

    /// Returns the objects whose controller is `owner`.
    pub(crate) fn controlled_by(&self, kind: ObjectKind, owner: &Value) -> Vec<&Value> {
        let keys = self.by_controller.get(&(kind, uid(owner).to_owned()));
        let keys = keys.into_iter().flatten();
        keys.filter_map(|(namespace, name)| self.get(kind, namespace, name)).collect()
    }

    /// Returns the objects that the selector matches and that have no controller.
    pub(crate) fn orphans<'a>(
        &'a self,
        kind: ObjectKind,
        namespace: &'a str,
        selector: &'a LabelSelector,
    ) -> impl Iterator<Item = &'a Value> {
        self.list(kind, namespace).filter(move |object| {
            controller_reference(object).is_none() && !is_being_deleted(object) && selects(selector, object)
        })
    }

    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        self.objects.values().flat_map(BTreeMap::keys).filter(|name| !name.is_empty()).cloned().collect()
    }

    /// Returns the stage of a pod, and when the pod entered it.
    pub(crate) fn pod_stage(&self, pod: &Value, now: Timestamp) -> (PodStage, Timestamp) {
        self.pod_stages.get(uid(pod)).copied().unwrap_or((PodStage::of(pod), now))
    }

    /// Records that an owner could not create an object.
    pub(crate) fn record_failure(&mut self, owner: &str, now: Timestamp, message: String) {
        self.create_failures.insert(owner.to_owned(), (now, message));
    }

    /// Forgets the failure of an owner that created an object.
    pub(crate) fn clear_failure(&mut self, owner: &str) {
        self.create_failures.remove(owner);
    }

    pub(crate) fn create_failure(&self, owner: &Value) -> Option<(Timestamp, &str)> {
        self.create_failures.get(uid(owner)).map(|(at, message)| (*at, message.as_str()))
    }
}

#[cfg(test)]
impl Cache {
    /// Returns a cache with these objects.
    pub(crate) fn with(objects: impl IntoIterator<Item = (ObjectKind, Value)>, now: Timestamp) -> Cache {
        let mut cache = Cache::default();
        objects.into_iter().for_each(|(kind, object)| cache.put(kind, object, now));
        cache
    }
}
