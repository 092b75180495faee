//! What a stand-in's controllers see: the objects of its kinds as they are now, and how long pods have been as they are.
//!
//! The objects come from the store alone, so every controller sees what is written and nothing else. Times of Kubernetes
//! are whole seconds, and a container may be ready after a tenth of one; so the world remembers to the nanosecond when
//! it saw a pod enter its stage. That is all it remembers, and a stand-in that starts anew begins it anew.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::node::stage::Stage;
use crate::object::{controller, is_being_deleted, name, namespace, selects, text, uid};

#[derive(Debug, Default)]
pub(crate) struct World {
    /// By kind, namespace and name. Nodes and the like are in the namespace without a name.
    objects: BTreeMap<Kind, BTreeMap<String, BTreeMap<String, Arc<Value>>>>,
    /// Namespaces and names by the uid of the owner that controls them.
    owned: HashMap<(Kind, String), BTreeSet<(String, String)>>,
    /// By the uid of a pod.
    stages: HashMap<String, (Stage, Timestamp)>,
    /// Owners that could not have what they wanted, by uid: when they last tried, and what they were told.
    refused: HashMap<String, (Timestamp, String)>,
}

impl World {
    pub(crate) fn put(&mut self, kind: Kind, object: Value, now: Timestamp) {
        self.remove_links(kind, namespace(&object), name(&object));
        if let Some(owner) = controller(&object) {
            let place = (namespace(&object).to_owned(), name(&object).to_owned());
            self.owned.entry((kind, text(owner, "/uid").to_owned())).or_default().insert(place);
        }
        if kind == Kind::Pods {
            let stage = Stage::of(&object);
            let entered = self.stages.entry(uid(&object).to_owned()).or_insert((stage, now));
            if entered.0 != stage {
                *entered = (stage, now);
            }
        }
        let spaces = self.objects.entry(kind).or_default();
        let space = spaces.entry(namespace(&object).to_owned()).or_default();
        space.insert(name(&object).to_owned(), Arc::new(object));
    }

    /// Removes an object, and returns it if it was there.
    pub(crate) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.remove_links(kind, namespace, name);
        let gone = self.objects.get_mut(&kind)?.get_mut(namespace)?.remove(name)?;
        self.stages.remove(uid(&gone));
        self.refused.remove(uid(&gone));
        Some(gone)
    }

    fn remove_links(&mut self, kind: Kind, namespace: &str, name: &str) {
        let owner = self
            .get(kind, namespace, name)
            .and_then(|old| controller(old).map(|owner| text(owner, "/uid").to_owned()));
        let Some(owner) = owner else { return };
        let key = (kind, owner);
        if let Some(places) = self.owned.get_mut(&key) {
            places.remove(&(namespace.to_owned(), name.to_owned()));
            if places.is_empty() {
                self.owned.remove(&key);
            }
        }
    }

    /// Forgets the objects, to read them anew, and keeps what is remembered of those that are still there then.
    pub(crate) fn begin_anew(&mut self) {
        self.objects.clear();
        self.owned.clear();
    }

    /// Forgets what it remembers of objects that are no longer there.
    pub(crate) fn forget_gone(&mut self) {
        let objects = self.objects.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        let there: HashSet<&str> = objects.map(|object| uid(object)).collect();
        self.stages.retain(|uid, _| there.contains(uid.as_str()));
        self.refused.retain(|uid, _| there.contains(uid.as_str()));
    }

    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&kind)?.get(namespace)?.get(name).map(|object| &**object)
    }

    /// All objects of a namespace.
    pub(crate) fn all(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = &Value> {
        let space = self.objects.get(&kind).and_then(|spaces| spaces.get(namespace));
        space.into_iter().flat_map(BTreeMap::values).map(|object| &**object)
    }

    /// All objects of all namespaces.
    pub(crate) fn every(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        let spaces = self.objects.get(&kind).into_iter().flat_map(BTreeMap::values);
        spaces.flat_map(BTreeMap::values).map(|object| &**object)
    }

    /// What an owner controls.
    pub(crate) fn owned(&self, kind: Kind, owner: &Value) -> Vec<&Value> {
        let places = self.owned.get(&(kind, uid(owner).to_owned()));
        let places = places.into_iter().flatten();
        places.filter_map(|(namespace, name)| self.get(kind, namespace, name)).collect()
    }

    /// Objects that nobody controls and that this selector takes.
    pub(crate) fn orphans<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        selector: &'a Value,
    ) -> impl Iterator<Item = &'a Value> {
        self.all(kind, namespace).filter(move |object| {
            controller(object).is_none() && !is_being_deleted(object) && selects(selector, object)
        })
    }

    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        self.objects.values().flat_map(BTreeMap::keys).filter(|name| !name.is_empty()).cloned().collect()
    }

    /// The stage a pod is in, and since when.
    pub(crate) fn stage(&self, pod: &Value, now: Timestamp) -> (Stage, Timestamp) {
        self.stages.get(uid(pod)).copied().unwrap_or((Stage::of(pod), now))
    }

    /// Notes that an owner could not have something.
    pub(crate) fn refuse(&mut self, owner: &str, now: Timestamp, told: String) {
        self.refused.insert(owner.to_owned(), (now, told));
    }

    /// Notes that an owner got what it wanted.
    pub(crate) fn grant(&mut self, owner: &str) {
        self.refused.remove(owner);
    }

    pub(crate) fn refusal(&self, owner: &Value) -> Option<(Timestamp, &str)> {
        self.refused.get(uid(owner)).map(|(at, told)| (*at, told.as_str()))
    }
}

#[cfg(test)]
impl World {
    /// A world of these objects.
    pub(crate) fn with(objects: impl IntoIterator<Item = (Kind, Value)>, now: Timestamp) -> World {
        let mut world = World::default();
        objects.into_iter().for_each(|(kind, object)| world.put(kind, object, now));
        world
    }
}
