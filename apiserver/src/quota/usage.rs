//! Usage: the objects and bytes of each logical cluster.
//!
//! A logical cluster counts for itself and for all above it, so that a limit on any level is compared with one number.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{Add, Neg, Sub};

use api::cluster::Id;
use storage::{Entry, Revision};

use crate::quota::Limits;

/// A number of objects and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Size {
    pub(crate) objects: i64,
    pub(crate) bytes: i64,
}

impl Size {
    /// Returns the size of an entry. An empty value is a tombstone, for a deleted bootstrap object, and has no size.
    pub(crate) fn of(entry: Option<&Entry>) -> Size {
        match entry.filter(|entry| !entry.value().is_empty()) {
            Some(entry) => Size::new(entry.key().as_bytes().len(), entry.value().len()),
            None => Size::default(),
        }
    }

    /// Returns the size of one object.
    pub(crate) fn new(key_bytes: usize, value_bytes: usize) -> Size {
        let bytes = i64::try_from(key_bytes + value_bytes).unwrap_or(i64::MAX);
        Size { objects: 1, bytes }
    }
}

impl Add for Size {
    type Output = Size;
    fn add(self, other: Size) -> Size {
        Size { objects: self.objects + other.objects, bytes: self.bytes + other.bytes }
    }
}

impl Neg for Size {
    type Output = Size;
    fn neg(self) -> Size {
        Size { objects: -self.objects, bytes: -self.bytes }
    }
}

impl Sub for Size {
    type Output = Size;
    fn sub(self, other: Size) -> Size {
        self + -other
    }
}

#[derive(Debug, Default)]
struct Usage {
    parent: Option<Id>,
    has_record: bool,
    /// Usage of the logical cluster and of all below it.
    used: Size,
    reserved: Size,
}

#[derive(Debug, Default)]
pub(crate) struct UsageTotals {
    clusters: HashMap<Id, Usage>,
    /// The limits of the logical clusters that have any.
    limits: HashMap<Id, Limits>,
    /// Committed reservations by revision, until that revision is counted.
    committed: BTreeMap<Revision, Vec<(Id, Size)>>,
    /// Whether `used` includes the logical clusters below: not during the first read, which is in key order.
    is_begun: bool,
    pub(super) through: Revision,
}

/// An exceeded limit.
#[derive(Debug)]
pub(crate) struct Over {
    limit_name: &'static str,
    requested: i64,
    /// None for a limit further up: an error must not reveal the usage of siblings.
    used: Option<i64>,
    limit: i64,
}

impl fmt::Display for Over {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Over { limit_name, requested, used, limit } = self;
        match used {
            Some(used) => {
                let of = "this logical cluster";
                write!(
                    out,
                    "{of}, requested: {limit_name}={requested}, used: {limit_name}={used}, limited: {limit_name}={limit}"
                )
            }
            None => {
                let of = "an ancestor of this logical cluster";
                write!(out, "{of}, requested: {limit_name}={requested}, limited: {limit_name}={limit}")
            }
        }
    }
}

impl UsageTotals {
    /// Completes the first read, at a revision. Reservations that committed after that revision are kept.
    pub(super) fn begin(&mut self, at: Revision, mut before: UsageTotals) {
        let own: Vec<(Id, Size)> = self.clusters.iter().map(|(id, tally)| (*id, tally.used)).collect();
        self.is_begun = true;
        for (id, used) in own {
            self.above(id)
                .into_iter()
                .for_each(|above| self.tally(above).used = self.tally(above).used + used);
        }
        let reserved = before.clusters.drain().filter(|(_, tally)| tally.reserved != Size::default());
        for (id, tally) in reserved {
            self.tally(id).reserved = tally.reserved;
        }
        self.committed = before.committed;
        self.release_through(at);
    }

    pub(super) fn add_cluster(&mut self, id: Id, parent: Option<Id>) {
        let tally = self.tally(id);
        (tally.parent, tally.has_record) = (parent, true);
    }

    /// Marks a logical cluster as deleted. Its objects are deleted afterwards; its parent is kept until then.
    pub(super) fn remove_cluster(&mut self, id: Id) {
        self.tally(id).has_record = false;
        self.limits.remove(&id);
        self.forget(id);
    }

    pub(super) fn add(&mut self, id: Id, size: Size) {
        if !self.is_begun {
            self.tally(id).used = self.tally(id).used + size;
            return;
        }
        for id in self.line(id) {
            self.tally(id).used = self.tally(id).used + size;
            self.forget(id);
        }
    }

    pub(super) fn limit(&mut self, id: Id, limits: Limits) {
        match limits == Limits::default() {
            true => drop(self.limits.remove(&id)),
            false => drop(self.limits.insert(id, limits)),
        }
    }

    pub(super) fn is_unlimited(&self, id: Id) -> bool {
        self.is_begun && (self.limits.is_empty() || self.limited(id).is_empty())
    }

    /// Returns the logical clusters with limits, from this one upwards.
    pub(super) fn limited(&self, id: Id) -> Vec<(Id, Limits)> {
        if self.limits.is_empty() {
            return Vec::new();
        }
        self.line(id).into_iter().filter_map(|id| Some((id, *self.limits.get(&id)?))).collect()
    }

    /// Reserves quota, if every level has enough. A write that does not grow is always allowed.
    pub(super) fn reserve(&mut self, id: Id, growth: Size) -> Result<(), Over> {
        for (limited, limits) in self.limited(id) {
            let used =
                self.clusters.get(&limited).map_or(Size::default(), |tally| tally.used + tally.reserved);
            let own = |used: i64| (limited == id).then_some(used);
            for (limit_name, requested, used, limit) in [
                ("objects", growth.objects, used.objects, limits.objects),
                ("bytes", growth.bytes, used.bytes, limits.bytes),
            ] {
                if let Some(limit) = limit
                    && requested > 0
                    && used.saturating_add(requested) > limit
                {
                    return Err(Over { limit_name, requested, used: own(used), limit });
                }
            }
        }
        self.add_reserved(id, growth);
        Ok(())
    }

    pub(super) fn release(&mut self, id: Id, growth: Size) {
        self.add_reserved(id, -growth);
    }

    /// Releases a reservation once the revision of its write is counted.
    pub(super) fn release_after(&mut self, at: Revision, id: Id, growth: Size) {
        self.committed.entry(at).or_default().push((id, growth));
    }

    /// Releases the reservations of all writes up to this revision, which are counted now.
    pub(super) fn release_through(&mut self, through: Revision) {
        self.through = self.through.max(through);
        while let Some(first) = self.committed.first_entry().filter(|first| *first.key() <= through) {
            for (id, growth) in first.remove() {
                self.release(id, growth);
            }
        }
    }

    fn add_reserved(&mut self, id: Id, growth: Size) {
        for id in self.line(id) {
            self.tally(id).reserved = self.tally(id).reserved + growth;
            self.forget(id);
        }
    }

    fn tally(&mut self, id: Id) -> &mut Usage {
        self.clusters.entry(id).or_default()
    }

    /// Returns a logical cluster and all above it.
    fn line(&self, id: Id) -> Vec<Id> {
        let mut line = vec![id];
        line.extend(self.above(id));
        line
    }

    fn above(&self, id: Id) -> Vec<Id> {
        let parent = |id: &Id| self.clusters.get(id).and_then(|tally| tally.parent);
        std::iter::successors(parent(&id), parent).collect()
    }

    fn forget(&mut self, id: Id) {
        let empty = |tally: &Usage| {
            !tally.has_record && tally.used == Size::default() && tally.reserved == Size::default()
        };
        if self.clusters.get(&id).is_some_and(empty) {
            self.clusters.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Id = Id::ROOT;

    fn some(objects: i64) -> Size {
        Size { objects, bytes: objects * 10 }
    }

    /// root ─ 1 ─ 2, and 3 next to 1.
    fn family() -> UsageTotals {
        let mut tallies = UsageTotals::default();
        tallies.add(Id::new(2), some(3));
        tallies.add_cluster(ROOT, None);
        tallies.add_cluster(Id::new(1), Some(ROOT));
        tallies.add_cluster(Id::new(2), Some(Id::new(1)));
        tallies.add_cluster(Id::new(3), Some(ROOT));
        tallies.begin(Revision(1), UsageTotals::default());
        tallies
    }

    fn used(tallies: &UsageTotals) -> [i64; 4] {
        [0, 1, 2, 3].map(|id| tallies.clusters.get(&Id::new(id)).map_or(0, |tally| tally.used.objects))
    }

    #[test]
    fn usage_counts_towards_all_ancestors() {
        let mut tallies = family();
        assert_eq!(used(&tallies), [3, 3, 3, 0]);
        tallies.add(Id::new(1), some(2));
        tallies.add(Id::new(3), some(1));
        assert_eq!(used(&tallies), [6, 5, 3, 1]);
        // Objects of a deleted logical cluster are deleted after it.
        tallies.remove_cluster(Id::new(2));
        tallies.add(Id::new(2), -some(3));
        assert_eq!(used(&tallies), [3, 2, 0, 1]);
        assert!(!tallies.clusters.contains_key(&Id::new(2)), "its usage is removed");
    }

    #[test]
    fn a_limit_includes_all_descendants() {
        let mut tallies = family();
        assert!(tallies.is_unlimited(Id::new(2)));
        tallies.limit(Id::new(1), Limits { objects: Some(4), ..Limits::default() });
        assert!(tallies.is_unlimited(Id::new(3)) && !tallies.is_unlimited(Id::new(2)));
        tallies.reserve(Id::new(2), some(1)).unwrap();
        let over = tallies.reserve(Id::new(2), some(1)).unwrap_err().to_string();
        assert_eq!(over, "an ancestor of this logical cluster, requested: objects=1, limited: objects=4");
        let over = tallies.reserve(Id::new(1), some(1)).unwrap_err().to_string();
        assert_eq!(over, "this logical cluster, requested: objects=1, used: objects=4, limited: objects=4");
        // A write that does not grow is always allowed; logical clusters that are not below the limit are not affected.
        tallies.reserve(Id::new(2), Size { objects: 0, bytes: -5 }).unwrap();
        tallies.reserve(Id::new(3), some(100)).unwrap();
        tallies.limit(Id::new(1), Limits::default());
        tallies.reserve(Id::new(2), some(100)).unwrap();
    }

    #[test]
    fn a_reservation_counts_until_it_is_released_or_its_write_is_counted() {
        let mut tallies = family();
        tallies.limit(Id::new(2), Limits { bytes: Some(50), ..Limits::default() });
        tallies.reserve(Id::new(2), some(2)).unwrap();
        tallies.reserve(Id::new(2), some(1)).unwrap_err();
        tallies.release(Id::new(2), some(2));
        tallies.reserve(Id::new(2), some(2)).unwrap();
        // Committed at revision 7, counted later.
        tallies.release_after(Revision(7), Id::new(2), some(2));
        tallies.release_through(Revision(6));
        tallies.reserve(Id::new(2), some(1)).unwrap_err();
        tallies.add(Id::new(2), some(2));
        tallies.release_through(Revision(7));
        tallies.reserve(Id::new(2), some(1)).unwrap_err();
        tallies.add(Id::new(2), -some(1));
        tallies.reserve(Id::new(2), some(1)).unwrap();
        assert_eq!(used(&tallies)[2], 4);
    }

    #[test]
    fn a_recount_keeps_outstanding_reservations() {
        let mut tallies = family();
        tallies.limit(Id::new(2), Limits { objects: Some(4), ..Limits::default() });
        tallies.reserve(Id::new(2), some(1)).unwrap();
        let mut anew = family();
        anew.limit(Id::new(2), Limits { objects: Some(4), ..Limits::default() });
        anew.is_begun = false;
        anew.clusters.values_mut().for_each(|tally| tally.used = Size::default());
        anew.add(Id::new(2), some(3));
        anew.begin(Revision(9), tallies);
        anew.reserve(Id::new(2), some(1)).unwrap_err();
        anew.release(Id::new(2), some(1));
        anew.reserve(Id::new(2), some(1)).unwrap();
    }
}
