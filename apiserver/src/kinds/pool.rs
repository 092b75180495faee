//! Sharing by content: equal definitions are compiled once.
//!
//! A platform may give each of a thousand logical clusters the same fifty definitions. They are compiled once, and
//! logical clusters with equal definitions share the whole set with its documents. The pool holds weak references: a
//! kind is dropped with the last logical cluster that serves it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use openapi::crd::CustomKind;

use crate::kinds::definition::{Content, Definition};
use crate::kinds::{Custom, Kinds};

/// Dead references are removed when a map has doubled since the last time, and not below this size.
const SWEPT_FROM: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Pool {
    kinds: WeakPool<Content, CustomKind>,
    sets: WeakPool<Vec<(Content, bool)>, Kinds>,
}

impl Pool {
    /// Returns the kind of an equal definition, if a logical cluster serves one.
    pub(super) fn cached(&self, definition: &Definition<'_>) -> Option<Arc<CustomKind>> {
        self.kinds.by_content.get(&definition.content).and_then(Weak::upgrade)
    }

    /// Returns the definition with its kind, or with an equal kind that another request added first.
    pub(super) fn custom(&mut self, definition: &Definition<'_>, kind: Arc<CustomKind>) -> Custom {
        let kind = self.kinds.get(&definition.content, || kind);
        Custom { content: definition.content, kind, is_being_deleted: definition.is_being_deleted }
    }

    /// Returns the common set extended by these kinds, in the order of their definitions.
    pub(super) fn set(&mut self, common: &Arc<Kinds>, customs: Vec<Custom>) -> Arc<Kinds> {
        if customs.is_empty() {
            return common.clone();
        }
        let contents = customs.iter().map(|custom| (custom.content, custom.is_being_deleted)).collect();
        self.sets.get(&contents, || Arc::new(Kinds::with(common, customs)))
    }
}

/// Values by content, for as long as they are in use.
#[derive(Debug)]
struct WeakPool<K, V> {
    by_content: HashMap<K, Weak<V>>,
    sweep_at: usize,
}

impl<K, V> Default for WeakPool<K, V> {
    fn default() -> WeakPool<K, V> {
        WeakPool { by_content: HashMap::new(), sweep_at: SWEPT_FROM }
    }
}

impl<K: Eq + Hash + Clone, V> WeakPool<K, V> {
    fn get(&mut self, content: &K, make: impl FnOnce() -> Arc<V>) -> Arc<V> {
        if let Some(found) = self.by_content.get(content).and_then(Weak::upgrade) {
            return found;
        }
        let made = make();
        self.by_content.insert(content.clone(), Arc::downgrade(&made));
        if self.by_content.len() > self.sweep_at {
            self.by_content.retain(|_, weak| weak.strong_count() > 0);
            self.sweep_at = SWEPT_FROM.max(2 * self.by_content.len());
        }
        made
    }
}
