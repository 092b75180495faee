//! Sharing by content: what is defined alike is made once.
//!
//! A platform gives each of a thousand logical clusters the same fifty definitions. They are compiled once, and where
//! all of them are equal, so is the whole set, with its documents. The pool holds weak references: what no logical cluster serves any more
//! is gone with the last who did.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use openapi::crd::CustomKind;

use crate::kinds::definition::{Content, Definition};
use crate::kinds::{Custom, Kinds};

/// Sweeps out what is gone when a map has doubled since it was last swept, and not before it is this long.
const SWEPT_FROM: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Pool {
    kinds: Shared<Content, CustomKind>,
    sets: Shared<Vec<(Content, bool)>, Kinds>,
}

impl Pool {
    /// The kind of a definition that is like this one, if a logical cluster serves it.
    pub(super) fn known(&self, definition: &Definition<'_>) -> Option<Arc<CustomKind>> {
        self.kinds.by_content.get(&definition.content).and_then(Weak::upgrade)
    }

    /// A definition with its kind, or with an equal one that another request made first.
    pub(super) fn custom(&mut self, definition: &Definition<'_>, kind: Arc<CustomKind>) -> Custom {
        let kind = self.kinds.get(&definition.content, || kind);
        Custom { content: definition.content, kind, is_leaving: definition.is_leaving }
    }

    /// The common set and these kinds, in the order of their definitions.
    pub(super) fn set(&mut self, common: &Arc<Kinds>, customs: Vec<Custom>) -> Arc<Kinds> {
        if customs.is_empty() {
            return common.clone();
        }
        let contents = customs.iter().map(|custom| (custom.content, custom.is_leaving)).collect();
        self.sets.get(&contents, || Arc::new(Kinds::with(common, customs)))
    }
}

/// Values by their content, for as long as they are in use.
#[derive(Debug)]
struct Shared<K, V> {
    by_content: HashMap<K, Weak<V>>,
    sweep_at: usize,
}

impl<K, V> Default for Shared<K, V> {
    fn default() -> Shared<K, V> {
        Shared { by_content: HashMap::new(), sweep_at: SWEPT_FROM }
    }
}

impl<K: Eq + Hash + Clone, V> Shared<K, V> {
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
