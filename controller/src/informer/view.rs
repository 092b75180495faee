//! The cached objects of one kind.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::object::CachedObject;
use crate::key::Key;
use crate::kind::ResourceKind;
use crate::remote::CallError;
use api::cluster::Id;

type Keep = dyn Fn(&Key) -> bool + Send + Sync;

/// Which objects of a kind are watched.
#[derive(Default)]
pub struct Scope {
    /// A label selector. Empty: all.
    pub labels: String,
    /// Only objects of this namespace. Empty: all.
    pub namespace: String,
    /// Over all logical clusters, as the URL of the client is. Keys name their logical cluster.
    pub across: bool,
    /// Which objects to keep. The others are read and dropped.
    pub keep: Option<Box<Keep>>,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("labels", &self.labels)
            .field("namespace", &self.namespace)
            .field("across", &self.across)
            .finish()
    }
}

/// A change. The view already includes it.
#[derive(Debug)]
pub enum News<'a> {
    Put {
        now: &'a Arc<CachedObject>,
        /// Whether the view did not have it before.
        new: bool,
    },
    Gone {
        last: &'a Arc<CachedObject>,
        /// The server reported that it was deleted, or no longer matches. Otherwise it was only missing from a list.
        witnessed: bool,
    },
    /// The view is complete and watched.
    Synced,
    /// The view is stale or, if it was never synced, empty.
    Lost,
}

/// All objects of a kind, as far as they were received.
#[derive(Debug)]
pub struct View {
    pub kind: ResourceKind,
    state: RwLock<ViewState>,
}

#[derive(Debug, Default)]
struct ViewState {
    objects: BTreeMap<Key, Arc<CachedObject>>,
    synced: bool,
    /// It was synced once.
    known: bool,
    error: Option<String>,
    /// The reason is that the server forbids it.
    forbidden: bool,
    /// The version up to which it is complete.
    through: Option<u64>,
}

impl View {
    pub fn new(kind: ResourceKind) -> View {
        View { kind, state: RwLock::default() }
    }

    /// Whether it has a complete list and a working watch.
    pub fn synced(&self) -> bool {
        self.state().synced
    }

    /// Whether it was ever synced.
    pub fn known(&self) -> bool {
        self.state().known
    }

    /// Why it is not synced.
    pub fn error(&self) -> Option<String> {
        self.state().error.clone()
    }

    /// The message of the server, if it forbids to list or watch.
    pub fn forbidden(&self) -> Option<String> {
        let state = self.state();
        state.error.clone().filter(|_| state.forbidden)
    }

    /// Whether it includes everything that was written up to a version. Versions are compared as numbers, so only for a
    /// server that counts them in one sequence.
    pub fn has_observed(&self, version: u64) -> bool {
        self.state().through.is_some_and(|through| through >= version)
    }

    pub fn get(&self, key: &Key) -> Option<Arc<CachedObject>> {
        self.state().objects.get(key).cloned()
    }

    pub fn len(&self) -> usize {
        self.state().objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn keys(&self) -> Vec<Key> {
        self.state().objects.keys().cloned().collect()
    }

    /// Of a view of one logical cluster.
    pub fn keys_in(&self, namespace: &str) -> Vec<Key> {
        let state = self.state();
        let from = state.objects.range(Key::new(namespace, "")..);
        from.map(|(key, _)| key).take_while(|key| key.namespace == namespace).cloned().collect()
    }

    /// Of a view over all logical clusters: those of one, or of one namespace of it.
    pub fn keys_within(&self, cluster: Id, namespace: Option<&str>) -> Vec<Key> {
        let from = Key {
            cluster: Some(cluster),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: String::new(),
        };
        let is_within = |key: &&Key| {
            key.cluster == Some(cluster) && namespace.is_none_or(|namespace| key.namespace == namespace)
        };
        let state = self.state();
        state.objects.range(from..).map(|(key, _)| key).take_while(is_within).cloned().collect()
    }

    pub fn all(&self) -> Vec<Arc<CachedObject>> {
        self.state().objects.values().cloned().collect()
    }

    /// None if the object is unchanged; else whether it is new.
    pub(super) fn put(&self, object: &Arc<CachedObject>) -> Option<bool> {
        let before = self.change().objects.insert(object.key.clone(), object.clone());
        match before {
            Some(before) if before.version == object.version && before.uid == object.uid => None,
            before => Some(before.is_none()),
        }
    }

    pub(super) fn remove(&self, key: &Key) -> Option<Arc<CachedObject>> {
        self.change().objects.remove(key)
    }

    /// Removes and returns the objects that are not in a complete list.
    pub(super) fn retain(&self, listed: &HashSet<Key>) -> Vec<Arc<CachedObject>> {
        let mut state = self.change();
        let gone: Vec<Key> = state.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        gone.iter().filter_map(|key| state.objects.remove(key)).collect()
    }

    pub(super) fn set_through(&self, version: &str) {
        self.change().through = version.parse().ok();
    }

    /// Returns whether the view was not synced before.
    pub(super) fn set_synced(&self) -> bool {
        let mut state = self.change();
        state.error = None;
        state.forbidden = false;
        state.known = true;
        !std::mem::replace(&mut state.synced, true)
    }

    /// Returns whether the state changed: it was synced, or the reason is another kind of error.
    pub(super) fn set_lost(&self, error: &CallError) -> bool {
        let mut state = self.change();
        let is_first = state.error.replace(error.to_string()).is_none();
        let forbidden = error.code() == 403;
        let is_other = std::mem::replace(&mut state.forbidden, forbidden) != forbidden;
        std::mem::replace(&mut state.synced, false) || is_first || is_other
    }

    fn state(&self) -> RwLockReadGuard<'_, ViewState> {
        self.state.read().expect("no holder of this lock panics")
    }

    fn change(&self) -> RwLockWriteGuard<'_, ViewState> {
        self.state.write().expect("no holder of this lock panics")
    }
}
