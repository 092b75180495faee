//! One object, looked after.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::cluster::Id;
use api::fleet::{Distribution, Role, Target};
use api::meta::quantity;
use api::meta::{is_being_deleted, metadata};
use api::names::{PLACEMENT, PROJECTED, TRUE};
use controller::informer::{Key, View};
use controller::queue::Outcome;
use controller::remote::{CallError, Place};
use jiff::Timestamp;
use serde_json::Value;

use crate::controller::{Splitter, WorkItem, lock};
use crate::division::REPLICAS;
use crate::execute::aggregate;
use crate::execute::api_access;
use crate::execute::definitions;
use crate::execute::dependencies;
use crate::execute::events;
use crate::execute::propagate;
use crate::execute::record;
use crate::placement::context::PlacementContext;
use crate::placement::decide::{PlacementDecision, decide};
use crate::placement::explain::sentence;
use crate::placement::grants;
use crate::placement::migration::MigrationStep;
use crate::placement::reservations;
use crate::snapshot::freshness;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::placement_index::PlacementEntry;
use crate::snapshot::pod_count::PodCounter;
use crate::snapshot::{KindClass, MemberCluster, ObjectRef, WatchedKind};
use crate::status::completed;
use crate::status::degraded::DegradedTargets;
use crate::transform::references::{self, pod_spec_at};

/// Until what was written is seen.
pub(crate) const OWN_WRITE_REQUEUE: Duration = Duration::from_millis(5);
/// Until what comes first has been done.
pub(crate) const PREREQUISITE_REQUEUE: Duration = Duration::from_millis(50);
/// While something moves, in case nobody says that it has arrived.
const MIGRATION_REQUEUE: Duration = Duration::from_secs(10);

/// After this long a write that is not seen has been undone by somebody.
const UNOBSERVED_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What was written and is not in the views yet, by the object it was written for. Deciding on what one's own writes have
/// overtaken would ask for things twice.
#[derive(Debug, Default)]
pub(crate) struct WriteExpectations(Mutex<HashMap<ObjectRef, Vec<Write>>>);

#[derive(Debug)]
struct Write {
    view: Arc<View>,
    key: Key,
    version: u64,
    at: Instant,
}

impl WriteExpectations {
    /// Something was written, as the server answered.
    pub(crate) fn expect_write(&self, subject: &ObjectRef, view: &Arc<View>, cluster: Id, written: &Value) {
        let text = |field: &str| written["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key { cluster: Some(cluster), namespace: text("namespace"), name: text("name") };
        let version = text("resourceVersion").parse().unwrap_or_default();
        let write = Write { view: view.clone(), key, version, at: Instant::now() };
        lock(&self.0).entry(subject.clone()).or_default().push(write);
    }

    /// Whether something is still to be seen. What is seen is forgotten.
    pub(crate) fn is_pending(&self, subject: &ObjectRef) -> bool {
        let mut expectations = lock(&self.0);
        let Some(writes) = expectations.get_mut(subject) else { return false };
        writes.retain(|write| {
            let seen = write.view.get(&write.key).and_then(|object| object.version.parse::<u64>().ok());
            seen.is_none_or(|seen| seen < write.version) && write.at.elapsed() < UNOBSERVED_WRITE_TIMEOUT
        });
        let waits = !writes.is_empty();
        if !waits {
            expectations.remove(subject);
        }
        waits
    }
}

/// Looks after a user's object: whether it is decided about, goes along with others, or is gone.
pub(crate) async fn reconcile_object(splitter: &Splitter, subject: &ObjectRef) -> Result<Outcome, CallError> {
    let Some(watched) = splitter.caches.by_resource(&subject.kind) else { return Ok(Outcome::Done) };
    // What is in a mailbox is nobody's wish.
    if splitter.caches.is_mailbox(subject.cluster()) {
        return Ok(Outcome::Done);
    }
    if !watched.view.synced() || splitter.expectations.is_pending(subject) {
        return Ok(Outcome::Again(OWN_WRITE_REQUEUE));
    }
    splitter.index_recorded_placements();
    let object = watched.get(&subject.key);
    let revision = object.as_ref().map(|object| metadata::text(object, "resourceVersion"));
    tracing::Span::current().record("revision", revision);
    // What is in a logical cluster that is not known yet is heard of again when it is. What was in one that is gone, is gone.
    if object.is_some() && splitter.caches.clusters().lineage(subject.cluster()).is_empty() {
        return Ok(Outcome::Done);
    }
    let record = record::find(splitter, &watched, subject);
    // Somebody wants the copies of an object gone: it was deleted, and another of its name may be there already.
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
    // Without any cluster, or of a kind that none reports at the moment, it is still what it was when it was decided about.
    let had_placement = record.is_some() && matches!(watched.class, KindClass::Workload | KindClass::Custom);
    if had_placement || has_own_placement(splitter, &watched, subject, &object) {
        return reconcile_workload(splitter, &watched, subject, &object, record).await;
    }
    drop_placement(splitter, subject);
    if let Some(record) = &record {
        // It goes along with others from now on; its copies stay where they are needed.
        record::delete(splitter, subject, record).await?;
    }
    match watched.class {
        KindClass::Dependency | KindClass::FollowsPods if !is_being_deleted(&object) => {
            dependencies::reconcile(splitter, &watched, subject, &object).await
        }
        _ => Ok(Outcome::Done),
    }
}

/// Whether an object is decided about by itself.
pub(crate) fn has_own_placement(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
) -> bool {
    let metadata = &object["metadata"];
    if metadata["labels"][PROJECTED] == TRUE {
        return false;
    }
    let members = splitter.visible_from(subject.cluster());
    // Where there is nothing to run anything on, a logical cluster is an API and no more.
    if members.is_empty() {
        return false;
    }
    let asks = metadata["annotations"][PLACEMENT].is_string();
    match watched.class {
        KindClass::Workload => !is_owned_by_workload(object),
        KindClass::Custom => {
            let served = |member: &Arc<MemberCluster>| {
                let status = member.object.status.as_ref();
                let kinds = status.map_or(&[][..], |status| &status.kinds);
                kinds.iter().any(|kind| kind.group == watched.kind.group && kind.kind == watched.kind.name)
            };
            asks || members.iter().any(served)
        }
        KindClass::Dependency | KindClass::FollowsPods => asks,
        KindClass::Projected => false,
    }
}

/// Kinds of which one makes the other: whoever decides about the first has decided about the second.
const WORKLOAD_OWNERS: &[&str] =
    &["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"];

fn is_owned_by_workload(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| {
        owner["controller"] == true
            && owner["kind"].as_str().is_some_and(|kind| WORKLOAD_OWNERS.contains(&kind))
    })
}

async fn reconcile_workload(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    record: Option<Distribution>,
) -> Result<Outcome, CallError> {
    // It goes in its own time; what is below stays until then.
    if is_being_deleted(object) {
        return Ok(Outcome::Done);
    }
    let ttl_left = completed::ttl_left(object, Timestamp::now());
    if ttl_left.is_some_and(|left| left.is_zero()) {
        return delete_expired(splitter, watched, subject, object).await;
    }
    // Before anything is looked up: what is looked up is what was asked about, or newer.
    if record.is_none() && freshness::is_behind(splitter, subject).await? {
        return Ok(Outcome::Again(OWN_WRITE_REQUEUE));
    }
    let caches = &splitter.caches;
    let cluster = subject.cluster();
    // From now on it hears of room, also of what there is while it is decided about.
    lock(&splitter.waiting_for_capacity).insert(subject.clone());
    let copies = mailbox_objects::list_current(caches, watched, subject, object);
    let members = splitter.visible_from(cluster);
    let api_access = api_access::of(splitter, subject, object, &copies).await?;
    let context = PlacementContext {
        watched,
        subject,
        object,
        record,
        copies,
        namespace: caches.namespace(cluster, &subject.key.namespace),
        placements: caches.list_own(&caches.config.placements, cluster),
        overrides: caches.list_own(&caches.config.overrides, cluster),
        refused: grants::refused(splitter, cluster, &members).await?,
        members,
        scaled_to: dependencies::scaled_to(splitter, subject, object),
        claims: dependencies::claims(splitter, subject, object),
        api_access,
        terminating_pods: BTreeMap::new(),
        degraded: DegradedTargets::default(),
        templates: BTreeMap::new(),
    }
    .with_terminating_pods(splitter)
    .with_templates()
    .with_degraded(splitter);
    let decided = decide(splitter, &context).await?;
    log_decision(&context, &decided);
    index_placement(splitter, &context, &decided);
    let propagation = propagate::propagate(splitter, &context, &decided).await?;
    if !decided.wants_room() {
        lock(&splitter.waiting_for_capacity).remove(subject);
    }
    if propagation.wrote {
        // What came of it is told once that is seen. To tell before that it was sent would be to write twice.
        return Ok(Outcome::Again(OWN_WRITE_REQUEUE));
    }
    aggregate::aggregate_status(splitter, &context, &decided, &propagation.problems).await?;
    if propagation.unfinished {
        return Ok(Outcome::Failed);
    }
    Ok(match decided.step {
        // What is marked is carried on with as soon as the mark is seen.
        MigrationStep::Started | MigrationStep::Finished => Outcome::Again(OWN_WRITE_REQUEUE),
        MigrationStep::Waiting { .. } | MigrationStep::Overdue { .. } => Outcome::Again(MIGRATION_REQUEUE),
        MigrationStep::Settled => {
            let again = decided.again.into_iter().chain(ttl_left).chain(context.degraded.again).min();
            again.map_or(Outcome::Done, Outcome::Again)
        }
    })
}

/// Logs a decision that changed the targets of an object, with the targets before and after, and the reason.
fn log_decision(context: &PlacementContext, decided: &PlacementDecision) {
    let (before, record) = (context.recorded(), &decided.record);
    let now = &record.spec.targets;
    let clusters = |targets: &[Target]| -> Vec<(String, Role)> {
        targets.iter().map(|target| (target.cluster.clone(), target.role)).collect()
    };
    let decision = match before {
        _ if before == now => return,
        [] => "placed",
        _ if clusters(before) == clusters(now) => "rescaled",
        _ => "moved",
    };
    let chosen_by = &record.spec.chosen_by;
    let reason =
        decided.unplaced.clone().unwrap_or_else(|| format!("{:?} {}", chosen_by.source, chosen_by.name));
    tracing::info!(
        object = %context.subject,
        logical_cluster = %context.subject.cluster(),
        revision = record.metadata.resource_version,
        from = sentence(before),
        to = sentence(now),
        reason = reason.trim_end(),
        "{decision}"
    );
}

/// Deletes what has ended long enough ago. What came of it below goes with its record.
async fn delete_expired(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
) -> Result<Outcome, CallError> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let place = Place::new(&watched.kind, &subject.key.namespace, &subject.key.name);
    splitter.caches.server.within(subject.cluster()).delete(place, uid).await?;
    Ok(Outcome::Done)
}

/// Writes down where it is and what it needs, and looks after what goes along if that is new.
fn index_placement(splitter: &Splitter, context: &PlacementContext, decided: &PlacementDecision) {
    let mut entry = PlacementEntry::of(context.object, Some(&decided.record));
    entry.pod_counts = context.pods(&entry.targets, &decided.plan);
    if entry.is_moving() {
        let ready = crate::placement::decide::readiness(context);
        entry.ready = ready
            .into_iter()
            .filter(|(_, readiness)| *readiness == crate::placement::migration::Readiness::Ready)
            .map(|(cluster, _)| cluster)
            .collect();
    }
    let (cluster, namespace) = (context.subject.cluster(), &context.subject.key.namespace);
    let before = lock(&splitter.placement_index).put(context.subject, entry.clone());
    if before.as_ref() == Some(&entry) {
        return;
    }
    splitter.enqueue_changed_targets(cluster, before.as_ref(), Some(&entry));
    let needs = entry.dependencies.iter().chain(before.iter().flat_map(|before| &before.dependencies));
    needs.for_each(|need| dependencies::enqueue_dependency(splitter, context.subject, need));
    api_access::enqueue_accounts(splitter, context.subject, &[Some(&entry), before.as_ref()]);
    let about =
        splitter.caches.watched_kinds().into_iter().filter(|watched| watched.class == KindClass::FollowsPods);
    about.for_each(|watched| splitter.enqueue_kind_in_namespace(&watched.name, cluster, namespace));
    splitter.queue.add(WorkItem::Namespace(cluster, namespace.clone()));
    splitter.queue.add(WorkItem::Nodes(cluster));
    if entry.is_moving() && before.is_none_or(|before| before.ready != entry.ready) {
        let siblings: Vec<ObjectRef> = lock(&splitter.placement_index)
            .within(cluster, namespace)
            .filter(|(other, entry)| *other != context.subject && entry.is_moving())
            .map(|(other, _)| other.clone())
            .collect();
        siblings.into_iter().for_each(|other| splitter.queue.add(WorkItem::Object(other)));
    }
}

/// It is not decided about any more.
fn drop_placement(splitter: &Splitter, subject: &ObjectRef) {
    let Some(before) = lock(&splitter.placement_index).remove(subject) else { return };
    if lock(&splitter.reservations).forget(subject) {
        splitter.enqueue_waiting_for_capacity();
    }
    splitter.enqueue_changed_targets(subject.cluster(), Some(&before), None);
    before.dependencies.iter().for_each(|need| dependencies::enqueue_dependency(splitter, subject, need));
    api_access::enqueue_accounts(splitter, subject, &[Some(&before)]);
    let (cluster, namespace) = (subject.cluster(), &subject.key.namespace);
    let about =
        splitter.caches.watched_kinds().into_iter().filter(|watched| watched.class == KindClass::FollowsPods);
    about.for_each(|watched| splitter.enqueue_kind_in_namespace(&watched.name, cluster, namespace));
    splitter.queue.add(WorkItem::Namespace(cluster, namespace.clone()));
    splitter.queue.add(WorkItem::Nodes(cluster));
    if lock(&splitter.placement_index).within(cluster, namespace).next().is_none() {
        lock(&splitter.reservations).forget_default(cluster, namespace);
    }
}

/// The record of an object is being deleted. If the object is, too, its copies go; otherwise it is recorded anew.
async fn finalize_record(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: Option<&Value>,
    record: &Distribution,
) -> Result<Outcome, CallError> {
    let is_same = |object: &&Value| object["metadata"]["uid"] == *record.spec.object.uid;
    if let Some(object) = object.filter(is_same) {
        // Kinds are followed one by one: that it is gone may have been seen of its record first.
        let present = get_live(splitter, watched, subject).await?;
        if present.is_none_or(|present| present["metadata"]["uid"] != object["metadata"]["uid"]) {
            return Ok(Outcome::Failed);
        }
        let spec = record.spec.clone();
        record::release(splitter, subject, record).await?;
        if !has_own_placement(splitter, watched, subject, object) {
            return Ok(Outcome::Again(OWN_WRITE_REQUEUE));
        }
        let effective = record.metadata.annotations.get(api::names::WISH).cloned();
        let anew = record::written(watched, object, None, spec, &[(api::names::WISH, effective)]);
        record::commit(splitter, subject, &anew).await?;
        return Ok(Outcome::Done);
    }
    let copies = mailbox_objects::list(&splitter.caches, watched, subject);
    for copy in copies.iter().filter(|copy| is_of_record(copy, record)) {
        propagate::delete(splitter, watched, subject, copy, "the user deleted the object").await?;
    }
    record::release(splitter, subject, record).await?;
    if object.is_none() {
        drop_placement(splitter, subject);
    }
    Ok(Outcome::Done)
}

/// An object as the server has it now, which may not have been seen yet.
async fn get_live(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
) -> Result<Option<Value>, CallError> {
    let place = Place::new(&watched.kind, &subject.key.namespace, &subject.key.name);
    splitter.caches.server.within(subject.cluster()).get(place).await
}

fn is_of_record(copy: &MailboxObject, record: &Distribution) -> bool {
    let of = copy.object.as_ref().and_then(mailbox_objects::locator);
    of.is_some_and(|of| of.uid == record.spec.object.uid)
}

/// The object of a record was deleted without its dependents. The record is one of them, so nobody else deletes it, and
/// without a record nothing says where the pods' ConfigMaps, Secrets and Services have to be. So pods do not outlive their
/// workload: the copies go as if the deletion had asked for propagation in the background, and the user is told.
async fn delete_orphaned_record(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<Outcome, CallError> {
    events::record_not_orphaned(splitter, subject, &record.spec.object).await?;
    record::delete(splitter, subject, record).await?;
    Ok(Outcome::Done)
}

/// It is not there. With a record, the record's own end says what becomes of its copies; without one, its copies go once
/// the server has said that it is not there.
async fn reconcile_deleted(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    record: Option<Distribution>,
) -> Result<Outcome, CallError> {
    if let Some(record) = record {
        if record::is_orphaned(&record) && get_live(splitter, watched, subject).await?.is_none() {
            return delete_orphaned_record(splitter, subject, &record).await;
        }
        // Of a kind that is not defined any more nobody else can say that the owner of something is gone.
        if watched.class == KindClass::Custom && !definitions::is_defined(splitter, watched, subject).await? {
            record::delete(splitter, subject, &record).await?;
        }
        return Ok(Outcome::Done);
    }
    drop_placement(splitter, subject);
    let copies = mailbox_objects::list(&splitter.caches, watched, subject);
    let left: Vec<&MailboxObject> =
        copies.iter().filter(|copy| copy.object.is_some() && !copy.is_being_deleted()).collect();
    if left.is_empty() {
        return Ok(Outcome::Done);
    }
    if get_live(splitter, watched, subject).await?.is_some() {
        return Ok(Outcome::Again(OWN_WRITE_REQUEUE));
    }
    for copy in left {
        propagate::delete(splitter, watched, subject, copy, "the object does not exist").await?;
    }
    Ok(Outcome::Done)
}

impl Splitter {
    /// The physical clusters that can be used from a logical cluster.
    pub(crate) fn visible_from(&self, cluster: Id) -> Vec<Arc<MemberCluster>> {
        let clusters = self.caches.clusters();
        self.caches.members().visible_from(cluster, &clusters)
    }

    /// Enters all that was recorded before, once, when everything is known for the first time.
    fn index_recorded_placements(&self) {
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
        let Some(record) = record::find(self, watched, subject) else { return };
        let Some(object) = watched.get(&subject.key) else { return };
        if !has_own_placement(self, watched, subject, &object) {
            return;
        }
        let mut entry = PlacementEntry::of(&object, Some(&record));
        let counter = PodCounter {
            object: &object,
            rule: watched.rule(&object),
            replicas_at: watched.replicas_at.as_deref().unwrap_or(REPLICAS),
            is_autoscaled: dependencies::scaled_to(self, subject, &object).is_some(),
        };
        let copies = mailbox_objects::list(&self.caches, watched, subject);
        let count = |target: &Target| {
            let copy = copies.iter().find(|copy| copy.is_at(&target.cluster));
            Some((target.cluster.clone(), counter.at(target, copy, None)?))
        };
        entry.pod_counts = entry.targets.iter().filter_map(count).collect();
        let each = pod_spec_at(&object).and_then(|at| object.pointer(at)).map(quantity::asked_by);
        let members = self.visible_from(subject.cluster());
        let mut reservations = lock(&self.reservations);
        reservations.set(
            subject,
            reservations::asks(&each.unwrap_or_default(), &entry.targets, &members, &entry.pod_counts),
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
