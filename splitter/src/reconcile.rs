//! One object, looked after.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::cluster::Id;
use api::fleet::{Distribution, Target};
use api::meta::is_being_deleted;
use api::meta::quantity;
use api::names::{PLACEMENT, PROJECTED, TRUE};
use controller::informer::{Key, View};
use controller::queue::Outcome;
use controller::remote::{CallError, Place};
use jiff::Timestamp;
use serde_json::Value;

use crate::controller::{Item, Splitter, lock};
use crate::division::REPLICAS;
use crate::execute::aggregate;
use crate::execute::api_access;
use crate::execute::definitions;
use crate::execute::dependencies;
use crate::execute::events;
use crate::execute::propagate;
use crate::execute::record;
use crate::placement::context::Case;
use crate::placement::decide::{Decided, decide};
use crate::placement::grants;
use crate::placement::migration::Step;
use crate::placement::reservations;
use crate::snapshot::freshness;
use crate::snapshot::mailbox_objects::{self, Copy};
use crate::snapshot::placement_index::Entry;
use crate::snapshot::pod_count::Crowd;
use crate::snapshot::{Class, Followed, Member, Subject};
use crate::status::completed;
use crate::status::degraded::Ailing;
use crate::transform::references::{self, pod_spec_at};

/// Until what was written is seen.
pub(crate) const MOMENT: Duration = Duration::from_millis(5);
/// Until what comes first has been done.
pub(crate) const SOON: Duration = Duration::from_millis(50);
/// While something moves, in case nobody says that it has arrived.
const STILL_MOVING: Duration = Duration::from_secs(10);

/// After this long a write that is not seen has been undone by somebody.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// What was written and is not in the views yet, by the object it was written for. Deciding on what one's own writes have
/// overtaken would ask for things twice.
#[derive(Debug, Default)]
pub(crate) struct Unseen(Mutex<HashMap<Subject, Vec<Write>>>);

#[derive(Debug)]
struct Write {
    view: Arc<View>,
    key: Key,
    version: u64,
    at: Instant,
}

impl Unseen {
    /// Something was written, as the server answered.
    pub(crate) fn wrote(&self, subject: &Subject, view: &Arc<View>, cluster: Id, written: &Value) {
        let text = |field: &str| written["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key { cluster: Some(cluster), namespace: text("namespace"), name: text("name") };
        let version = text("resourceVersion").parse().unwrap_or_default();
        let write = Write { view: view.clone(), key, version, at: Instant::now() };
        lock(&self.0).entry(subject.clone()).or_default().push(write);
    }

    /// Whether something is still to be seen. What is seen is forgotten.
    pub(crate) fn waits(&self, subject: &Subject) -> bool {
        let mut unseen = lock(&self.0);
        let Some(writes) = unseen.get_mut(subject) else { return false };
        writes.retain(|write| {
            let seen = write.view.get(&write.key).and_then(|object| object.version.parse::<u64>().ok());
            seen.is_none_or(|seen| seen < write.version) && write.at.elapsed() < LOST_AFTER
        });
        let waits = !writes.is_empty();
        if !waits {
            unseen.remove(subject);
        }
        waits
    }
}

/// Looks after a user's object: whether it is decided about, goes along with others, or is gone.
pub(crate) async fn look(splitter: &Splitter, subject: &Subject) -> Result<Outcome, CallError> {
    let Some(followed) = splitter.world.kind(&subject.kind) else { return Ok(Outcome::Done) };
    // What is in a mailbox is nobody's wish.
    if splitter.world.is_mailbox(subject.cluster()) {
        return Ok(Outcome::Done);
    }
    if !followed.view.synced() || splitter.unseen.waits(subject) {
        return Ok(Outcome::Again(MOMENT));
    }
    splitter.prepare();
    let object = followed.get(&subject.key);
    // What is in a logical cluster that is not known yet is heard of again when it is. What was in one that is gone, is gone.
    if object.is_some() && splitter.world.clusters().lineage(subject.cluster()).is_empty() {
        return Ok(Outcome::Done);
    }
    let record = record::find(splitter, &followed, subject);
    // Somebody wants the copies of an object gone: it was deleted, and another of its name may be there already.
    if let Some(record) = record.as_ref().filter(|record| record::is_leaving(record)) {
        return leave(splitter, &followed, subject, object.as_ref(), record).await;
    }
    let Some(object) = object else {
        return gone(splitter, &followed, subject, record).await;
    };
    let is_another = |record: &&Distribution| object["metadata"]["uid"] != *record.spec.object.uid;
    if let Some(record) = record.as_ref().filter(|record| record::is_orphaned(record)).filter(is_another) {
        return abandon(splitter, subject, record).await;
    }
    // Without any cluster, or of a kind that none reports at the moment, it is still what it was when it was decided about.
    let was_decided = record.is_some() && matches!(followed.class, Class::Work | Class::Custom);
    if was_decided || is_decided(splitter, &followed, subject, &object) {
        return decided(splitter, &followed, subject, &object, record).await;
    }
    forget(splitter, subject);
    if let Some(record) = &record {
        // It goes along with others from now on; its copies stay where they are needed.
        record::delete(splitter, subject, record).await?;
    }
    match followed.class {
        Class::Needed | Class::About if !is_being_deleted(&object) => {
            dependencies::look(splitter, &followed, subject, &object).await
        }
        _ => Ok(Outcome::Done),
    }
}

/// Whether an object is decided about by itself.
pub(crate) fn is_decided(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
) -> bool {
    let metadata = &object["metadata"];
    if metadata["labels"][PROJECTED] == TRUE {
        return false;
    }
    let members = splitter.seen_from(subject.cluster());
    // Where there is nothing to run anything on, a logical cluster is an API and no more.
    if members.is_empty() {
        return false;
    }
    let asks = metadata["annotations"][PLACEMENT].is_string();
    match followed.class {
        Class::Work => !is_made_by_another(object),
        Class::Custom => {
            let served = |member: &Arc<Member>| {
                let status = member.object.status.as_ref();
                let kinds = status.map_or(&[][..], |status| &status.kinds);
                kinds.iter().any(|kind| kind.group == followed.kind.group && kind.kind == followed.kind.name)
            };
            asks || members.iter().any(served)
        }
        Class::Needed | Class::About => asks,
        Class::Shown => false,
    }
}

/// Kinds of which one makes the other: whoever decides about the first has decided about the second.
const MAKERS: &[&str] =
    &["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"];

fn is_made_by_another(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| {
        owner["controller"] == true && owner["kind"].as_str().is_some_and(|kind| MAKERS.contains(&kind))
    })
}

async fn decided(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
    record: Option<Distribution>,
) -> Result<Outcome, CallError> {
    // It goes in its own time; what is below stays until then.
    if is_being_deleted(object) {
        return Ok(Outcome::Done);
    }
    let kept_for = completed::kept_for(object, Timestamp::now());
    if kept_for.is_some_and(|left| left.is_zero()) {
        return expire(splitter, followed, subject, object).await;
    }
    // Before anything is looked up: what is looked up is what was asked about, or newer.
    if record.is_none() && freshness::is_behind(splitter, subject).await? {
        return Ok(Outcome::Again(MOMENT));
    }
    let world = &splitter.world;
    let cluster = subject.cluster();
    // From now on it hears of room, also of what there is while it is decided about.
    lock(&splitter.short).insert(subject.clone());
    let copies = mailbox_objects::of_this(world, followed, subject, object);
    let members = splitter.seen_from(cluster);
    let home = api_access::of(splitter, subject, object, &copies).await?;
    let case = Case {
        followed,
        subject,
        object,
        record,
        copies,
        namespace: world.namespace(cluster, &subject.key.namespace),
        placements: world.ours(&world.own.placements, cluster),
        overrides: world.ours(&world.own.overrides, cluster),
        refused: grants::refused(splitter, cluster, &members).await?,
        members,
        scaled_to: dependencies::scaled_to(splitter, subject, object),
        claims: dependencies::claims(splitter, subject, object),
        home,
        lingering: BTreeMap::new(),
        ailing: Ailing::default(),
        templates: BTreeMap::new(),
    }
    .with_lingering(splitter)
    .with_templates()
    .with_ailing(splitter);
    let decided = decide(splitter, &case).await?;
    enter(splitter, &case, &decided);
    let spread = propagate::spread(splitter, &case, &decided).await?;
    if !decided.wants_room() {
        lock(&splitter.short).remove(subject);
    }
    if spread.wrote {
        // What came of it is told once that is seen. To tell before that it was sent would be to write twice.
        return Ok(Outcome::Again(MOMENT));
    }
    aggregate::gather(splitter, &case, &decided, &spread.problems).await?;
    if spread.unfinished {
        return Ok(Outcome::Failed);
    }
    Ok(match decided.step {
        // What is marked is carried on with as soon as the mark is seen.
        Step::Mark | Step::Finish => Outcome::Again(MOMENT),
        Step::Wait { .. } | Step::Overdue { .. } => Outcome::Again(STILL_MOVING),
        Step::Rest => {
            let again = decided.again.into_iter().chain(kept_for).chain(case.ailing.again).min();
            again.map_or(Outcome::Done, Outcome::Again)
        }
    })
}

/// Deletes what has ended long enough ago. What came of it below goes with its record.
async fn expire(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
) -> Result<Outcome, CallError> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let place = Place::new(&followed.kind, &subject.key.namespace, &subject.key.name);
    splitter.world.server.within(subject.cluster()).delete(place, uid).await?;
    Ok(Outcome::Done)
}

/// Writes down where it is and what it needs, and looks after what goes along if that is new.
fn enter(splitter: &Splitter, case: &Case, decided: &Decided) {
    let mut entry = Entry::of(case.object, Some(&decided.record));
    entry.pods = case.pods(&entry.targets, &decided.plan);
    if entry.is_moving() {
        let ready = crate::placement::decide::readiness(case);
        entry.ready = ready
            .into_iter()
            .filter(|(_, readiness)| *readiness == crate::placement::migration::Readiness::Ready)
            .map(|(cluster, _)| cluster)
            .collect();
    }
    let (cluster, namespace) = (case.subject.cluster(), &case.subject.key.namespace);
    let before = lock(&splitter.book).put(case.subject, entry.clone());
    if before.as_ref() == Some(&entry) {
        return;
    }
    splitter.add_members(cluster, before.as_ref(), Some(&entry));
    let needs = entry.needs.iter().chain(before.iter().flat_map(|before| &before.needs));
    needs.for_each(|need| dependencies::add_need(splitter, case.subject, need));
    api_access::add(splitter, case.subject, &[Some(&entry), before.as_ref()]);
    let about = splitter.world.kinds().into_iter().filter(|followed| followed.class == Class::About);
    about.for_each(|followed| splitter.add_kind_in(&followed.name, cluster, namespace));
    splitter.queue.add(Item::Namespace(cluster, namespace.clone()));
    splitter.queue.add(Item::Nodes(cluster));
    if entry.is_moving() && before.is_none_or(|before| before.ready != entry.ready) {
        let siblings: Vec<Subject> = lock(&splitter.book)
            .within(cluster, namespace)
            .filter(|(other, entry)| *other != case.subject && entry.is_moving())
            .map(|(other, _)| other.clone())
            .collect();
        siblings.into_iter().for_each(|other| splitter.queue.add(Item::Object(other)));
    }
}

/// It is not decided about any more.
fn forget(splitter: &Splitter, subject: &Subject) {
    let Some(before) = lock(&splitter.book).remove(subject) else { return };
    if lock(&splitter.ledger).forget(subject) {
        splitter.add_short();
    }
    splitter.add_members(subject.cluster(), Some(&before), None);
    before.needs.iter().for_each(|need| dependencies::add_need(splitter, subject, need));
    api_access::add(splitter, subject, &[Some(&before)]);
    let (cluster, namespace) = (subject.cluster(), &subject.key.namespace);
    let about = splitter.world.kinds().into_iter().filter(|followed| followed.class == Class::About);
    about.for_each(|followed| splitter.add_kind_in(&followed.name, cluster, namespace));
    splitter.queue.add(Item::Namespace(cluster, namespace.clone()));
    splitter.queue.add(Item::Nodes(cluster));
    if lock(&splitter.book).within(cluster, namespace).next().is_none() {
        lock(&splitter.ledger).forget_default(cluster, namespace);
    }
}

/// The record of an object is being deleted. If the object is, too, its copies go; otherwise it is recorded anew.
async fn leave(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: Option<&Value>,
    record: &Distribution,
) -> Result<Outcome, CallError> {
    let is_same = |object: &&Value| object["metadata"]["uid"] == *record.spec.object.uid;
    if let Some(object) = object.filter(is_same) {
        // Kinds are followed one by one: that it is gone may have been seen of its record first.
        let present = ask(splitter, followed, subject).await?;
        if present.is_none_or(|present| present["metadata"]["uid"] != object["metadata"]["uid"]) {
            return Ok(Outcome::Failed);
        }
        let spec = record.spec.clone();
        record::release(splitter, subject, record).await?;
        if !is_decided(splitter, followed, subject, object) {
            return Ok(Outcome::Again(MOMENT));
        }
        let wish = record.metadata.annotations.get(api::names::WISH).cloned();
        let anew = record::written(followed, object, None, spec, &[(api::names::WISH, wish)]);
        record::commit(splitter, subject, &anew).await?;
        return Ok(Outcome::Done);
    }
    let copies = mailbox_objects::of(&splitter.world, followed, subject);
    for copy in copies.iter().filter(|copy| is_of_record(copy, record)) {
        propagate::delete(splitter, followed, subject, copy).await?;
    }
    record::release(splitter, subject, record).await?;
    if object.is_none() {
        forget(splitter, subject);
    }
    Ok(Outcome::Done)
}

/// An object as the server has it now, which may not have been seen yet.
async fn ask(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
) -> Result<Option<Value>, CallError> {
    let place = Place::new(&followed.kind, &subject.key.namespace, &subject.key.name);
    splitter.world.server.within(subject.cluster()).get(place).await
}

fn is_of_record(copy: &Copy, record: &Distribution) -> bool {
    let of = copy.object.as_ref().and_then(mailbox_objects::locator);
    of.is_some_and(|of| of.uid == record.spec.object.uid)
}

/// The object of a record was deleted without its dependents. The record is one of them, so nobody else deletes it, and
/// without a record nothing says where the pods' ConfigMaps, Secrets and Services have to be. So pods do not outlive their
/// workload: the copies go as if the deletion had asked for propagation in the background, and the user is told.
async fn abandon(
    splitter: &Splitter,
    subject: &Subject,
    record: &Distribution,
) -> Result<Outcome, CallError> {
    events::tell_not_orphaned(splitter, subject, &record.spec.object).await?;
    record::delete(splitter, subject, record).await?;
    Ok(Outcome::Done)
}

/// It is not there. With a record, the record's own end says what becomes of its copies; without one, its copies go once
/// the server has said that it is not there.
async fn gone(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    record: Option<Distribution>,
) -> Result<Outcome, CallError> {
    if let Some(record) = record {
        if record::is_orphaned(&record) && ask(splitter, followed, subject).await?.is_none() {
            return abandon(splitter, subject, &record).await;
        }
        // Of a kind that is not defined any more nobody else can say that the owner of something is gone.
        if followed.class == Class::Custom && !definitions::is_defined(splitter, followed, subject).await? {
            record::delete(splitter, subject, &record).await?;
        }
        return Ok(Outcome::Done);
    }
    forget(splitter, subject);
    let copies = mailbox_objects::of(&splitter.world, followed, subject);
    let left: Vec<&Copy> =
        copies.iter().filter(|copy| copy.object.is_some() && !copy.is_being_deleted()).collect();
    if left.is_empty() {
        return Ok(Outcome::Done);
    }
    if ask(splitter, followed, subject).await?.is_some() {
        return Ok(Outcome::Again(MOMENT));
    }
    for copy in left {
        propagate::delete(splitter, followed, subject, copy).await?;
    }
    Ok(Outcome::Done)
}

impl Splitter {
    /// The physical clusters that can be used from a logical cluster.
    pub(crate) fn seen_from(&self, cluster: Id) -> Vec<Arc<Member>> {
        let clusters = self.world.clusters();
        self.world.members().seen_from(cluster, &clusters)
    }

    /// Enters all that was recorded before, once, when everything is known for the first time.
    fn prepare(&self) {
        if lock(&self.ledger).is_complete {
            return;
        }
        for followed in self.world.kinds() {
            if !matches!(followed.class, Class::Work | Class::Custom) {
                continue;
            }
            for key in followed.view.keys() {
                let subject = Subject { kind: followed.name.clone(), key };
                if !self.world.is_mailbox(subject.cluster()) {
                    self.enter_recorded(&followed, &subject);
                }
            }
        }
        lock(&self.ledger).is_complete = true;
    }

    fn enter_recorded(&self, followed: &Followed, subject: &Subject) {
        let Some(record) = record::find(self, followed, subject) else { return };
        let Some(object) = followed.get(&subject.key) else { return };
        if !is_decided(self, followed, subject, &object) {
            return;
        }
        let mut entry = Entry::of(&object, Some(&record));
        let crowd = Crowd {
            object: &object,
            rule: followed.rule(&object),
            replicas_at: followed.replicas_at.as_deref().unwrap_or(REPLICAS),
            is_autoscaled: dependencies::scaled_to(self, subject, &object).is_some(),
        };
        let copies = mailbox_objects::of(&self.world, followed, subject);
        let count = |target: &Target| {
            let copy = copies.iter().find(|copy| copy.is_at(&target.cluster));
            Some((target.cluster.clone(), crowd.at(target, copy, None)?))
        };
        entry.pods = entry.targets.iter().filter_map(count).collect();
        let each = pod_spec_at(&object).and_then(|at| object.pointer(at)).map(quantity::asked_by);
        let members = self.seen_from(subject.cluster());
        let mut ledger = lock(&self.ledger);
        ledger.set(
            subject,
            reservations::asks(&each.unwrap_or_default(), &entry.targets, &members, &entry.pods),
        );
        ledger.mount(subject, &references::claims(&object), &entry.targets);
        if let Some(target) = entry.targets.first().filter(|_| entry.by_default) {
            ledger.set_default(subject.cluster(), &subject.key.namespace, &target.cluster);
        }
        drop(ledger);
        api_access::add(self, subject, &[Some(&entry)]);
        lock(&self.book).put(subject, entry);
    }
}
