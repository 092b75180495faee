//! A bounded pool that several owners share.
//!
//! ```text
//!   owner a  ■ ■ ■ ■ ■ ■   ◄─ has most: its least recently used entry is evicted when the pool is full
//!   owner b  ■ ■
//!   owner c  ■             ◄─ a new owner always gets in
//! ```
//!
//! An entry has an owner and a weight. If an owner exceeds its own bound, its least recently used entry is evicted. If
//! the pool exceeds its bound, the owner with the most weight loses an entry. So no owner can keep others out by
//! holding on to its entries, and an owner with little weight loses nothing to one with much. Busy entries are evicted
//! last.
//!
//! An owner uses memory only while it has entries, and every operation takes logarithmic time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The maximum weights of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) per_owner: usize,
    pub(crate) total: usize,
}

#[derive(Debug)]
pub(crate) struct FairPool<K>(Mutex<PoolEntries<K>>);

#[derive(Debug)]
struct PoolEntries<K> {
    bounds: Bounds,
    /// Counts uses, so that all ranks differ.
    clock: u64,
    weight: usize,
    by_number: HashMap<u64, PoolEntry<K>>,
    by_owner: HashMap<K, Owned>,
    /// The owner with the most weight comes last.
    by_weight: BTreeSet<(usize, K)>,
}

#[derive(Debug)]
struct PoolEntry<K> {
    owner: K,
    weight: usize,
    rank: Rank,
    evicted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Owned {
    weight: usize,
    by_rank: BTreeMap<Rank, u64>,
}

/// The entry with the lowest rank is evicted first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    is_busy: bool,
    used: u64,
}

/// An entry of a pool, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Lease<K: Clone + Ord + Hash> {
    pool: Arc<FairPool<K>>,
    number: u64,
}

impl<K: Clone + Ord + Hash> FairPool<K> {
    pub(crate) fn new(bounds: Bounds) -> FairPool<K> {
        FairPool(Mutex::new(PoolEntries {
            bounds,
            clock: 0,
            weight: 0,
            by_number: HashMap::new(),
            by_owner: HashMap::new(),
            by_weight: BTreeSet::new(),
        }))
    }

    /// Adds an entry, and evicts others until its weight fits. `evicted` is notified when this entry is evicted.
    pub(crate) fn enter(self: &Arc<Self>, owner: K, weight: usize, evicted: Arc<Notify>) -> Lease<K> {
        let mut entries = self.lock();
        entries.evict_for(&owner, weight);
        let rank = entries.tick(false);
        entries.insert(rank.used, PoolEntry { owner, weight, rank, evicted });
        Lease { pool: self.clone(), number: rank.used }
    }

    /// Evicts the next entry in order. Returns false if the pool is empty.
    pub(crate) fn evict_one(&self) -> bool {
        let mut entries = self.lock();
        let heaviest = entries.by_weight.last().map(|(_, owner)| owner.clone());
        if let Some(owner) = &heaviest {
            entries.evict_from(owner);
        }
        heaviest.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, PoolEntries<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Ord + Hash> Lease<K> {
    /// Makes this the most recently used entry of its owner, among the busy or the idle ones.
    pub(crate) fn mark(&self, is_busy: bool) {
        let mut entries = self.pool.lock();
        if let Some(mut entry) = entries.remove(self.number) {
            entry.rank = entries.tick(is_busy);
            entries.insert(self.number, entry);
        }
    }

    /// Adds to the weight of this entry. If that exceeds a bound, this entry may be the one that is evicted.
    pub(crate) fn grow(&self, added: usize) {
        let mut entries = self.pool.lock();
        let Some(owner) = entries.by_number.get(&self.number).map(|entry| entry.owner.clone()) else {
            return;
        };
        entries.evict_for(&owner, added);
        if let Some(mut entry) = entries.remove(self.number) {
            entry.weight += added;
            entries.insert(self.number, entry);
        }
    }
}

impl<K: Clone + Ord + Hash> Drop for Lease<K> {
    fn drop(&mut self) {
        self.pool.lock().remove(self.number);
    }
}

impl<K: Clone + Ord + Hash> PoolEntries<K> {
    fn tick(&mut self, is_busy: bool) -> Rank {
        self.clock += 1;
        Rank { is_busy, used: self.clock }
    }

    /// Evicts entries until `owner` can have this much more weight.
    fn evict_for(&mut self, owner: &K, added: usize) {
        loop {
            let held_weight = self.by_owner.get(owner).map_or(0, |owned| owned.weight);
            let from = if held_weight > 0 && held_weight + added > self.bounds.per_owner {
                owner.clone()
            } else if self.weight + added > self.bounds.total
                && let Some((_, heaviest)) = self.by_weight.last()
            {
                heaviest.clone()
            } else {
                return;
            };
            self.evict_from(&from);
        }
    }

    fn evict_from(&mut self, owner: &K) {
        let first = self.by_owner.get(owner).and_then(|owned| owned.by_rank.values().next().copied());
        if let Some(evicted) = first.and_then(|number| self.remove(number)) {
            evicted.evicted.notify_one();
        }
    }

    fn insert(&mut self, number: u64, entry: PoolEntry<K>) {
        let PoolEntry { owner, weight, rank, .. } = &entry;
        let owned = self.by_owner.entry(owner.clone()).or_default();
        self.by_weight.remove(&(owned.weight, owner.clone()));
        owned.weight += weight;
        owned.by_rank.insert(*rank, number);
        self.by_weight.insert((owned.weight, owner.clone()));
        self.weight += weight;
        self.by_number.insert(number, entry);
    }

    fn remove(&mut self, number: u64) -> Option<PoolEntry<K>> {
        let entry = self.by_number.remove(&number)?;
        let PoolEntry { owner, weight, rank, .. } = &entry;
        if let Some(owned) = self.by_owner.get_mut(owner) {
            self.by_weight.remove(&(owned.weight, owner.clone()));
            owned.weight -= weight;
            owned.by_rank.remove(rank);
            match owned.by_rank.is_empty() {
                true => drop(self.by_owner.remove(owner)),
                false => drop(self.by_weight.insert((owned.weight, owner.clone()))),
            }
        }
        self.weight -= weight;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// An entry, and its notification of eviction.
    struct Member(Lease<&'static str>, Arc<Notify>);

    impl Member {
        fn enter(pool: &Arc<FairPool<&'static str>>, owner: &'static str, weight: usize) -> Member {
            let evicted = Arc::new(Notify::new());
            Member(pool.enter(owner, weight, evicted.clone()), evicted)
        }

        fn is_evicted(&self) -> bool {
            let evicted = std::pin::pin!(self.1.notified());
            evicted.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        }
    }

    fn pool(per_owner: usize, total: usize) -> Arc<FairPool<&'static str>> {
        Arc::new(FairPool::new(Bounds { per_owner, total }))
    }

    #[test]
    fn an_owner_over_its_limit_loses_its_least_recently_used_entry() {
        let pool = pool(2, 100);
        let [first, second] = [0; 2].map(|_| Member::enter(&pool, "a", 1));
        first.0.mark(false);
        let third = Member::enter(&pool, "a", 1);
        assert!(second.is_evicted() && !first.is_evicted() && !third.is_evicted());
        // Busy entries are evicted last, no matter how long ago they were used.
        first.0.mark(true);
        let fourth = Member::enter(&pool, "a", 1);
        assert!(third.is_evicted() && !first.is_evicted() && !fourth.is_evicted());
        fourth.0.mark(true);
        let fifth = Member::enter(&pool, "a", 1);
        assert!(first.is_evicted() && !fourth.is_evicted() && !fifth.is_evicted());
    }

    #[test]
    fn a_full_pool_evicts_from_the_owner_with_the_most_weight() {
        let pool = pool(10, 5);
        let small = Member::enter(&pool, "small", 1);
        let large: Vec<_> = (0..4).map(|_| Member::enter(&pool, "large", 1)).collect();
        let newcomers: Vec<_> = (0..2).map(|_| Member::enter(&pool, "newcomer", 1)).collect();
        let evicted: Vec<_> = large.iter().map(Member::is_evicted).collect();
        assert_eq!(evicted, [true, true, false, false]);
        assert!(!small.is_evicted() && !newcomers.iter().any(Member::is_evicted));
        drop((small, large, newcomers));
        let entries = pool.lock();
        assert_eq!((entries.weight, entries.by_number.len(), entries.by_owner.len()), (0, 0, 0));
        assert!(entries.by_weight.is_empty());
    }

    #[test]
    fn a_growing_entry_evicts_other_entries_or_itself() {
        let pool = pool(100, 150);
        let [old, new] = [0; 2].map(|_| Member::enter(&pool, "a", 10));
        new.0.grow(70);
        assert!(!old.is_evicted());
        new.0.grow(20);
        assert!(old.is_evicted() && !new.is_evicted());
        let other = Member::enter(&pool, "b", 40);
        other.0.grow(20);
        assert!(new.is_evicted(), "a holds most");
        other.0.grow(60);
        assert!(other.is_evicted(), "no other owner can be evicted");
        assert_eq!(pool.lock().weight, 0);
    }

    #[test]
    fn an_entry_can_be_evicted_without_adding_another() {
        let pool = pool(10, 10);
        pool.evict_one();
        let only = Member::enter(&pool, "a", 1);
        pool.evict_one();
        assert!(only.is_evicted());
    }
}
