//! The graph of owners and dependents.
//!
//! It contains only objects with owners: their keys and the uids of their owners. Whether an owner exists is read from
//! the store. A uid is valid only within its logical cluster, so no object can own objects of another one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::cluster::Id;
use storage::Key;

/// The uid of an owner, in its logical cluster.
pub(super) type OwnerId = (Id, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Whether the first list is complete. Before that, dependents may be missing.
    pub(super) is_complete: bool,
    dependents: HashMap<OwnerId, HashSet<Key>>,
    owners: HashMap<Key, Vec<OwnerId>>,
    /// Owners that were deleted while they had dependents; kept until they have none.
    absent: HashSet<OwnerId>,
}

impl Graph {
    /// Sets the owners of an object. Empty if it has none or is deleted.
    pub(super) fn set(&mut self, key: &Key, owners: Vec<OwnerId>) {
        let before = match owners.is_empty() {
            true => self.owners.remove(key),
            false => self.owners.insert(key.clone(), owners.clone()),
        };
        for owner in before.into_iter().flatten() {
            if let Some(dependents) = self.dependents.get_mut(&owner) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(&owner);
                    self.absent.remove(&owner);
                }
            }
        }
        for owner in owners {
            self.dependents.entry(owner).or_default().insert(key.clone());
        }
    }

    pub(super) fn dependents(&self, owner: &OwnerId) -> Vec<Key> {
        self.dependents.get(owner).into_iter().flatten().cloned().collect()
    }

    /// Records that an object was deleted, and returns its dependents.
    pub(super) fn lose(&mut self, owner: &OwnerId) -> Vec<Key> {
        let dependents = self.dependents(owner);
        if !dependents.is_empty() {
            self.absent.insert(owner.clone());
        }
        dependents
    }

    /// Reports whether the deletion of an object was observed. Its kind may have been deleted with it, and then it
    /// cannot be looked up.
    pub(super) fn is_absent(&self, owner: &OwnerId) -> bool {
        self.absent.contains(owner)
    }

    pub(super) fn clear(&mut self) {
        *self = Graph::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_follow_the_current_owner_references() {
        let mut graph = Graph::default();
        let owner = |cluster: u64, uid: &str| (Id::new(cluster), Arc::from(uid));
        let (a, b) = (Key::from("a"), Key::from("b"));
        graph.set(&a, vec![owner(1, "x"), owner(1, "y")]);
        graph.set(&b, vec![owner(1, "x")]);
        let dependents = |graph: &Graph, owner: OwnerId| {
            let mut keys = graph.dependents(&owner);
            keys.sort();
            keys
        };
        assert_eq!(dependents(&graph, owner(1, "x")), [a.clone(), b.clone()]);
        assert_eq!(dependents(&graph, owner(2, "x")), [], "a uid counts in its own logical cluster only");
        graph.set(&a, vec![owner(1, "y")]);
        graph.set(&b, Vec::new());
        assert_eq!(dependents(&graph, owner(1, "x")), []);
        assert_eq!(dependents(&graph, owner(1, "y")), std::slice::from_ref(&a));
        assert_eq!((graph.lose(&owner(1, "x")), graph.is_absent(&owner(1, "x"))), (Vec::new(), false));
        assert_eq!((graph.lose(&owner(1, "y")), graph.is_absent(&owner(1, "y"))), (vec![a.clone()], true));
        graph.set(&a, Vec::new());
        let is_empty = graph.owners.is_empty() && graph.dependents.is_empty() && graph.absent.is_empty();
        assert!(is_empty, "forgotten owners use no memory");
    }
}
