//! The most recent events, in order, within a bound.

use std::collections::VecDeque;

use super::EventSpan;
use crate::range::Range;
use crate::store::{Event, Revision};

/// Events scanned under one read lock. Twenty nanoseconds each: a publisher waits 80 µs at most.
const SCANNED_MAX: usize = 4096;

/// Capacity that is never released: some hundred kilobytes.
const CAPACITY_MIN: usize = 4096;

/// How much of the past stays in memory. Older events are read from the engine's history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailLimits {
    pub(crate) events: usize,
    /// Bytes of overwritten and deleted values, which only an event still holds.
    pub(crate) bytes: usize,
}

impl Default for TailLimits {
    /// 100,000 events are 5 minutes of 300 writes a second; 64 MiB hold 30,000 overwritten values of 2 KB.
    fn default() -> Self {
        TailLimits { events: 100_000, bytes: 64 << 20 }
    }
}

#[derive(Debug)]
pub(super) struct Tail {
    /// The tail has every event after this revision, up to `head`.
    from: Revision,
    head: Revision,
    events: VecDeque<Event>,
    bytes: usize,
    limits: TailLimits,
}

pub(super) enum Scan {
    Found(EventSpan),
    TooOld,
}

impl Tail {
    pub(super) fn new(head: Revision, limits: TailLimits) -> Self {
        Tail { from: head, head, events: VecDeque::new(), bytes: 0, limits }
    }

    pub(super) fn push(&mut self, events: Vec<Event>, through: Revision) {
        for event in events {
            self.bytes += weight(&event);
            self.events.push_back(event);
        }
        self.head = through;
        while self.events.len() > self.limits.events || self.bytes > self.limits.bytes {
            self.drop_oldest();
        }
    }

    pub(super) fn forget(&mut self, through: Revision) {
        while self.events.front().is_some_and(|event| event.revision <= through) {
            self.drop_oldest();
        }
        self.from = self.from.max(through.min(self.head));
        // Releases the capacity of a past burst.
        if self.events.capacity() > CAPACITY_MIN.max(4 * self.events.len()) {
            self.events.shrink_to(CAPACITY_MIN.max(2 * self.events.len()));
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= weight(&event);
            self.from = event.revision;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn scan(&self, range: &Range, after: Revision, until: Revision, limit: usize) -> Scan {
        if after < self.from {
            return Scan::TooOld;
        }
        let first = self.events.partition_point(|event| event.revision <= after);
        let mut found = Vec::new();
        let mut through = after;
        for event in self.events.range(first..).take(SCANNED_MAX) {
            if event.revision > until || found.len() == limit {
                break;
            }
            through = event.revision;
            if range.contains(event.key.as_bytes()) {
                found.push(event.clone());
            }
        }
        let next = self.events.partition_point(|event| event.revision <= through);
        if self.events.get(next).is_none_or(|event| event.revision > until) {
            // There are no more events up to `until`, even if the last event is older.
            through = until;
        }
        Scan::Found(EventSpan { events: found, through })
    }
}

fn weight(event: &Event) -> usize {
    event.previous.as_ref().map_or(0, |entry| entry.value().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a tail with one event per revision; every tenth is of key `mine`.
    fn tail(events: u64) -> Tail {
        let mut tail = Tail::new(Revision::ZERO, TailLimits { events: 1_000_000, bytes: 1 });
        let key = |revision| if revision % 10 == 0 { "mine" } else { "theirs" };
        let event = |revision| Event {
            revision: Revision(revision),
            key: key(revision).into(),
            current: None,
            previous: None,
        };
        tail.push((1..=events).map(event).collect(), Revision(events + 5));
        tail
    }

    /// Whether its limit, the scan bound or `until` ends a scan, `through` is correct: resuming from there misses no
    /// event and repeats none.
    #[test]
    fn a_scan_can_be_resumed_from_its_through() {
        let tail = tail(10_000);
        let check = |range: Range, limit: usize, until: u64, scans: usize, found: usize| {
            let (mut reached, mut events, mut times) = (Revision::ZERO, Vec::new(), 0);
            while reached < Revision(until) {
                let Scan::Found(span) = tail.scan(&range, reached, Revision(until), limit) else {
                    panic!("{reached:?} is in the tail");
                };
                assert!(span.through > reached && span.events.len() <= limit);
                (reached, times) = (span.through, times + 1);
                events.extend(span.events);
            }
            assert!(events.is_sorted_by(|one, next| one.revision < next.revision));
            assert_eq!(
                (reached, times, events.len()),
                (Revision(until), scans, found),
                "{range:?} by {limit}"
            );
        };
        check(Range::all(), 512, 10_000, 20, 10_000);
        check(Range::all(), 5_000, 10_000, 3, 10_000);
        check(Range::key("mine"), 512, 10_000, 3, 1_000);
        check(Range::key("mine"), 100, 10_000, 10, 1_000);
        check(Range::key("absent"), 512, 10_005, 3, 0);
        check(Range::key("mine"), 512, 95, 1, 9);
    }

    #[test]
    fn revisions_dropped_from_the_tail_are_too_old() {
        let mut tail = tail(100);
        tail.limits.events = 10;
        tail.push(Vec::new(), Revision(110));
        let found = |tail: &Tail, after| {
            matches!(tail.scan(&Range::all(), Revision(after), Revision(110), 1), Scan::Found(_))
        };
        assert!(!found(&tail, 89) && found(&tail, 90), "90 was dropped, 91 is kept");
        tail.forget(Revision(u64::MAX));
        assert!(!found(&tail, 109) && found(&tail, 110), "no revision beyond the head is dropped");
    }
}
