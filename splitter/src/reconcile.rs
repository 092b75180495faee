//! Reconciles one user's object.

use std::collections::BTreeMap;
use std::time::Duration;

use api::fleet::{Distribution, Role, Target};
use api::meta::quantity;
use api::meta::{is_being_deleted, metadata};
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath};
use jiff::Timestamp;
use serde_json::Value;

use crate::context::{PREREQUISITE_REQUEUE, Splitter, WorkItem, has_own_placement, lock};
use crate::division::REPLICAS;
use crate::execute::aggregate;
use crate::execute::api_access;
use crate::execute::definitions;
use crate::execute::dependencies;
use crate::execute::events;
use crate::execute::propagate;
use crate::execute::record;
use crate::execute::workload::read_workload;
use crate::placement::context::PlacementContext;
use crate::placement::decide::{PlacementDecision, decide};
use crate::placement::explain::sentence;
use crate::placement::migration::{MigrationStep, Readiness};
use crate::placement::reservations;
use crate::plan::plan_mailboxes;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::placement_index::PlacementEntry;
use crate::snapshot::pod_count::PodCounter;
use crate::snapshot::related;
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};
use crate::status::completed;
use crate::transform::references::{self, pod_spec_at};

/// Reconciles an object again at once: the caches have observed what this reconcile wrote.
const AGAIN: Outcome = Outcome::RequeueAfter(Duration::ZERO);
/// Requeue delay during a migration, in case no event reports progress.
const MIGRATION_REQUEUE: Duration = Duration::from_secs(10);

/// Reconciles a user's object: one with a placement of its own, a dependency of others, or one that was deleted.
pub(crate) async fn reconcile_object(splitter: &Splitter, subject: &ObjectRef) -> Result<Outcome, CallError> {
    let Some(watched) = splitter.caches.by_resource(&subject.kind) else { return Ok(Outcome::Done) };
    // Objects in mailboxes were written by the splitter; they are not input.
    if splitter.caches.is_mailbox(subject.cluster()) {
        return Ok(Outcome::Done);
    }
    if watched.view.forbidden().is_some() {
        return Ok(Outcome::Done);
    }
    if !watched.view.synced() {
        return Ok(Outcome::RequeueAfter(PREREQUISITE_REQUEUE));
    }
    // The caches advance in one order, so what is read later is at least as new. The object is read last: if the record shows
    // what the garbage collector did, the object shows why.
    let record = record::find(&splitter.caches, &watched, subject);
    let object = watched.get(&subject.key);
    let revision = object.as_ref().map(|object| metadata::text(object, "resourceVersion"));
    tracing::Span::current().record("revision", revision);
    // Objects of a logical cluster that is not in the cache yet are queued again when it is.
    if object.is_some() && splitter.caches.clusters().lineage(subject.cluster()).is_empty() {
        return Ok(Outcome::Done);
    }
    // The record is being deleted because its object was. Another object of the same name may exist already.
    if let Some(record) = record.as_ref().filter(|record| record.metadata.is_being_deleted()) {
        return finalize_record(splitter, &watched, subject, object.as_ref(), record).await;
    }
    let Some(object) = object else {
        return reconcile_deleted(splitter, &watched, subject, record).await;
    };
    let is_another = |record: &&Distribution| object["metadata"]["uid"] != *record.spec.object.uid;
    if let Some(record) = record.as_ref().filter(|record| record::is_orphaned(record)).filter(is_another) {
        return delete_orphaned_record(splitter, subject, record).await;
    }
    // An object that was placed keeps its placement while no physical cluster is visible or reports its kind.
    let had_placement = record.is_some() && matches!(watched.class, KindClass::Workload | KindClass::Custom);
    if had_placement || has_own_placement(splitter, &watched, subject, &object) {
        return reconcile_workload(splitter, &watched, subject, &object, record).await;
    }
    drop_placement(splitter, subject);
    if let Some(record) = &record {
        // The object has no placement of its own any more. Mailbox objects that workloads depend on are kept.
        record::delete(splitter, subject, record).await?;
    }
    match watched.class {
        KindClass::Dependency | KindClass::FollowsPods if !is_being_deleted(&object) => {
            dependencies::reconcile(splitter, &watched, subject, &object).await
        }
        _ => Ok(Outcome::Done),
    }
}

async fn reconcile_workload(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    record: Option<Distribution>,
) -> Result<Outcome, CallError> {
    let policies = splitter.caches.policies(subject.cluster(), &subject.key.namespace);
    // Its mailbox objects are deleted with its record, when the object is gone.
    if is_being_deleted(object) {
        lock(&splitter.placement_index).set_policies(subject, policies);
        if let Some(record) = record.filter(|_| has_finalizer(object, ORPHAN)) {
            events::record_not_orphaned(splitter, subject, &record.spec.object).await?;
        }
        return Ok(Outcome::Done);
    }
    let ttl_left = completed::ttl_left(object, Timestamp::now());
    if ttl_left.is_some_and(|left| left.is_zero()) {
        return delete_expired(splitter, watched, subject, object).await;
    }
    // Registered before the decision, so that capacity that is freed meanwhile requeues the object.
    lock(&splitter.waiting_for_capacity).insert(subject.clone());
    let context = read_workload(splitter, watched, subject, object, record, policies).await?;
    let mut decided = decide_and_reserve(splitter, &context);
    if !decided.is_recorded {
        decided.record = record::commit(splitter, subject, &decided.record).await?;
    }
    log_decision(&context, &decided);
    index_placement(splitter, &context, &decided);
    let plan = plan_mailboxes(&context, &decided);
    let propagation = propagate::propagate(splitter, &context, plan).await?;
    if !decided.waits_for_capacity() {
        lock(&splitter.waiting_for_capacity).remove(subject);
    }
    if propagation.wrote {
        // The status is written once the caches have observed the writes. Writing it now would write it twice.
        return Ok(AGAIN);
    }
    aggregate::aggregate_status(splitter, &context, &decided, &propagation.problems).await?;
    if propagation.unfinished {
        return Ok(Outcome::Failed);
    }
    Ok(match decided.step {
        // The next step follows as soon as the caches have observed the record.
        MigrationStep::Started | MigrationStep::Finished => AGAIN,
        MigrationStep::Waiting { .. } | MigrationStep::Overdue { .. } => {
            Outcome::RequeueAfter(MIGRATION_REQUEUE)
        }
        MigrationStep::Settled => {
            let requeue_after = [context.estimates.requeue_after, ttl_left, context.degraded.requeue_after]
                .into_iter()
                .flatten()
                .min();
            requeue_after.map_or(Outcome::Done, Outcome::RequeueAfter)
        }
    })
}

/// Decides and reserves the capacity under one lock, so that two decisions cannot use the same capacity.
fn decide_and_reserve(splitter: &Splitter, context: &PlacementContext) -> PlacementDecision {
    let mut reservations = lock(&splitter.reservations);
    let decided = decide(context, &reservations, &lock(&splitter.placement_index));
    let targets = &decided.record.spec.targets;
    if decided.reservation.reserve(&mut reservations, context.subject, targets) {
        splitter.enqueue_waiting_for_capacity();
    }
    decided
}

/// Logs a decision that changed the targets of an object, with the targets before and after, and the reason.
fn log_decision(context: &PlacementContext, decided: &PlacementDecision) {
    let (before, record) = (context.recorded(), &decided.record);
    let now = &record.spec.targets;
    // The order of the targets is that of their ordinals, and moves nothing.
    let clusters = |targets: &[Target]| -> BTreeMap<String, Role> {
        targets.iter().map(|target| (target.cluster.clone(), target.role)).collect()
    };
    let decision = match before {
        _ if before == now => return,
        [] => "placed",
        _ if clusters(before) == clusters(now) => {
            tracing::debug!(from = sentence(before), to = sentence(now), "rescaled");
            return;
        }
        _ => "moved",
    };
    let chosen_by = &record.spec.chosen_by;
    let reason =
        decided.unplaced.clone().unwrap_or_else(|| format!("{:?} {}", chosen_by.source, chosen_by.name));
    tracing::info!(
        revision = record.metadata.resource_version,
        from = sentence(before),
        to = sentence(now),
        reason = reason.trim_end(),
        "{decision}"
    );
}

/// Deletes a completed Job whose TTL is over. Its mailbox objects are deleted with its record.
async fn delete_expired(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
) -> Result<Outcome, CallError> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let place = ObjectPath::new(&watched.kind, &subject.key.namespace, &subject.key.name);
    splitter.caches.server.within(subject.cluster()).delete(place, uid).await?;
    Ok(Outcome::Done)
}

/// Updates the placement index. If the entry of the object changed, queues its dependencies, the objects that follow its
/// pods, and migrating workloads of its namespace.
fn index_placement(splitter: &Splitter, context: &PlacementContext, decided: &PlacementDecision) {
    let mut entry = PlacementEntry::of(context.object, Some(&decided.record));
    entry.pod_counts = context.pods(&entry.targets, &decided.plan);
    entry.policies = context.policies;
    if entry.is_moving() {
        let ready = context.readiness.iter().filter(|(_, readiness)| **readiness == Readiness::Ready);
        entry.ready = ready.map(|(cluster, _)| cluster.clone()).collect();
    }
    let (cluster, namespace) = (context.subject.cluster(), &context.subject.key.namespace);
    let mut before = lock(&splitter.placement_index).put(context.subject, entry.clone());
    let unblocks = |before: &PlacementEntry| {
        before.policies != entry.policies || entry.is_moving() && before.ready != entry.ready
    };
    if before.as_ref().is_none_or(unblocks) {
        let siblings: Vec<ObjectRef> = lock(&splitter.placement_index)
            .within(cluster, namespace)
            .filter(|(other, entry)| *other != context.subject && entry.is_moving())
            .map(|(other, _)| other.clone())
            .collect();
        siblings.into_iter().for_each(|other| splitter.queue.add(WorkItem::Object(other)));
    }
    if let Some(before) = &mut before {
        before.policies = entry.policies;
    }
    if before.as_ref() == Some(&entry) {
        return;
    }
    splitter.enqueue_changed_targets(cluster, before.as_ref(), Some(&entry));
    let needs = entry.dependencies.iter().chain(before.iter().flat_map(|before| &before.dependencies));
    needs.for_each(|need| dependencies::enqueue_dependency(splitter, context.subject, need));
    api_access::enqueue_accounts(splitter, context.subject, &[Some(&entry), before.as_ref()]);
    let following_kinds =
        splitter.caches.watched_kinds().into_iter().filter(|watched| watched.class == KindClass::FollowsPods);
    following_kinds.for_each(|watched| splitter.enqueue_kind_in_namespace(&watched.name, cluster, namespace));
    splitter.queue.add(WorkItem::Namespace(cluster, namespace.clone()));
    splitter.queue.add(WorkItem::Nodes(cluster));
}

/// Removes an object that has no placement of its own any more from the index, and releases its capacity.
fn drop_placement(splitter: &Splitter, subject: &ObjectRef) {
    let Some(before) = lock(&splitter.placement_index).remove(subject) else { return };
    if lock(&splitter.reservations).forget(subject) {
        splitter.enqueue_waiting_for_capacity();
    }
    splitter.enqueue_changed_targets(subject.cluster(), Some(&before), None);
    before.dependencies.iter().for_each(|need| dependencies::enqueue_dependency(splitter, subject, need));
    api_access::enqueue_accounts(splitter, subject, &[Some(&before)]);
    let (cluster, namespace) = (subject.cluster(), &subject.key.namespace);
    let following_kinds =
        splitter.caches.watched_kinds().into_iter().filter(|watched| watched.class == KindClass::FollowsPods);
    following_kinds.for_each(|watched| splitter.enqueue_kind_in_namespace(&watched.name, cluster, namespace));
    splitter.queue.add(WorkItem::Namespace(cluster, namespace.clone()));
    splitter.queue.add(WorkItem::Nodes(cluster));
    if lock(&splitter.placement_index).within(cluster, namespace).next().is_none() {
        lock(&splitter.reservations).forget_default(cluster, namespace);
    }
}

/// The record of an object is being deleted. If the object was deleted too, its mailbox objects are deleted; otherwise
/// the record is written again.
async fn finalize_record(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: Option<&Value>,
    record: &Distribution,
) -> Result<Outcome, CallError> {
    let is_same = |object: &&Value| object["metadata"]["uid"] == *record.spec.object.uid;
    if let Some(object) = object.filter(is_same) {
        let spec = record.spec.clone();
        record::release(splitter, subject, record).await?;
        if !has_own_placement(splitter, watched, subject, object) {
            return Ok(AGAIN);
        }
        let effective = record.metadata.annotations.get(api::names::PLACEMENT_HASH).cloned();
        let anew = record::written(watched, object, None, spec, &[(api::names::PLACEMENT_HASH, effective)]);
        record::commit(splitter, subject, &anew).await?;
        return Ok(Outcome::Done);
    }
    let mailbox_objects = mailbox_objects::list(&splitter.caches, watched, subject);
    for mailbox_object in mailbox_objects.iter().filter(|mailbox_object| is_of_record(mailbox_object, record))
    {
        propagate::delete(splitter, watched, subject, mailbox_object, "the user deleted the object").await?;
    }
    record::release(splitter, subject, record).await?;
    if object.is_none() {
        drop_placement(splitter, subject);
    }
    Ok(Outcome::Done)
}

/// The finalizer of an object that was deleted with propagation policy Orphan.
const ORPHAN: &str = "orphan";

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    metadata::finalizers(object).any(|found| found == finalizer)
}

/// Reads an object from the server, which may be newer than the cache.
async fn get_live(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
) -> Result<Option<Value>, CallError> {
    let place = ObjectPath::new(&watched.kind, &subject.key.namespace, &subject.key.name);
    splitter.caches.server.within(subject.cluster()).get(place).await
}

fn is_of_record(mailbox_object: &MailboxObject, record: &Distribution) -> bool {
    let of = mailbox_object.object.as_ref().and_then(mailbox_objects::locator);
    of.is_some_and(|of| of.uid == record.spec.object.uid)
}

/// The object was deleted with propagation policy Orphan. The record is one of its dependents, so the garbage collector
/// keeps it. Without a record the splitter would not know where the ConfigMaps, Secrets and Services of the pods have to
/// be, so pods do not outlive their workload: the mailbox objects are deleted as with propagation policy Background, and
/// an Event tells the user.
async fn delete_orphaned_record(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<Outcome, CallError> {
    events::record_not_orphaned(splitter, subject, &record.spec.object).await?;
    record::delete(splitter, subject, record).await?;
    Ok(Outcome::Done)
}

/// The object does not exist. With a record, the deletion of the record decides about the mailbox objects; without one,
/// they are deleted once the server has confirmed that the object does not exist.
async fn reconcile_deleted(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    record: Option<Distribution>,
) -> Result<Outcome, CallError> {
    if let Some(record) = record {
        if record::is_orphaned(&record) {
            return delete_orphaned_record(splitter, subject, &record).await;
        }
        // The garbage collector cannot look up owners of a kind that is no longer defined.
        if watched.class == KindClass::Custom && !definitions::is_defined(splitter, watched, subject).await? {
            record::delete(splitter, subject, &record).await?;
        }
        return Ok(Outcome::Done);
    }
    drop_placement(splitter, subject);
    let mailbox_objects = mailbox_objects::list(&splitter.caches, watched, subject);
    let left: Vec<&MailboxObject> = mailbox_objects
        .iter()
        .filter(|mailbox_object| mailbox_object.object.is_some() && !mailbox_object.is_being_deleted())
        .collect();
    if left.is_empty() {
        return Ok(Outcome::Done);
    }
    // The cache and the server lack an object that its logical cluster serves in another version only.
    if definitions::is_served_otherwise(splitter, watched, subject) {
        return Ok(Outcome::Done);
    }
    if get_live(splitter, watched, subject).await?.is_some() {
        return Ok(Outcome::Failed);
    }
    for mailbox_object in left {
        propagate::delete(splitter, watched, subject, mailbox_object, "the object does not exist").await?;
    }
    Ok(Outcome::Done)
}

impl Splitter {
    /// Loads all recorded placements into the index, once, when the caches have synced for the first time.
    pub(crate) fn index_recorded_placements(&self) {
        if lock(&self.reservations).is_complete {
            return;
        }
        for watched in self.caches.watched_kinds() {
            if !matches!(watched.class, KindClass::Workload | KindClass::Custom) {
                continue;
            }
            for key in watched.view.keys() {
                let subject = ObjectRef { kind: watched.name.clone(), key };
                if !self.caches.is_mailbox(subject.cluster()) {
                    self.index_recorded(&watched, &subject);
                }
            }
        }
        lock(&self.reservations).is_complete = true;
    }

    fn index_recorded(&self, watched: &WatchedKind, subject: &ObjectRef) {
        let Some(record) = record::find(&self.caches, watched, subject) else { return };
        let Some(object) = watched.get(&subject.key) else { return };
        if !has_own_placement(self, watched, subject, &object) {
            return;
        }
        let mut entry = PlacementEntry::of(&object, Some(&record));
        let counter = PodCounter {
            object: &object,
            rule: watched.rule(&object),
            replicas_at: watched.replicas_at.as_deref().unwrap_or(REPLICAS),
            is_autoscaled: related::scaled_to(&self.caches, subject, &object).is_some(),
        };
        let mailbox_objects = mailbox_objects::list(&self.caches, watched, subject);
        let count = |target: &Target| {
            let mailbox_object =
                mailbox_objects.iter().find(|mailbox_object| mailbox_object.is_at(&target.cluster));
            Some((target.cluster.clone(), counter.at(target, mailbox_object, None)?))
        };
        entry.pod_counts = entry.targets.iter().filter_map(count).collect();
        let each = pod_spec_at(&object).and_then(|at| object.pointer(at)).map(quantity::asked_by);
        let members = self.visible_from(subject.cluster());
        let mut reservations = lock(&self.reservations);
        reservations.set(
            subject,
            reservations::target_requests(
                &each.unwrap_or_default(),
                &entry.targets,
                &members,
                &entry.pod_counts,
            ),
        );
        reservations.mount(subject, &references::claims(&object), &entry.targets);
        if let Some(target) = entry.targets.first().filter(|_| entry.by_default) {
            reservations.set_default(subject.cluster(), &subject.key.namespace, &target.cluster);
        }
        drop(reservations);
        api_access::enqueue_accounts(self, subject, &[Some(&entry)]);
        lock(&self.placement_index).put(subject, entry);
    }
}
