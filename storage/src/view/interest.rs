//! Which watches a change concerns.
//!
//! A store may have a million idle watches; a write must find the few it concerns without looking at the
//! others. Every range has a stem, the bytes all its keys begin with. So the watches of a key are found by
//! looking up each of the key's beginnings whose length is in use: some dozen lookups, however many watches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::range::Range;
use crate::store::{Event, Revision};

/// No revision: later than any.
const NONE: u64 = u64::MAX;

/// A watch's letter box: whether something happened, and between which revisions. Never a queue of events.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) range: Range,
    /// The first revision of interest since the watcher last looked, or [`NONE`].
    first: AtomicU64,
    /// The last revision of interest ever. Set before `first`, read after it: whoever takes `first` sees
    /// every event that found it already set.
    last: AtomicU64,
    bell: Notify,
    /// Where this slot stands among those of its stem. Guarded by the lock around [`Interest`].
    place: AtomicUsize,
    /// The last publication this slot was collected for. Guarded likewise.
    publication: AtomicU64,
}

impl Slot {
    /// Takes what is marked: everything of interest since the last call lies between the two revisions. The
    /// caller must remember them before it waits for anything.
    pub(crate) fn take(&self) -> Option<(Revision, Revision)> {
        match self.first.swap(NONE, Ordering::AcqRel) {
            NONE => None,
            first => Some((Revision(first), Revision(self.last.load(Ordering::Acquire)))),
        }
    }

    fn mark(&self, revision: Revision) {
        self.last.store(revision.0, Ordering::Release);
        // Revisions grow, so the smallest is the first. A compare-and-exchange would not do: one that fails
        // writes nothing, so whoever takes `first` next need not see the `last` stored before it.
        self.first.fetch_min(revision.0, Ordering::AcqRel);
    }

    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    pub(crate) fn wake(&self) {
        self.bell.notify_one();
    }
}

#[derive(Default, Debug)]
pub(super) struct Interest {
    by_stem: HashMap<Box<[u8]>, Vec<Arc<Slot>>>,
    /// How many stems have each length.
    stem_lens: BTreeMap<usize, usize>,
    publications: u64,
}

impl Interest {
    pub(super) fn register(&mut self, range: Range) -> Arc<Slot> {
        let stem: Box<[u8]> = range.stem().into();
        let slots = match self.by_stem.entry(stem) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                *self.stem_lens.entry(vacant.key().len()).or_default() += 1;
                vacant.insert(Vec::with_capacity(1))
            }
        };
        let slot = Arc::new(Slot {
            range,
            first: AtomicU64::new(NONE),
            last: AtomicU64::new(0),
            bell: Notify::new(),
            place: AtomicUsize::new(slots.len()),
            publication: AtomicU64::new(0),
        });
        slots.push(slot.clone());
        slot
    }

    pub(super) fn unregister(&mut self, slot: &Arc<Slot>) {
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

    /// Marks every watch the events concern, and returns those, each once.
    pub(super) fn mark(&mut self, events: &[Event]) -> Vec<Arc<Slot>> {
        self.publications += 1;
        let mut concerned = Vec::new();
        for event in events {
            let key = event.key.as_bytes();
            for len in self.stem_lens.range(..=key.len()).map(|(len, _)| *len) {
                for slot in self.by_stem.get(&key[..len]).into_iter().flatten() {
                    if !slot.range.contains(key) {
                        continue;
                    }
                    slot.mark(event.revision);
                    if slot.publication.swap(self.publications, Ordering::Relaxed) != self.publications {
                        concerned.push(slot.clone());
                    }
                }
            }
        }
        concerned
    }

    /// Marks every watch, and returns all of them.
    #[cfg_attr(not(feature = "etcd"), allow(dead_code))]
    pub(super) fn mark_all(&mut self, revision: Revision) -> Vec<Arc<Slot>> {
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
        let mut interest = Interest::default();
        let all = interest.register(Range::all());
        let pods = interest.register(Range::prefix("pods/a/"));
        let one = interest.register(Range::key("pods/a/x"));
        let other = interest.register(Range::prefix("pods/b/"));
        let part = interest.register(Range::between("pods/a/b", "pods/a/k"));

        let woken = interest.mark(&[event("pods/a/x", 7), event("pods/a/y", 8)]);
        assert_eq!(woken.len(), 3, "all, pods and one: {woken:?}");
        let woken = interest.mark(&[event("pods/a/c", 9)]);
        assert_eq!(woken.len(), 3, "all, pods and part: {woken:?}");
        assert_eq!(pods.take(), Some((Revision(7), Revision(9))));
        assert_eq!(pods.take(), None);
        assert_eq!(one.take(), Some((Revision(7), Revision(7))));
        assert_eq!((part.take(), other.take()), (Some((Revision(9), Revision(9))), None));

        for slot in [all, pods, one, other, part] {
            interest.unregister(&slot);
        }
        assert!(interest.by_stem.is_empty() && interest.stem_lens.is_empty());
    }

    #[test]
    fn unregistering_one_of_many_leaves_the_others() {
        let mut interest = Interest::default();
        let slots: Vec<_> = (0..5).map(|_| interest.register(Range::prefix("p/"))).collect();
        interest.unregister(&slots[1]);
        interest.unregister(&slots[4]);
        assert_eq!(interest.mark(&[event("p/1", 1)]).len(), 3);
        [0, 2, 3].into_iter().for_each(|kept| interest.unregister(&slots[kept]));
        assert!(interest.by_stem.is_empty());
    }
}
