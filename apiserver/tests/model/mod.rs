//! A model of the overlay in its plainest form: the visible state at every revision, stored in full.

use std::collections::{BTreeMap, BTreeSet};

use api::cluster::Id;
use apiserver::clusters::bootstrap::BootstrapObject;
use apiserver::clusters::records::LogicalClusterRecord;
use apiserver::keys;
use apiserver::objects::stored;
use storage::{
    At, Change, CommitError, Entry, Event, Expect, Key, Listing, Page, Range, ReadError, Revision,
};
use uuid::Uuid;

type State = BTreeMap<Key, Entry>;

pub(crate) struct Model {
    objects: Vec<BootstrapObject>,
    /// The visible state at each revision, from zero on.
    states: Vec<State>,
    /// The events, ordered by revision and then by key.
    events: Vec<Event>,
    existing: BTreeSet<Id>,
    created: BTreeSet<Id>,
    /// Where the overlay keeps a tombstone. Tombstones are removed with their logical cluster, one revision each.
    graves: BTreeSet<Key>,
    compacted: Revision,
}

impl Model {
    pub(crate) fn new(objects: Vec<BootstrapObject>) -> Model {
        Model {
            objects,
            states: vec![State::new()],
            events: Vec::new(),
            existing: BTreeSet::new(),
            created: BTreeSet::new(),
            graves: BTreeSet::new(),
            compacted: Revision::ZERO,
        }
    }

    pub(crate) fn head(&self) -> Revision {
        Revision(self.states.len() as u64 - 1)
    }

    pub(crate) fn back(&self, revisions: u8) -> Revision {
        Revision(self.head().0.saturating_sub(revisions.into()))
    }

    fn now(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    pub(crate) fn was_created(&self, id: Id) -> bool {
        self.created.contains(&id)
    }

    pub(crate) fn expect(&self, key: &Key) -> Expect {
        self.now().get(key).map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()))
    }

    fn key_of(object: &BootstrapObject, id: Id) -> Key {
        let metadata = &object.value["metadata"];
        object.collection.key(id, metadata["namespace"].as_str(), metadata["name"].as_str().unwrap())
    }

    fn is_template_object(&self, id: Id, key: &Key) -> bool {
        self.objects.iter().any(|object| Model::key_of(object, id) == *key)
    }

    /// Records the changes of the next revision.
    fn record(&mut self, mut changes: Vec<(Key, Option<Entry>)>) -> Vec<Event> {
        changes.sort_by(|one, next| one.0.cmp(&next.0));
        let revision = Revision(self.states.len() as u64);
        let mut state = self.now().clone();
        let mut events = Vec::new();
        for (key, current) in changes {
            let previous = match &current {
                Some(entry) => state.insert(key.clone(), entry.clone()),
                None => state.remove(&key),
            };
            events.push(Event { revision, key, current, previous });
        }
        self.states.push(state);
        self.events.extend(events.clone());
        events
    }

    pub(crate) fn create_cluster(&mut self, id: Id, record: &LogicalClusterRecord, entry: Entry) {
        let revision = Revision(self.states.len() as u64);
        assert_eq!(entry.revision(), revision);
        let innate = self.objects.iter().map(|object| {
            let key = Model::key_of(object, id);
            let mut value = object.value.clone();
            value["metadata"]["uid"] = Uuid::new_v5(&record.seed, key.as_bytes()).to_string().into();
            value["metadata"]["creationTimestamp"] = record.time.as_str().into();
            (key.clone(), Some(Entry::new(key, revision, stored::encode(&value))))
        });
        let changes = innate.chain([(entry.key().clone(), Some(entry.clone()))]).collect();
        self.record(changes);
        self.existing.insert(id);
        self.created.insert(id);
    }

    pub(crate) fn end(&mut self, id: Id) {
        if !self.existing.remove(&id) {
            return;
        }
        let record = self.now()[&keys::cluster_record(id)].revision();
        let untouched: Vec<Key> = (self.objects.iter().map(|object| Model::key_of(object, id)))
            .filter(|key| self.now().get(key).is_some_and(|entry| entry.revision() == record))
            .collect();
        let removed = untouched.into_iter().chain([keys::cluster_record(id)]).map(|key| (key, None));
        let changes = removed.collect();
        self.record(changes);
        let resources: BTreeSet<Key> = self.objects.iter().map(|object| Model::key_of(object, id)).collect();
        for key in resources {
            if self.graves.remove(&key) {
                self.record(Vec::new());
            }
        }
    }

    pub(crate) fn commit(
        &mut self,
        id: Id,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        let (is_template_object, exists) = (self.is_template_object(id, &key), self.existing.contains(&id));
        let current = self.now().get(&key).cloned();
        if self.expect(&key) != expect || (current.is_none() && change == Change::Delete) {
            return Err(CommitError::Conflict { current: At { revision: self.head(), value: current } });
        }
        let revision = Revision(self.states.len() as u64);
        let entry = match change {
            Change::Put(_) if is_template_object && !exists && current.is_none() => {
                return Err(CommitError::ReadOnly {
                    reason: "the logical cluster does not exist".to_owned(),
                });
            }
            Change::Put(value) => {
                self.graves.remove(&key);
                Some(Entry::new(key.clone(), revision, value))
            }
            Change::Delete => {
                if is_template_object && exists {
                    self.graves.insert(key.clone());
                }
                None
            }
        };
        Ok(self.record(vec![(key, entry)]).remove(0))
    }

    pub(crate) fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through);
    }

    pub(crate) fn check(&self, revision: Revision) -> Result<(), ReadError> {
        if revision < self.compacted {
            return Err(ReadError::Compacted { requested: revision, oldest: self.compacted });
        }
        Ok(())
    }

    pub(crate) fn get(&self, key: &Key) -> At<Option<Entry>> {
        At { revision: self.head(), value: self.now().get(key).cloned() }
    }

    pub(crate) fn list(&self, range: &Range, page: &Page) -> Result<At<Listing>, ReadError> {
        let revision = page.at.unwrap_or(self.head());
        self.check(revision)?;
        let is_selected =
            |key: &Key| range.contains(key.as_bytes()) && page.after.as_ref().is_none_or(|after| key > after);
        let state = &self.states[revision.0 as usize];
        let mut entries: Vec<Entry> =
            state.iter().filter(|(key, _)| is_selected(key)).map(|(_, entry)| entry.clone()).collect();
        let remaining = entries.len().saturating_sub(page.limit.unwrap_or(usize::MAX));
        entries.truncate(entries.len() - remaining);
        let value = Listing { entries, more: remaining > 0, remaining: page.count.then_some(remaining) };
        Ok(At { revision, value })
    }

    pub(crate) fn events(&self, range: &Range, after: Revision) -> Vec<Event> {
        let ours = |event: &&Event| event.revision > after && range.contains(event.key.as_bytes());
        self.events.iter().filter(ours).cloned().collect()
    }
}
