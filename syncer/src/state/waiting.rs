//! Downstream objects that wait until the syncer has observed their owner.

use std::collections::{BTreeSet, HashMap};

use crate::state::context::ObjectId;

/// The limit of waiting objects, because namespaces with placed objects contain few others. An object beyond it finds
/// its owner at the next relist.
const WAITING_MAX: usize = 100_000;

/// Waiting objects by the downstream uid of the owner they wait for, and these uids by waiting object.
#[derive(Debug, Default)]
pub(crate) struct WaitingObjects {
    by_uid: HashMap<String, BTreeSet<ObjectId>>,
    by_id: HashMap<ObjectId, BTreeSet<String>>,
    count: usize,
}

impl WaitingObjects {
    pub(crate) fn wait(&mut self, uid: &str, id: &ObjectId) {
        if self.count >= WAITING_MAX {
            return;
        }
        if self.by_uid.entry(uid.to_owned()).or_default().insert(id.clone()) {
            self.by_id.entry(id.clone()).or_default().insert(uid.to_owned());
            self.count += 1;
        }
    }

    /// Removes and returns the objects that waited for an owner. They may still wait for other owners.
    pub(crate) fn wake(&mut self, uid: &str) -> BTreeSet<ObjectId> {
        let woken = self.by_uid.remove(uid).unwrap_or_default();
        for id in &woken {
            drop_from(&mut self.by_id, id, uid);
        }
        self.count -= woken.len();
        woken
    }

    /// Removes an object that was deleted. Most Events in a namespace concern objects that are not ours; without this
    /// they would fill the index.
    pub(crate) fn remove(&mut self, id: &ObjectId) {
        let uids = self.by_id.remove(id).unwrap_or_default();
        for uid in &uids {
            drop_from(&mut self.by_uid, uid, id);
        }
        self.count -= uids.len();
    }
}

/// Removes an element of a set, and the set when it is empty.
fn drop_from<K: Eq + std::hash::Hash, T: Ord + std::borrow::Borrow<Q>, Q: Ord + ?Sized>(
    sets: &mut HashMap<K, BTreeSet<T>>,
    key: &K,
    one: &Q,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(one);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::kinds::KindName;
    use controller::informer::Key;

    fn event(name: &str) -> ObjectId {
        ObjectId::new(&KindName::new("", "events"), Key::new("shop", name))
    }

    /// Events about foreign objects stayed in the index after their deletion. After a hundred thousand of them, an
    /// object that was read before its owner was never projected.
    #[test]
    fn a_deleted_object_frees_its_entry_for_others() {
        let mut waiting = WaitingObjects::default();
        for number in 0..WAITING_MAX + 10 {
            let theirs = event(&format!("theirs-{number}"));
            waiting.wait(&format!("uid-{number}"), &theirs);
            waiting.wait("another", &theirs);
            waiting.remove(&theirs);
        }
        waiting.wait("ours", &event("early"));
        assert_eq!(waiting.wake("ours"), BTreeSet::from([event("early")]));
        assert!(waiting.count == 0 && waiting.by_uid.is_empty() && waiting.by_id.is_empty());
    }

    #[test]
    fn an_object_that_waits_for_two_owners_is_woken_by_either() {
        let mut waiting = WaitingObjects::default();
        for uid in ["one", "two", "one"] {
            waiting.wait(uid, &event("a"));
        }
        waiting.wait("one", &event("b"));
        assert_eq!(waiting.count, 3);
        assert_eq!(waiting.wake("one"), BTreeSet::from([event("a"), event("b")]));
        assert_eq!(waiting.wake("one"), BTreeSet::new());
        assert_eq!(waiting.wake("two"), BTreeSet::from([event("a")]));
        waiting.remove(&event("a"));
        assert!(waiting.count == 0 && waiting.by_id.is_empty());
    }
}
