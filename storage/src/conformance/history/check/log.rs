//! All writes of a run in the order of their revisions, each with the call that requested it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Call, History, Operation, Outcome, Violation};
use crate::range::Key;
use crate::store::{Change, Entry, Event, Expect, Revision};

pub(super) struct Log {
    start: Revision,
    events: BTreeMap<Revision, Event>,
    acknowledged: HashSet<Revision>,
    /// The write of each call, by the index of the call.
    by_call: HashMap<usize, Revision>,
    /// The versions of each key, each with its first revision.
    versions: BTreeMap<Key, Vec<(Revision, Option<Entry>)>>,
}

impl Log {
    /// Collects the acknowledged writes and the delivered events, and finds the call of each.
    pub(super) fn of(history: &History) -> (Log, Vec<Violation>) {
        let mut log = Log {
            start: history.start.revision,
            events: BTreeMap::new(),
            acknowledged: HashSet::new(),
            by_call: HashMap::new(),
            versions: BTreeMap::new(),
        };
        let mut violations = Vec::new();
        for (place, call) in history.calls.iter().enumerate() {
            violations.extend(log.add_acknowledged(place, call));
        }
        let batches = history.watches.iter().flat_map(|watched| &watched.batches);
        for event in batches.flat_map(|(_, batch)| &batch.events) {
            violations.extend(log.add(event));
        }
        violations.extend(log.find_unacknowledged_calls(history));
        log.collect_versions(history);
        violations.dedup();
        (log, violations)
    }

    fn add(&mut self, event: &Event) -> Option<Violation> {
        let known = self.events.entry(event.revision).or_insert_with(|| event.clone());
        (known != event).then(|| Violation::ReusedRevision { one: known.clone(), other: event.clone() })
    }

    fn add_acknowledged(&mut self, place: usize, call: &Call) -> Vec<Violation> {
        let Operation::Commit { key, expect, change, outcome: Outcome::Committed(event) } = &call.operation
        else {
            return Vec::new();
        };
        let mut violations = Vec::new();
        if !fits(event, key, *expect, change) {
            let request = format!("{change:?} of {key:?} expecting {expect:?}");
            violations.push(Violation::WrongAnswer { request, event: event.clone() });
        }
        // Even an equal event: two calls cannot both have written it.
        if !self.acknowledged.insert(event.revision) {
            let one = self.events[&event.revision].clone();
            violations.push(Violation::ReusedRevision { one, other: event.clone() });
            return violations;
        }
        self.by_call.insert(place, event.revision);
        violations.extend(self.add(event));
        violations
    }

    /// Finds the call of every unacknowledged write among the calls without a result.
    fn find_unacknowledged_calls(&mut self, history: &History) -> Vec<Violation> {
        let mut open: Vec<_> = (history.calls.iter().enumerate())
            .filter(|(_, call)| matches!(call.operation, Operation::Commit { outcome: Outcome::Unknown, .. }))
            .collect();
        // Equal deletes are interchangeable; the earliest is the most likely to have been in time.
        open.sort_by_key(|(_, call)| call.began);
        let mut violations = Vec::new();
        for event in self.events.values().filter(|event| !self.acknowledged.contains(&event.revision)) {
            let matching_call = open.iter().position(|(_, call)| match &call.operation {
                Operation::Commit { key, expect, change, .. } => fits(event, key, *expect, change),
                _ => false,
            });
            match matching_call {
                Some(index) => drop(self.by_call.insert(open.remove(index).0, event.revision)),
                None => violations.push(Violation::Phantom { event: event.clone() }),
            }
        }
        violations
    }

    fn collect_versions(&mut self, history: &History) {
        for entry in &history.start.value {
            let versions = self.versions.entry(entry.key().clone()).or_default();
            versions.push((history.start.revision, Some(entry.clone())));
        }
        for event in self.events.values() {
            let versions = self.versions.entry(event.key.clone()).or_default();
            versions.push((event.revision, event.current.clone()));
        }
    }

    /// Checks that every write replaced the entry before it.
    pub(super) fn chain(&self) -> Vec<Violation> {
        let broken = self.events.values().filter_map(|event| {
            let really = self.at(&event.key, Revision(event.revision.0.saturating_sub(1)));
            (really != event.previous.as_ref() || (really.is_none() && event.current.is_none()))
                .then(|| Violation::WrongPrevious { event: event.clone(), really: really.cloned() })
        });
        broken.collect()
    }

    /// Returns the entry of `key` at `revision`.
    pub(super) fn at(&self, key: &Key, revision: Revision) -> Option<&Entry> {
        // The entries at the start are those of any revision before the first write.
        let revision = revision.max(self.start);
        let versions = self.versions.get(key)?;
        let since = versions.partition_point(|(since, _)| *since <= revision);
        versions[..since].last()?.1.as_ref()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.versions.keys()
    }

    pub(super) fn event_of(&self, call: usize) -> Option<&Event> {
        self.events.get(self.by_call.get(&call)?)
    }

    pub(super) fn is_acknowledged(&self, event: &Event) -> bool {
        self.acknowledged.contains(&event.revision)
    }

    /// Returns all events after a revision, oldest first.
    pub(super) fn after(&self, revision: Revision) -> impl Iterator<Item = &Event> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.events.range((Excluded(revision), Unbounded)).map(|(_, event)| event)
    }
}

/// Reports whether this request results in `event` if it succeeds.
fn fits(event: &Event, key: &Key, expect: Expect, change: &Change) -> bool {
    let wrote = match (change, &event.current) {
        (Change::Put(value), Some(entry)) => {
            entry.key() == key && entry.value() == value && entry.revision() == event.revision
        }
        (Change::Delete, None) => event.previous.is_some(),
        _ => false,
    };
    event.key == *key && wrote && expect.holds(event.previous.as_ref())
}
