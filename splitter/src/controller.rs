//! The controller: caches, event handlers and the work queue.
//!
//! ```text
//!   history ─► caches ─► handle_event: which objects does it affect? ─► queue ─► reconcile: decide ─► propagate ─► aggregate
//!                                                                        └─ project: objects of mailboxes, in the user's cluster
//! ```
//!
//! A reconcile handles one object as a whole: it decides and records where the object runs, writes its mailbox objects,
//! and aggregates their status. Each step does nothing if nothing changed, so a reconcile may run at any time and any
//! number of times. The queue never gives an object to two workers.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::{Distribution, StatusRule};
use api::names::PLACEMENT;
use controller::informer::{CachedObject, Key, News, View};
use controller::queue::Outcome;
use controller::remote::CallError;
use controller::run::work;
use controller::tasks::KeyedTasks;
use tracing::Instrument;

use crate::context::{BATCH_DELAY, Splitter, WorkItem, lock};
use crate::execute::api_access;
use crate::execute::grants;
use crate::execute::namespaces;
use crate::execute::physical_clusters;
use crate::execute::pods;
use crate::execute::policies;
use crate::execute::project;
use crate::reconcile;
use crate::snapshot::policy_index::PolicyKind;
use crate::snapshot::record;
use crate::snapshot::{
    ClusterChange, KindChange, KindClass, LabelsAndAnnotations, LogicalClusters, ObjectRef, PlacementMarks,
};
use crate::transform::references::CLAIM;

/// Objects reconciled at the same time by each task. Most of the time a reconcile waits for its writes to be durable,
/// and writes that wait together are committed together.
const CONCURRENCY: usize = 64;
const WORKERS: usize = 2;

/// The tasks of a splitter. None of them ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum TaskName {
    /// Keeps the caches up to date.
    Caches,
    /// Works on the queue.
    Worker(usize),
}

impl Splitter {
    /// Runs for as long as it is polled. Returns only if one of its tasks panicked; the caller then starts a new splitter.
    pub async fn run(self: Arc<Self>) -> String {
        let mut tasks = KeyedTasks::default();
        let this = self.clone();
        tasks.spawn(TaskName::Caches, async move {
            let views = this.caches.followed_views();
            match this.follower.run(views, |view, news| this.handle_event(view, &news)).await {}
        });
        tokio::select! {
            () = self.follower.reach(0) => {}
            Some((_, Err(error))) = tasks.next_ended() => return error,
        }
        self.index_recorded_placements();
        for number in 0..WORKERS {
            let this = self.clone();
            tasks.spawn(TaskName::Worker(number), async move {
                match work(&this.queue, CONCURRENCY, |item| this.reconcile_item(item)).await {}
            });
        }
        loop {
            if let Some((_, Err(error))) = tasks.next_ended().await {
                return error;
            }
        }
    }

    async fn reconcile_item(&self, item: WorkItem) -> Outcome {
        // Of the highest level, so that it names the object of a warning whatever is logged.
        let span = tracing::error_span!(
            "reconcile",
            object = %item,
            logical_cluster = %item.logical_cluster(),
            revision = tracing::field::Empty
        );
        let outcome = async {
            let done = self.reconcile_by_kind(&item).await;
            // The next reconcile of the item, and others that depend on it, see what this one wrote.
            self.own_writes.observe(&item, &self.follower).await;
            done.unwrap_or_else(|error| self.requeue_failed(&error))
        };
        outcome.instrument(span).await
    }

    async fn reconcile_by_kind(&self, item: &WorkItem) -> Result<Outcome, CallError> {
        match item {
            WorkItem::Object(subject) => reconcile::reconcile_object(self, subject).await,
            WorkItem::Projected(subject) => project::reconcile(self, subject).await,
            WorkItem::PhysicalCluster(owner, name) => physical_clusters::reconcile(self, *owner, name).await,
            WorkItem::Nodes(cluster) => project::nodes(self, *cluster).await,
            WorkItem::Grants(owner) => grants::reconcile(self, *owner).await,
            WorkItem::ApiAccess(account) => api_access::reconcile(self, account).await,
            WorkItem::Namespace(cluster, name) => namespaces::reconcile(self, *cluster, name).await,
            WorkItem::Policy(policy, cluster, name) => {
                policies::reconcile(self, *policy, *cluster, name).await
            }
        }
    }

    fn requeue_failed(&self, error: &CallError) -> Outcome {
        // A conflict is resolved by the next reconcile, which reads the newer version. An object that is not found is being
        // deleted. A server in this process that does not answer is stopping, and this controller with it.
        let is_expected = !error.is_answer() || error.is_conflict() || error.is_not_found();
        if !is_expected {
            tracing::warn!(%error, "reconcile failed; it is retried");
        }
        Outcome::Failed
    }

    /// Updates the indexes, and queues every object that the event affects.
    fn handle_event(&self, view: &View, news: &News<'_>) {
        let (object, gone) = match news {
            News::Put { now, .. } => (*now, false),
            News::Gone { last, .. } => (*last, true),
            News::Synced => return self.handle_list(view),
            News::Lost => return,
        };
        let own = &self.caches.config;
        let is = |other: &Arc<View>| std::ptr::eq(&raw const **other, view);
        let Some(cluster) = object.key.cluster else { return };
        if is(&own.logical) {
            let mut clusters = self.caches.clusters_mut();
            let changed = if gone { clusters.remove(object) } else { clusters.put(object) };
            let owner = LogicalClusters::mailbox_owner(&object.key);
            let owner = owner.map(|(owner, name)| (owner, name, clusters.mailbox_of(owner, name)));
            drop(clusters);
            changed.into_iter().for_each(|cluster| self.enqueue_all(Some(cluster), None));
            if let Some((owner, name, mailbox)) = owner {
                let changed = self.caches.members_mut().set_mailbox(owner, name, mailbox);
                self.enqueue_affected_by_cluster(owner, name, changed);
            }
        } else if is(&own.physical) && !self.caches.is_mailbox(cluster) {
            self.handle_physical_cluster(object, gone);
        } else if self.caches.is_mailbox(cluster) {
            self.handle_mailbox_object(view, object, gone);
        } else if is(&own.namespaces) {
            self.handle_namespace(object, gone);
        } else if is(&own.distributions) {
            self.handle_record(object, gone);
        } else if let Some(policy) = PolicyKind::of(own, view) {
            self.handle_policy(policy, cluster, object, gone);
        } else if is(&own.definitions) && project::is_metrics_definition(&object.key.name) {
            self.queue.add(WorkItem::Nodes(cluster));
        } else if is(&own.definitions) {
            self.handle_definition(view, cluster, object, gone);
        } else {
            if view.kind.name == "ServiceAccount" && view.kind.group.is_empty() {
                api_access::handle_service_account(self, object);
            }
            let subject = ObjectRef { kind: view.kind.to_string().into(), key: object.key.clone() };
            if PlacementMarks::of(object).is_projected {
                return project::handle_projected(self, &subject.kind, object, gone);
            }
            if view.kind.name == "Deployment" {
                self.queue.add(WorkItem::Projected(subject.clone()));
            }
            self.queue.add(WorkItem::Object(subject));
        }
    }

    fn handle_physical_cluster(&self, object: &Arc<CachedObject>, gone: bool) {
        let changed = match gone {
            true => {
                self.caches.members_mut().remove(&object.key);
                ClusterChange::Properties
            }
            false => {
                let clusters = self.caches.clusters();
                self.caches.members_mut().put(object, &clusters)
            }
        };
        if let Some(owner) = object.key.cluster {
            self.enqueue_affected_by_cluster(owner, &object.key.name, changed);
        }
    }

    /// Queues everything that a change of a physical cluster affects.
    fn enqueue_affected_by_cluster(&self, owner: Id, name: &str, changed: ClusterChange) {
        let users = || lock(&self.placement_index).clusters();
        match changed {
            ClusterChange::Unchanged => {}
            ClusterChange::Capacity => {
                self.enqueue_waiting_for_capacity();
                users().into_iter().for_each(|cluster| self.queue.add(WorkItem::Nodes(cluster)));
            }
            ClusterChange::Properties => {
                let mailbox = self.caches.clusters().mailbox_of(owner, name);
                mailbox.into_iter().for_each(|mailbox| project::enqueue_mailbox(self, mailbox));
                self.queue.add(WorkItem::PhysicalCluster(owner, name.to_owned()));
                self.enqueue_possible_cycles();
                // Only the logical cluster it is registered in and its descendants see it. A tenant's physical cluster
                // must not requeue the objects of other tenants.
                let concerned = self.caches.clusters().subtree(owner);
                for cluster in &concerned {
                    self.enqueue_all(Some(*cluster), None);
                }
                let concerned: HashSet<Id> = concerned.into_iter().collect();
                let placement_index = lock(&self.placement_index);
                let namespaces =
                    placement_index.namespaces().filter(|(cluster, _)| concerned.contains(cluster));
                namespaces.for_each(|(cluster, name)| {
                    self.queue.add(WorkItem::Namespace(cluster, name.to_owned()))
                });
                drop(placement_index);
                let users = users().into_iter().filter(|cluster| concerned.contains(cluster));
                users.for_each(|cluster| self.queue.add(WorkItem::Nodes(cluster)));
            }
        }
    }

    /// Whether one join closes a cycle depends on the other joins.
    fn enqueue_possible_cycles(&self) {
        let clusters = self.caches.clusters();
        let members = self.caches.members().all(&clusters);
        let concerned = members.iter().filter(|member| member.may_be_circular(&clusters));
        concerned.for_each(|member| {
            self.queue.add(WorkItem::PhysicalCluster(member.owner, member.name().to_owned()))
        });
    }

    /// An event from a mailbox: queues the user's object that the mailbox object belongs to, or the projection of it.
    fn handle_mailbox_object(&self, view: &View, object: &Arc<CachedObject>, gone: bool) {
        if view.kind == self.caches.config.definitions.kind
            && project::is_metrics_definition(&object.key.name)
        {
            let users = lock(&self.placement_index).clusters();
            return users.into_iter().for_each(|user| self.queue.add(WorkItem::Nodes(user)));
        }
        let marks = PlacementMarks::of(object);
        let kind: Arc<str> = view.kind.to_string().into();
        project::handle_mailbox_object(self, &kind, object, gone);
        if view.kind.name == "Pod" {
            if gone { pods::handle_deleted_pod(self, object) } else { pods::handle_pod(self, object) }
        }
        if let Some(mailbox) = object.key.cluster.filter(|_| view.kind.name == CLAIM) {
            self.handle_claim(mailbox);
        }
        if let Some(account) = api_access::account_of_secret(object).filter(|_| marks.is_placed) {
            return self.queue.add(WorkItem::ApiAccess(account));
        }
        let Some(locator) = marks.locator.filter(|_| marks.is_placed) else { return };
        let Ok(cluster) = locator.logical_cluster.parse::<Id>() else { return };
        let namespace = locator.namespace.unwrap_or_default();
        if view.kind == self.caches.config.namespaces.kind {
            if gone {
                self.enqueue_namespace(cluster, &locator.name);
            }
            return self.queue.add(WorkItem::Namespace(cluster, locator.name));
        }
        let key = Key { cluster: Some(cluster), namespace, name: locator.name };
        self.queue.add(WorkItem::Object(ObjectRef { kind, key }));
    }

    /// Starts or stops watching a custom kind, as its definitions are created and deleted.
    fn handle_definition(&self, view: &View, cluster: Id, object: &Arc<CachedObject>, gone: bool) {
        let name = &object.key.name;
        // A tenant's kind must not be taken for a kind of its group that every logical cluster has.
        if name.split_once('.').is_none_or(|(_, group)| self.caches.has_built_in_group(group)) {
            return;
        }
        let now = self.caches.by_resource(name).map(|watched| watched.shape());
        let mut definitions = lock(&self.definitions);
        let change = match gone {
            true => definitions.remove(name, cluster, now.as_ref()),
            false => definitions.put(name, cluster, &object.read(&view.kind), now.as_ref()),
        };
        drop(definitions);
        match change {
            KindChange::Watch(shape) => self.caches.add_kind(shape),
            // Its objects are deleted with it.
            KindChange::Removed | KindChange::Unchanged => return,
        }
        self.list_again(name);
    }

    /// The objects of a custom kind were listed. Those with a record that are not in the list were deleted before.
    fn handle_list(&self, view: &View) {
        let Some(watched) = self.caches.by_resource(&view.kind.to_string()) else { return };
        if watched.class != KindClass::Custom {
            return;
        }
        let prefix = record::name(&watched, "");
        let records = self.caches.config.distributions.all();
        let of_kind = records.iter().filter(|record| record.key.name.starts_with(&prefix));
        of_kind.for_each(|record| self.handle_record(record, false));
    }

    /// Queues the objects a policy selects if its spec changed. A write to its status is not a change.
    fn handle_policy(&self, policy: PolicyKind, cluster: Id, object: &Arc<CachedObject>, gone: bool) {
        #[derive(serde::Deserialize)]
        struct PolicyMetadata {
            metadata: api::fleet::Metadata,
        }
        let name = (policy, cluster, object.key.name.clone());
        self.queue.add(WorkItem::Policy(policy, cluster, object.key.name.clone()));
        let generation = object.parse::<PolicyMetadata>().and_then(|policy| policy.metadata.generation);
        let version = (!gone).then(|| (object.uid.clone(), generation));
        let before = match version.clone() {
            Some(version) => lock(&self.policies).insert(name, version),
            None => lock(&self.policies).remove(&name),
        };
        if before == version {
            return;
        }
        if policy != PolicyKind::StatusRule {
            return self.enqueue_all(Some(cluster), None);
        }
        let rule = object.parse::<StatusRule>();
        let of =
            rule.and_then(|rule| self.caches.by_group_kind(&rule.spec.target.group, &rule.spec.target.kind));
        of.into_iter().for_each(|watched| self.enqueue_kind(&watched, Some(cluster), None));
    }

    fn handle_namespace(&self, object: &Arc<CachedObject>, gone: bool) {
        if let Some(cluster) = object.key.cluster.filter(|_| object.key.name == "kube-system") {
            self.caches.clusters_mut().set_identity(&object.uid, (!gone).then_some(cluster));
        }
        let marks = LabelsAndAnnotations::of(object).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (&marks.labels, marks.annotations.get(PLACEMENT)).hash(&mut hasher);
        let now = hasher.finish();
        if gone {
            lock(&self.namespaces).remove(&object.key);
        } else if lock(&self.namespaces).insert(object.key.clone(), now) != Some(now) {
            self.enqueue_all(object.key.cluster, Some(&object.key.name));
        }
        if let Some(cluster) = object.key.cluster {
            self.queue.add(WorkItem::Namespace(cluster, object.key.name.clone()));
        }
    }

    fn handle_record(&self, object: &Arc<CachedObject>, gone: bool) {
        let Some(record) = object.parse::<Distribution>() else { return };
        let counted = lock(&self.placement_counts).put(&object.key, (!gone).then_some(&record));
        let cluster = object.key.cluster.unwrap_or(Id::ROOT);
        // Many records change at the same time, and the Placement writes their sum once.
        counted.into_iter().for_each(|name| {
            self.queue.add_after(WorkItem::Policy(PolicyKind::Placement, cluster, name), BATCH_DELAY)
        });
        project::handle_record(self, &object.key, (!gone).then_some(&record));
        let of = &record.spec.object;
        let group = of.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let Some(watched) = self.caches.by_group_kind(group, &of.kind) else { return };
        let key = Key { name: of.name.clone(), ..object.key.clone() };
        self.queue.add(WorkItem::Object(ObjectRef { kind: watched.name.clone(), key }));
    }
}
