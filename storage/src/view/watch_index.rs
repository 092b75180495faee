//! An index of watches by key.
//!
//! A store may have a million idle watches; a write must find the few whose range contains its key without scanning the
//! others. Every range has a stem, the common prefix of all its keys. So the watches of a key are found by looking up
//! each prefix of the key whose length is in use: some dozen lookups, however many watches there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::range::Range;
use crate::store::{Event, Revision};

/// Stands for no revision, and is later than any.
const NONE: u64 = u64::MAX;

/// The revisions between which a watch has unread events, and its wake-up. It never holds events.
#[derive(Debug)]
pub(crate) struct WatchSlot {
    pub(crate) range: Range,
    /// The first matching revision since the last [`WatchSlot::take`], or [`NONE`].
    first: AtomicU64,
    /// The last matching revision. Stored before `first` and loaded after it, so that a watcher that takes `first` also
    /// sees every event that found it already set.
    last: AtomicU64,
    notify: Notify,
    /// The position of this slot among those of its stem. Guarded by the lock around [`WatchIndex`].
    place: AtomicUsize,
    /// The last publication this slot was collected for. Guarded likewise.
    publication: AtomicU64,
}

impl WatchSlot {
    /// Takes the marks: all matching events since the last call lie between the two revisions. The caller must store
    /// them before its next await.
    pub(crate) fn take(&self) -> Option<(Revision, Revision)> {
        match self.first.swap(NONE, Ordering::AcqRel) {
            NONE => None,
            first => Some((Revision(first), Revision(self.last.load(Ordering::Acquire)))),
        }
    }

    fn mark(&self, revision: Revision) {
        self.last.store(revision.0, Ordering::Release);
        // Revisions grow, so the smallest is the first. A compare-and-exchange is not enough: one that fails writes
        // nothing, so the next watcher to take `first` might not see the `last` stored before it.
        self.first.fetch_min(revision.0, Ordering::AcqRel);
    }

    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }
}

#[derive(Default, Debug)]
pub(super) struct WatchIndex {
    by_stem: HashMap<Box<[u8]>, Vec<Arc<WatchSlot>>>,
    /// How many stems have each length.
    stem_lens: BTreeMap<usize, usize>,
    publications: u64,
}

impl WatchIndex {
    pub(super) fn register(&mut self, range: Range) -> Arc<WatchSlot> {
        let stem: Box<[u8]> = range.stem().into();
        let slots = match self.by_stem.entry(stem) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                *self.stem_lens.entry(vacant.key().len()).or_default() += 1;
                vacant.insert(Vec::with_capacity(1))
            }
        };
        let slot = Arc::new(WatchSlot {
            range,
            first: AtomicU64::new(NONE),
            last: AtomicU64::new(0),
            notify: Notify::new(),
            place: AtomicUsize::new(slots.len()),
            publication: AtomicU64::new(0),
        });
        slots.push(slot.clone());
        slot
    }

    pub(super) fn unregister(&mut self, slot: &Arc<WatchSlot>) {
        let stem = slot.range.stem();
        let Some(slots) = self.by_stem.get_mut(stem) else { return };
        let place = slot.place.load(Ordering::Relaxed);
        slots.swap_remove(place);
        if let Some(moved) = slots.get(place) {
            moved.place.store(place, Ordering::Relaxed);
        }
        if slots.is_empty() {
            self.by_stem.remove(stem);
            if let Some(count) = self.stem_lens.get_mut(&stem.len()) {
                *count -= 1;
                if *count == 0 {
                    self.stem_lens.remove(&stem.len());
                }
            }
        }
    }

    /// Marks every watch whose range contains an event, and returns those watches, each once.
    pub(super) fn mark(&mut self, events: &[Event]) -> Vec<Arc<WatchSlot>> {
        self.publications += 1;
        let mut matching = Vec::new();
        for event in events {
            let key = event.key.as_bytes();
            for len in self.stem_lens.range(..=key.len()).map(|(len, _)| *len) {
                for slot in self.by_stem.get(&key[..len]).into_iter().flatten() {
                    if !slot.range.contains(key) {
                        continue;
                    }
                    slot.mark(event.revision);
                    if slot.publication.swap(self.publications, Ordering::Relaxed) != self.publications {
                        matching.push(slot.clone());
                    }
                }
            }
        }
        matching
    }

    /// Marks every watch, and returns all of them.
    #[cfg_attr(not(feature = "etcd"), allow(dead_code))]
    pub(super) fn mark_all(&mut self, revision: Revision) -> Vec<Arc<WatchSlot>> {
        let all: Vec<_> = self.by_stem.values().flatten().cloned().collect();
        all.iter().for_each(|slot| slot.mark(revision));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Key;

    fn event(key: &str, revision: u64) -> Event {
        Event { revision: Revision(revision), key: Key::from(key), current: None, previous: None }
    }

    #[test]
    fn only_the_watches_of_a_key_are_woken_and_only_once() {
        let mut index = WatchIndex::default();
        let all = index.register(Range::all());
        let pods = index.register(Range::prefix("pods/a/"));
        let one = index.register(Range::key("pods/a/x"));
        let other = index.register(Range::prefix("pods/b/"));
        let some_pods = index.register(Range::between("pods/a/b", "pods/a/k"));

        let woken = index.mark(&[event("pods/a/x", 7), event("pods/a/y", 8)]);
        assert_eq!(woken.len(), 3, "all, pods and one: {woken:?}");
        let woken = index.mark(&[event("pods/a/c", 9)]);
        assert_eq!(woken.len(), 3, "all, pods and part: {woken:?}");
        assert_eq!(pods.take(), Some((Revision(7), Revision(9))));
        assert_eq!(pods.take(), None);
        assert_eq!(one.take(), Some((Revision(7), Revision(7))));
        assert_eq!((some_pods.take(), other.take()), (Some((Revision(9), Revision(9))), None));

        for slot in [all, pods, one, other, some_pods] {
            index.unregister(&slot);
        }
        assert!(index.by_stem.is_empty() && index.stem_lens.is_empty());
    }

    #[test]
    fn unregistering_one_of_many_leaves_the_others() {
        let mut index = WatchIndex::default();
        let slots: Vec<_> = (0..5).map(|_| index.register(Range::prefix("p/"))).collect();
        index.unregister(&slots[1]);
        index.unregister(&slots[4]);
        assert_eq!(index.mark(&[event("p/1", 1)]).len(), 3);
        [0, 2, 3].into_iter().for_each(|kept| index.unregister(&slots[kept]));
        assert!(index.by_stem.is_empty());
    }
}
