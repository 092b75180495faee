//! The loop that watches the store, reconciles namespaces and executes their plans.
//!
//! ```text
//!   watch ─► cache ─► plan, for each namespace with changes ─► executor ─► store ─► watch
//!   clock ──────────────┘ and for each namespace that is due
//! ```
//!
//! Before every reconcile the cache catches up with the store, including the runner's own writes. So a controller never
//! repeats a write and needs no expectations. Without changes and due times the loop sleeps.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use api::cluster::Id;
use apiserver::keys::{Collection, ObjectKey};
use apiserver::objects::stored;
use controller::tasks::Stop;
use jiff::Timestamp;
use storage::{Event, Key, Page, Range, ReadError, Revision, Store, Watch};
use tokio::sync::watch;

use super::executor::{Executor, WriteResult};
use crate::cache::Cache;
use crate::clock::Clock;
use crate::controllers::{
    cronjobs, daemonsets, deployments, disruption, jobs, replicasets, services, statefulsets, volumes,
};
use crate::node::delays::Delays;
use crate::node::nodes::{self, NodeShape};
use crate::node::{kubelet, scheduler};
use crate::objects::fields::{namespace, uid};
use crate::objects::kind::ObjectKind;
use crate::plan::Plan;

#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) executor: Executor,
    pub(crate) clock: Clock,
    pub(crate) delays: Delays,
    pub(crate) nodes: Vec<NodeShape>,
    /// Whether controllers and nodes are frozen.
    pub(crate) frozen: watch::Receiver<bool>,
}

/// The namespaces to reconcile. The empty name stands for cluster-scoped objects.
#[derive(Debug, Default)]
struct NamespaceQueue {
    /// Namespaces with changed objects.
    changed: BTreeSet<String>,
    /// Namespaces that must be reconciled at a time even if nothing changes.
    due: BTreeMap<String, Timestamp>,
}

impl NamespaceQueue {
    fn next_due(&self) -> Option<Timestamp> {
        self.due.values().min().copied()
    }

    /// Takes the namespaces to reconcile now.
    fn take_ready(&mut self, now: Timestamp) -> BTreeSet<String> {
        let mut taken = std::mem::take(&mut self.changed);
        let due = self.due.extract_if(.., |_, due| *due <= now).map(|(ns, _)| ns);
        taken.extend(due);
        taken
    }

    fn set_due(&mut self, ns: &str, due: Option<Timestamp>, now: Timestamp) {
        match due.filter(|due| *due > now) {
            Some(due) => drop(self.due.insert(ns.to_owned(), due)),
            None => drop(self.due.remove(ns)),
        }
    }
}

impl Runner {
    /// Runs until the group stops.
    pub(crate) async fn run(mut self, mut stop: Stop) -> Result<(), ReadError> {
        tokio::select! {
            failed = self.run_forever() => failed.map(|never| match never {}),
            () = stop.requested() => Ok(()),
        }
    }

    async fn run_forever(&mut self) -> Result<Infallible, ReadError> {
        let (mut cache, mut has_registered_nodes) = (Cache::default(), false);
        loop {
            let mut queue = NamespaceQueue::default();
            let listed = self.load(&mut cache, &mut queue).await?;
            if !has_registered_nodes {
                let mut plan = Plan::default();
                nodes::register_missing(&cache, &self.nodes, &mut plan);
                self.execute(plan, &mut cache).await;
                has_registered_nodes = true;
            }
            let mut watch = self.store.watch(Range::all(), listed).await?;
            match self.reconcile_changes(&mut cache, &mut queue, &mut watch).await {
                // The watch fell behind the compacted history: list again.
                Err(ReadError::Compacted { .. }) => {}
                Err(error) => return Err(error),
                Ok(never) => match never {},
            }
        }
    }

    async fn reconcile_changes(
        &mut self,
        cache: &mut Cache,
        queue: &mut NamespaceQueue,
        watch: &mut Watch,
    ) -> Result<Infallible, ReadError> {
        loop {
            // This fails only after the stand-in is dropped, which also ends this task.
            let _ = self.frozen.wait_for(|frozen| !frozen).await;
            self.reconcile_all(cache, queue, watch).await?;
            let due = async {
                match queue.next_due() {
                    Some(due) => self.clock.until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                batch = watch.next() => self.apply(cache, queue, batch?.events),
                () = due => {}
            }
        }
    }

    /// Reconciles until no namespace has changes.
    async fn reconcile_all(
        &self,
        cache: &mut Cache,
        queue: &mut NamespaceQueue,
        watch: &mut Watch,
    ) -> Result<(), ReadError> {
        while !*self.frozen.borrow() {
            let head = self.store.get(&Key::from("")).await?.revision;
            while let Some(batch) = watch.until(head).await? {
                self.apply(cache, queue, batch.events);
            }
            let now = self.clock.now();
            let namespaces = queue.take_ready(now);
            if namespaces.is_empty() {
                return Ok(());
            }
            let plan = self.plan(cache, queue, &namespaces, now);
            self.execute(plan, cache).await;
        }
        Ok(())
    }

    fn plan(
        &self,
        cache: &Cache,
        queue: &mut NamespaceQueue,
        namespaces: &BTreeSet<String>,
        now: Timestamp,
    ) -> Plan {
        let mut all = Plan::default();
        // A change of a cluster-scoped object, such as a node or a volume, can affect all namespaces.
        let all_namespaces = if namespaces.contains("") { cache.namespaces() } else { BTreeSet::new() };
        for ns in namespaces.union(&all_namespaces).filter(|ns| !ns.is_empty()) {
            let mut plan = Plan::default();
            deployments::reconcile(cache, ns, now, &mut plan);
            replicasets::reconcile(cache, ns, now, &mut plan);
            statefulsets::reconcile(cache, ns, now, &mut plan);
            daemonsets::reconcile(cache, ns, now, &mut plan);
            cronjobs::reconcile(cache, ns, now, &mut plan);
            jobs::reconcile(cache, ns, now, &mut plan);
            kubelet::reconcile(cache, ns, self.delays, now, &mut plan);
            services::reconcile(cache, ns, &mut plan);
            volumes::reconcile(cache, ns, &mut plan);
            disruption::reconcile(cache, ns, now, &mut plan);
            queue.set_due(ns, plan.due, now);
            all.writes.append(&mut plan.writes);
        }
        let mut plan = Plan::default();
        nodes::report_status(cache, &self.nodes, now, &mut plan);
        scheduler::reconcile(cache, self.delays, now, &mut plan);
        volumes::reclaim(cache, &mut plan);
        queue.set_due("", plan.due, now);
        all.writes.append(&mut plan.writes);
        all
    }

    async fn execute(&self, plan: Plan, cache: &mut Cache) {
        for write in plan.writes {
            match self.executor.execute(write).await {
                WriteResult::Done => {}
                WriteResult::Created { owner } => cache.clear_failure(&owner),
                WriteResult::CreateFailed { owner, message } => {
                    cache.record_failure(&owner, self.clock.now(), message);
                }
            }
        }
    }

    /// Lists all objects. Returns the revision of the lists.
    async fn load(&self, cache: &mut Cache, queue: &mut NamespaceQueue) -> Result<Revision, ReadError> {
        cache.clear_objects();
        let mut at = None;
        for kind in ObjectKind::all() {
            let collection = Collection { group: kind.info().group, plural: kind.info().plural };
            let page = Page { at, ..Page::default() };
            let listed = self.store.list(collection.range(Id::ROOT, None), page).await?;
            at = Some(listed.revision);
            for entry in listed.value.entries {
                self.put(cache, queue, kind, &entry);
            }
        }
        cache.prune();
        queue.changed.extend(cache.namespaces());
        // Nodes and the scheduler always run after a list.
        queue.changed.insert(String::new());
        Ok(at.unwrap_or_default())
    }

    fn apply(&self, cache: &mut Cache, queue: &mut NamespaceQueue, events: Vec<Event>) {
        for event in events {
            let Some(key) = ObjectKey::of(&event.key).filter(|key| key.cluster == Id::ROOT) else {
                continue;
            };
            let Some(kind) = ObjectKind::find(key.collection.group, key.collection.plural) else {
                continue;
            };
            let ns = key.namespace.unwrap_or_default();
            match &event.current {
                Some(entry) => self.put(cache, queue, kind, entry),
                None => {
                    let removed = cache.remove(kind, ns, key.name);
                    if let Some(pod) = removed.filter(|_| kind == ObjectKind::Pods) {
                        self.executor.remove_pod(uid(&pod));
                    }
                }
            }
            queue.changed.insert(ns.to_owned());
        }
    }

    fn put(&self, cache: &mut Cache, queue: &mut NamespaceQueue, kind: ObjectKind, entry: &storage::Entry) {
        let Ok(mut object) = stored::tree(entry) else {
            return tracing::error!(key = ?entry.key(), "a stored object cannot be decoded; its controllers ignore it");
        };
        // No controller reads managed fields, and they are half of many objects.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        queue.changed.insert(namespace(&object).to_owned());
        cache.put(kind, object, self.clock.now());
    }
}
