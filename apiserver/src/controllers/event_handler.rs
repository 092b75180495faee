//! The event handler: which controllers reconcile which keys after an event.
//!
//! It has one cursor over the whole store. It starts with a list of all objects, and lists again if it falls so far
//! behind that its history is compacted. Controllers reconcile from the current state, so they miss nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use storage::{Entry, Event, Key, Page, Range, ReadError, Revision};

use crate::clusters::logical_cluster as logical;
use crate::controllers::object_head::{ObjectHead, Owner};
use crate::controllers::{
    Controllers, Namespace, allocations, cluster_records, custom_resource_definitions, garbage_collector,
    namespace_defaults, role_aggregation, service_account_tokens,
};
use crate::keys;
use crate::keys::ObjectKey;
use crate::kinds;
use crate::kinds::DEFINITIONS;
use crate::objects::stored;
use crate::registry::allocation::{Allocation, SERVICES, allocations_of};
use crate::registry::deletion::{FOREGROUND, ORPHAN};

/// Page size of the first list.
const PAGE_ENTRIES: usize = 1000;
/// Pause before it lists again if the store is unavailable.
const PAUSE: Duration = Duration::from_secs(1);
/// Delay that merges the events of many dependents into one reconcile of their owner.
const BATCH_DELAY: Duration = Duration::from_millis(50);

/// Watches the store for all controllers.
pub(super) struct EventHandler<'a> {
    controllers: &'a Controllers,
    /// Terminating namespaces, requeued whenever an object in them is deleted.
    namespaces: HashSet<Namespace>,
    /// Terminating logical clusters, and the keys of their objects.
    clusters: HashMap<Id, Key>,
    /// Terminating definitions by name (`plural.group`).
    definitions: HashMap<Id, HashSet<String>>,
}

impl<'a> EventHandler<'a> {
    pub(super) fn new(controllers: &'a Controllers) -> EventHandler<'a> {
        EventHandler {
            controllers,
            namespaces: HashSet::new(),
            clusters: HashMap::new(),
            definitions: HashMap::new(),
        }
    }

    /// Handles events. Never returns.
    pub(super) async fn run(mut self) -> std::convert::Infallible {
        loop {
            let Err(error) = self.follow().await;
            match error {
                ReadError::Compacted { .. } => {
                    tracing::info!("the watch of the controllers fell behind; listing again")
                }
                error => {
                    tracing::warn!(%error, "the controllers cannot read the store; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, ReadError> {
        let begun = self.begin().await?;
        let mut watch = self.controllers.inner_store.watch(Range::all(), begun).await?;
        loop {
            for event in watch.next().await?.events {
                self.event(&event);
            }
        }
    }

    /// Lists everything at one revision.
    async fn begin(&mut self) -> Result<Revision, ReadError> {
        self.controllers.graph().clear();
        self.namespaces.clear();
        self.clusters.clear();
        self.definitions.clear();
        let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
        loop {
            let read = self.controllers.inner_store.list(Range::all(), page.clone()).await?;
            for entry in &read.value.entries {
                self.appeared(None, entry);
            }
            page.at = Some(read.revision);
            page.after = read.value.entries.last().map(|entry| entry.key().clone());
            if !read.value.more {
                self.controllers.graph().is_complete = true;
                return Ok(read.revision);
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match (&event.previous, &event.current) {
            (previous, Some(current)) => self.appeared(previous.as_ref(), current),
            (Some(previous), None) => self.vanished(previous, event.revision),
            (None, None) => {}
        }
    }

    /// Handles a created or changed object.
    fn appeared(&mut self, previous: Option<&Entry>, current: &Entry) {
        let Some(place) = ObjectKey::of(current.key()) else { return self.record_created(previous, current) };
        self.allocated(&place, current);
        self.enqueue_aggregation(&place);
        let Some(head) = ObjectHead::of(current) else {
            // The entry is no object, for example the tombstone of a bootstrap object. Clients see this as a deletion.
            if namespace_defaults::is_one(&place) {
                self.enqueue_namespace_defaults(place.cluster, place.namespace);
            }
            return previous.into_iter().for_each(|previous| self.vanished(previous, current.revision()));
        };
        self.owned(&place, current.key(), &head, previous);
        if place.collection == service_account_tokens::SECRETS && service_account_tokens::may_be_one(current)
        {
            self.controllers.accounts.add(current.key().clone());
        }
        previous
            .into_iter()
            .for_each(|previous| self.released(&place, previous, Some(current), current.revision()));
        if namespace_defaults::is_one(&place) {
            self.enqueue_namespace_defaults(place.cluster, place.namespace);
        }
        match (place.collection.group, place.collection.plural) {
            ("", "namespaces") if head.is_being_deleted() => {
                let namespace = (place.cluster, Arc::from(place.name));
                self.namespaces.insert(namespace.clone());
                self.controllers.namespaces.add(namespace);
            }
            ("", "namespaces") => self.enqueue_namespace_defaults(place.cluster, Some(place.name)),
            _ if DEFINITIONS == place.collection => {
                if head.is_being_deleted() {
                    self.definitions.entry(place.cluster).or_default().insert(place.name.to_owned());
                }
                // The first list skips definitions that need no reconciling.
                let is_first = !self.controllers.graph().is_complete;
                if head.is_being_deleted()
                    || !is_first
                    || !custom_resource_definitions::is_settled(&place, current)
                {
                    self.defined(&place);
                }
            }
            _ if logical::COLLECTION == place.collection && head.is_being_deleted() => {
                let tree = stored::tree(current).unwrap_or_default();
                if let Some(id) = logical::id(&tree) {
                    self.clusters.insert(id, current.key().clone());
                }
                self.controllers.clusters.add(current.key().clone());
            }
            _ => {}
        }
    }

    /// Handles a deleted object.
    fn vanished(&mut self, previous: &Entry, now: Revision) {
        let Some(place) = ObjectKey::of(previous.key()) else { return };
        let head = ObjectHead::of(previous).unwrap_or_default();
        let controllers = self.controllers;
        controllers.graph().set(previous.key(), Vec::new());
        let dependents = controllers.graph().lose(&(place.cluster, head.uid.as_str().into()));
        dependents.into_iter().for_each(|key| controllers.garbage.add(key));
        self.unblocked(&place, head.owners());
        self.released(&place, previous, None, now);
        self.enqueue_aggregation(&place);
        if place.collection == service_account_tokens::ACCOUNTS {
            controllers.accounts.add(previous.key().clone());
        }
        if namespace_defaults::is_one(&place) {
            self.enqueue_namespace_defaults(place.cluster, place.namespace);
        }
        let namespace = place.namespace.map(|namespace| (place.cluster, Arc::from(namespace)));
        if let Some(namespace) = namespace.filter(|namespace| self.namespaces.contains(namespace)) {
            controllers.namespaces.add_after(namespace, BATCH_DELAY);
        }
        if let Some(leaving) = self.definitions.get(&place.cluster) {
            let name = format!("{}.{}", place.collection.plural, place.collection.group);
            if leaving.contains(&name) {
                let group = (place.cluster, place.collection.group.into());
                controllers.definitions.add_after(group, BATCH_DELAY);
            }
        }
        match (place.collection.group, place.collection.plural) {
            ("", "namespaces") => {
                self.namespaces.remove(&(place.cluster, Arc::from(place.name)));
            }
            _ if DEFINITIONS == place.collection => {
                if let Some(leaving) = self.definitions.get_mut(&place.cluster) {
                    leaving.remove(place.name);
                }
                self.definitions.retain(|_, leaving| !leaving.is_empty());
                self.defined(&place);
            }
            _ if logical::COLLECTION == place.collection => {
                if let Some(outer) = self.clusters.get(&place.cluster) {
                    controllers.clusters.add(outer.clone());
                }
                self.clusters.retain(|_, key| key != previous.key());
            }
            _ => {}
        }
    }

    /// Records the owners of an object, and enqueues the objects to reconcile.
    fn owned(&self, place: &ObjectKey<'_>, key: &Key, head: &ObjectHead, previous: Option<&Entry>) {
        let before = previous.and_then(ObjectHead::of).unwrap_or_default();
        if before.owners() != head.owners() || previous.is_none() {
            let owners = head.owners().iter().map(|owner| (place.cluster, owner.uid.as_str().into()));
            self.controllers.graph().set(key, owners.collect());
            if !head.owners().is_empty() {
                self.controllers.garbage.add(key.clone());
            }
            self.unblocked(place, before.owners());
        }
        let is_waiting =
            head.is_being_deleted() && (head.has_finalizer(ORPHAN) || head.has_finalizer(FOREGROUND));
        if is_waiting {
            self.controllers.garbage.add(key.clone());
        }
    }

    /// Enqueues the aggregation of cluster roles: the changed role may be part of others.
    fn enqueue_aggregation(&self, place: &ObjectKey<'_>) {
        if place.collection == role_aggregation::COLLECTION {
            self.controllers.roles.add_after(place.cluster, BATCH_DELAY);
        }
    }

    /// Enqueues a new allocation for later. It has no Service if the server stopped before it wrote the Service.
    fn allocated(&self, place: &ObjectKey<'_>, current: &Entry) {
        if Allocation::at(place).is_some() {
            let allocation = (current.key().clone(), current.revision());
            self.controllers.addresses.add_after(allocation, allocations::SETTLES);
        }
    }

    /// Enqueues a new record for later. Records from before the start are checked together.
    fn record_created(&self, previous: Option<&Entry>, current: &Entry) {
        if let (Some(id), None, true) =
            (keys::cluster_record_id(current.key()), previous, self.controllers.graph().is_complete)
        {
            self.controllers.records.add_after(id, cluster_records::SETTLES);
        }
    }

    /// Enqueues the allocations that a Service no longer uses.
    fn released(&self, place: &ObjectKey<'_>, previous: &Entry, current: Option<&Entry>, now: Revision) {
        if place.collection == SERVICES {
            let allocations_of = |entry: &Entry| allocations_of(&stored::tree(entry).unwrap_or_default());
            let current_allocations = current.map(allocations_of).unwrap_or_default();
            for allocation in allocations_of(previous).difference(&current_allocations) {
                self.controllers.addresses.add((allocation.key(place.cluster), now));
            }
        }
    }

    /// Enqueues the owners that may have waited for the deletion of this object.
    fn unblocked(&self, place: &ObjectKey<'_>, owners: &[Owner]) {
        let kinds = self.controllers.kinds.of(place.cluster);
        for owner in owners.iter().filter(|owner| owner.blocks()) {
            if let Some(key) = garbage_collector::owner_key(&kinds, place, owner) {
                self.controllers.garbage.add_after(key, BATCH_DELAY);
            }
        }
    }

    /// Enqueues all definitions of the group: they are reconciled together.
    fn defined(&self, place: &ObjectKey<'_>) {
        self.controllers.definitions.add((place.cluster, kinds::group(place.name).into()));
    }

    fn enqueue_namespace_defaults(&self, cluster: Id, namespace: Option<&str>) {
        if let Some(namespace) = namespace {
            self.controllers.namespace_defaults.add((cluster, namespace.into()));
        }
    }
}
