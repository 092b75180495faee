//! What is known of a kind below.
//!
//! Whoever may look at all of it follows it in one view. Whoever may look into some namespaces only, because an
//! administrator gave the syncer Roles instead of a ClusterRole, follows each of those in a view of its own. The view
//! of the whole goes on asking, so rights that come later are used when they are there.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use controller::informer::{Key, Object, View};
use controller::kind::Kind;

#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) whole: Arc<View>,
    /// By namespace. Of use only while the whole may not be looked at.
    parts: RwLock<BTreeMap<String, Arc<View>>>,
}

impl Below {
    pub(crate) fn new(kind: &Kind) -> Below {
        Below { whole: Arc::new(View::new(kind.clone())), parts: RwLock::default() }
    }

    /// Whether it has to be looked at namespace by namespace.
    pub(crate) fn is_divided(&self) -> bool {
        self.whole.kind.namespaced && self.whole.forbidden().is_some()
    }

    /// The view that has what is in a namespace.
    fn view(&self, namespace: &str) -> Option<Arc<View>> {
        match self.is_divided() {
            true => self.part(namespace),
            false => Some(self.whole.clone()),
        }
    }

    fn part(&self, namespace: &str) -> Option<Arc<View>> {
        self.parts.read().expect("no holder of this lock panics").get(namespace).cloned()
    }

    /// A view of a namespace, if it has none yet.
    pub(crate) fn divide(&self, namespace: &str) -> Option<Arc<View>> {
        let mut parts = self.parts.write().expect("no holder of this lock panics");
        if parts.contains_key(namespace) {
            return None;
        }
        let view = Arc::new(View::new(self.whole.kind.clone()));
        parts.insert(namespace.to_owned(), view.clone());
        Some(view)
    }

    /// Forgets all that is known by namespace, and says of which.
    pub(crate) fn unite(&self) -> Vec<String> {
        let parts = std::mem::take(&mut *self.parts.write().expect("no holder of this lock panics"));
        parts.into_keys().collect()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.view(&key.namespace)?.get(key)
    }

    /// Whether what is known about a namespace is all there is.
    pub(crate) fn synced(&self, namespace: &str) -> bool {
        self.view(namespace).is_some_and(|view| view.synced())
    }

    /// Whether everything is known that may be. What was known and may no longer be looked at is not.
    pub(crate) fn all_synced(&self) -> bool {
        let is_known = |view: &Arc<View>| view.synced() || (view.forbidden().is_some() && !view.known());
        match self.is_divided() {
            true => {
                let parts = self.parts.read().expect("no holder of this lock panics");
                !self.whole.known() && parts.values().all(is_known)
            }
            false => is_known(&self.whole),
        }
    }

    /// Why a namespace may not be looked into.
    pub(crate) fn forbidden(&self, namespace: &str) -> Option<String> {
        self.view(namespace)?.forbidden()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        if !self.is_divided() {
            return self.whole.keys();
        }
        let parts = self.parts.read().expect("no holder of this lock panics");
        parts.values().flat_map(|view| view.keys()).collect()
    }
}
