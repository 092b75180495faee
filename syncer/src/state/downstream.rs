//! The view of one kind downstream.
//!
//! A syncer that may list a kind in the whole cluster watches it in one view. A syncer that may list it in some
//! namespaces only, because an administrator granted Roles instead of a ClusterRole, watches each of these namespaces
//! in a view of its own. The informer of the whole cluster keeps retrying, so the syncer uses rights that are granted
//! later.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use controller::informer::{CachedObject, Key, View};
use controller::kind::ResourceKind;

#[derive(Debug)]
pub(crate) struct DownstreamView {
    pub(crate) all: Arc<View>,
    /// Used only while listing the whole cluster is forbidden.
    by_namespace: RwLock<BTreeMap<String, Arc<View>>>,
}

impl DownstreamView {
    pub(crate) fn new(kind: &ResourceKind) -> DownstreamView {
        DownstreamView { all: Arc::new(View::new(kind.clone())), by_namespace: RwLock::default() }
    }

    /// Returns whether the kind is watched per namespace.
    pub(crate) fn is_per_namespace(&self) -> bool {
        self.all.kind.namespaced && self.all.forbidden().is_some()
    }

    /// Returns the view with the objects of a namespace.
    fn view(&self, namespace: &str) -> Option<Arc<View>> {
        match self.is_per_namespace() {
            true => self.in_namespace(namespace),
            false => Some(self.all.clone()),
        }
    }

    fn in_namespace(&self, namespace: &str) -> Option<Arc<View>> {
        self.by_namespace.read().expect("no holder of this lock panics").get(namespace).cloned()
    }

    /// Adds a view of a namespace and returns it. `None` if the namespace has a view already.
    pub(crate) fn add_namespace(&self, namespace: &str) -> Option<Arc<View>> {
        let mut by_namespace = self.by_namespace.write().expect("no holder of this lock panics");
        if by_namespace.contains_key(namespace) {
            return None;
        }
        let view = Arc::new(View::new(self.all.kind.clone()));
        by_namespace.insert(namespace.to_owned(), view.clone());
        Some(view)
    }

    /// Removes all views of namespaces, and returns their namespaces.
    pub(crate) fn remove_namespaces(&self) -> Vec<String> {
        let by_namespace =
            std::mem::take(&mut *self.by_namespace.write().expect("no holder of this lock panics"));
        by_namespace.into_keys().collect()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<CachedObject>> {
        self.view(&key.namespace)?.get(key)
    }

    /// Returns whether the view of a namespace is complete.
    pub(crate) fn synced(&self, namespace: &str) -> bool {
        self.view(namespace).is_some_and(|view| view.synced())
    }

    /// Returns whether all views are complete, or were forbidden from the start. A view that became forbidden later is
    /// not complete.
    pub(crate) fn all_synced(&self) -> bool {
        let is_complete = |view: &Arc<View>| view.synced() || (view.forbidden().is_some() && !view.known());
        match self.is_per_namespace() {
            true => {
                let by_namespace = self.by_namespace.read().expect("no holder of this lock panics");
                !self.all.known() && by_namespace.values().all(is_complete)
            }
            false => is_complete(&self.all),
        }
    }

    /// Returns why listing a namespace is forbidden.
    pub(crate) fn forbidden(&self, namespace: &str) -> Option<String> {
        self.view(namespace)?.forbidden()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        if !self.is_per_namespace() {
            return self.all.keys();
        }
        let by_namespace = self.by_namespace.read().expect("no holder of this lock panics");
        by_namespace.values().flat_map(|view| view.keys()).collect()
    }
}
