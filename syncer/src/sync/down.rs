//! Reconciles a placed object: applies it downstream, corrects drift, and deletes it when its tombstone exists.
//!
//! ```text
//!   read both objects ──► plan_step ──► execute one step ──► plan_step ──► … ──► in sync ──► status up
//! ```
//!
//! Views lag. So before it creates or deletes an object, or concludes that one does not exist, the syncer reads from
//! the server, and plans again if the result differs from the view.

use std::time::Duration;

use api::names::{FIELD_MANAGER, SYNCER};
use controller::informer::Key;
use controller::kind::ResourceKind;
use controller::queue::Outcome;
use controller::remote::{ObjectPath, Patch};
use serde_json::{Value, json};

use super::up;
use crate::inventory::ClusterInventory;
use crate::mirror::{
    AnyObject, ClusterIdentity, DesiredObject, HoldReason, LED_BY, LastApplied, SyncStep, fingerprint,
    plan_step,
};
use crate::state::context::{ObjectId, ObjectPair, SyncerContext, WatchedKind, place};
use crate::state::directory::StoredObject;
use crate::state::errors::{REFUSED, Retry, SyncError};
use crate::state::kinds::KindName;

/// A usual sequence is add the finalizer, apply, in sync; three more steps allow for concurrent changes.
const STEPS_MAX: usize = 6;
/// A fallback: usually an event requeues the object sooner.
const NAMESPACE_REQUEUE: Duration = Duration::from_secs(1);

/// The result of a step.
enum StepResult {
    /// Plan again.
    Continue,
    Done(Outcome),
}

pub(crate) async fn reconcile(
    context: &SyncerContext,
    id: &ObjectId,
    mut pair: ObjectPair,
) -> Result<Outcome, SyncError> {
    // Added before the object is applied, so that no object it creates is skipped.
    context.add_namespace(&id.key.namespace);
    for _ in 0..STEPS_MAX {
        let result = match plan_step(&context.snapshot(id, &pair)) {
            SyncStep::InSync => return finish_in_sync(context, id, pair).await,
            SyncStep::AddFinalizer => add_finalizer(context, id, &mut pair).await?,
            SyncStep::Apply(desired) => apply(context, id, &mut pair, desired).await?,
            SyncStep::Delete { uid } => delete(context, id, &pair, &uid).await?,
            SyncStep::RemoveFinalizer => release_tombstone(context, id, &mut pair).await?,
            SyncStep::Hold(HoldReason::NoTombstone) => find_tombstone(context, id, &mut pair).await?,
            SyncStep::Hold(reason) => return Err(hold_error(id, &pair, reason)),
        };
        if let StepResult::Done(outcome) = result {
            return Ok(outcome);
        }
    }
    // The object changes as fast as the syncer plans.
    Ok(Outcome::Failed)
}

/// Returns the error of a held object. A forbidden list is a more specific reason.
fn hold_error(id: &ObjectId, pair: &ObjectPair, reason: HoldReason) -> SyncError {
    let downstream = pair.watched.downstream.as_ref().filter(|_| reason == HoldReason::DownstreamNotSynced);
    match downstream.and_then(|downstream| downstream.forbidden(&id.key.namespace)) {
        Some(message) => SyncError { reason: "Forbidden", message, retry: Retry::OnEvent },
        None => reason.into(),
    }
}

/// Records that the downstream object is as desired, and writes the status up.
async fn finish_in_sync(
    context: &SyncerContext,
    id: &ObjectId,
    pair: ObjectPair,
) -> Result<Outcome, SyncError> {
    let (Some(mailbox), Some(downstream)) = (&pair.mailbox, &pair.downstream) else {
        if pair.mailbox.is_none() && pair.downstream.is_none() {
            context.forget(id);
        }
        return Ok(Outcome::Done);
    };
    if !AnyObject(mailbox).is_deleting() && !AnyObject(downstream).is_deleting() {
        let desired = DesiredObject::of(mailbox, &context.settings.mailbox)
            .with_downstream_scale(mailbox, Some(downstream));
        context
            .update_last_sync(id, |last_sync| last_sync.sent = Some(LastApplied::new(&desired, downstream)));
        store(context, id, &pair, mailbox, &desired).await;
    }
    up::status(context, id, &pair).await?;
    Ok(Outcome::Done)
}

async fn add_finalizer(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &mut ObjectPair,
) -> Result<StepResult, SyncError> {
    let Some(object) = &pair.mailbox else { return Ok(StepResult::Continue) };
    let has_finalizers = object["metadata"]["finalizers"].is_array();
    let (path, value) = match has_finalizers {
        true => ("/metadata/finalizers/-", json!(SYNCER)),
        false => ("/metadata/finalizers", json!([SYNCER])),
    };
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": AnyObject(object).uid() },
        { "op": "test", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"] },
        { "op": "add", "path": path, "value": value },
    ]);
    let place = place(&pair.watched, &id.key);
    let with_finalizer = context.mailbox.patch(place, Patch::Json, &change).await;
    pair.mailbox = Some(with_finalizer.map_err(SyncError::stale("CannotMark"))?);
    Ok(StepResult::Continue)
}

async fn apply(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &mut ObjectPair,
    desired: DesiredObject,
) -> Result<StepResult, SyncError> {
    if !pair.watched.resource.is_served_downstream {
        let kind = &pair.watched.resource.kind;
        let message = format!("the physical cluster does not serve {kind} in version {}", kind.version);
        return Err(SyncError { reason: "KindNotServed", message, retry: Retry::OnEvent });
    }
    if !has_namespace(context, &id.key.namespace) {
        return Ok(StepResult::Done(Outcome::RequeueAfter(NAMESPACE_REQUEUE)));
    }
    let place = place(&pair.watched, &id.key);
    let Some(downstream) = &pair.downstream else {
        // The view has only objects with our label. Another object may have the same name.
        pair.downstream = read_downstream(context, place).await?;
        return match &pair.downstream {
            Some(_) => Ok(StepResult::Continue),
            None if is_superseded(context, id).await => Err(HoldReason::NotLeading.into()),
            None => apply_with_uid(context, id, pair, desired, None).await,
        };
    };
    let uid = AnyObject(downstream).uid().to_owned();
    apply_with_uid(context, id, pair, desired, Some(uid)).await
}

/// Applies the object. With a uid, only the object that has this uid is changed.
async fn apply_with_uid(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &mut ObjectPair,
    desired: DesiredObject,
    uid: Option<String>,
) -> Result<StepResult, SyncError> {
    if let Some(mailbox) = &pair.mailbox {
        // The heartbeat writes this too. But a syncer that is killed before that would not enforce its applied objects
        // after a restart.
        if context.lease.leads() {
            context.update_header(|header| header.led = true).await;
        }
        store(context, id, pair, mailbox, &desired).await;
    }
    let mut object = desired.object.clone();
    if let Some(uid) = uid {
        object["metadata"]["uid"] = uid.into();
    }
    let place = place(&pair.watched, &id.key);
    let patch = Patch::Apply { manager: FIELD_MANAGER };
    let applied = match context.downstream.patch(place, patch, &object).await {
        Err(error) if error.code() == 422 => {
            let refused = SyncError::failed(REFUSED)(error);
            up::report_refused(context, id, pair, &refused.message).await?;
            return Err(refused);
        }
        applied => applied.map_err(SyncError::failed("CannotApply"))?,
    };
    tracing::debug!("applied the object downstream");
    context.update_last_sync(id, |last_sync| last_sync.sent = Some(LastApplied::new(&desired, &applied)));
    if pair.watched.name.is_definitions() {
        context.rediscover();
    }
    if pair.downstream.as_ref().is_some_and(|before| AnyObject(before).mailbox().is_none()) {
        context.reread_projected();
    }
    pair.downstream = Some(applied);
    up::status(context, id, pair).await?;
    Ok(StepResult::Done(Outcome::Done))
}

/// Reads an object from the physical cluster, not from a view, and checks the cluster's identity: an object that is
/// missing on another cluster is not deleted.
async fn read_downstream(context: &SyncerContext, place: ObjectPath<'_>) -> Result<Option<Value>, SyncError> {
    let object = async { context.downstream.get(place).await.map_err(SyncError::failed("CannotRead")) };
    Ok(tokio::try_join!(object, check_identity(context))?.0)
}

/// Reads an object from the mailbox, not from a view.
async fn read_mailbox(context: &SyncerContext, place: ObjectPath<'_>) -> Result<Option<Value>, SyncError> {
    context.mailbox.get(place).await.map_err(SyncError::failed("CannotRead"))
}

/// Checks the identity of the physical cluster.
async fn check_identity(context: &SyncerContext) -> Result<(), SyncError> {
    let uid =
        ClusterInventory::cluster_uid(&context.downstream).await.map_err(SyncError::failed("CannotRead"))?;
    if context.header().cluster.as_deref() == Some(&uid) {
        return Ok(());
    }
    context.recheck_identity();
    Err(HoldReason::UnknownCluster.into())
}

/// Returns whether objects of a namespace can be applied: the namespace exists downstream, or is not in the mailbox.
fn has_namespace(context: &SyncerContext, namespace: &str) -> bool {
    let id = ObjectId::new(&KindName::new("", "namespaces"), Key::new("", namespace));
    let Some(pair) = context.pair(&id).filter(|_| !namespace.is_empty()) else { return true };
    // A syncer that may not list namespaces tries to apply.
    if pair.watched.downstream.as_ref().is_some_and(|downstream| downstream.forbidden("").is_some()) {
        return true;
    }
    let view = &pair.watched.mailbox;
    // Until the namespaces of the mailbox were listed, it is unknown whether the mailbox has this one. If they cannot
    // be listed, the stored namespace counts.
    let is_known = view.known() || view.error().is_some();
    is_known && (pair.mailbox.is_none() || pair.downstream.is_some()) && names_leader(context, &id, &pair)
}

/// Returns whether a namespace names this syncer as leader, so that the previous leader learns why objects change. A
/// namespace that cannot be updated does not delay its objects.
fn names_leader(context: &SyncerContext, id: &ObjectId, namespace: &ObjectPair) -> bool {
    let (Some(mailbox), Some(downstream)) = (&namespace.mailbox, &namespace.downstream) else { return true };
    let ours =
        AnyObject(mailbox).is_placed() && AnyObject(downstream).mailbox() == Some(&context.settings.mailbox);
    let remains = !AnyObject(mailbox).is_deleting() && !AnyObject(downstream).is_deleting();
    let names_us =
        || context.leader().is_none_or(|leader| AnyObject(downstream).annotation(LED_BY) == Some(leader));
    !ours || !remains || names_us() || context.errors.has(id)
}

/// Returns whether another syncer leads by now, according to the namespace of an object that this syncer is about to
/// create again. The namespace is read from the server, because the other leader may have deleted the object.
async fn is_superseded(context: &SyncerContext, id: &ObjectId) -> bool {
    let namespace = &id.key.namespace;
    if context.lease.leads() || namespace.is_empty() {
        return context.is_superseded() && !context.lease.leads();
    }
    let kind = ResourceKind::new("", "v1", "namespaces", "Namespace", false);
    // A syncer that may not read namespaces continues.
    if let Ok(Some(namespace_object)) = context.downstream.get(ObjectPath::new(&kind, "", namespace)).await {
        context.observe_leader(AnyObject(&namespace_object).annotation(LED_BY));
    }
    context.is_superseded()
}

async fn delete(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    uid: &str,
) -> Result<StepResult, SyncError> {
    let deleted_uid = Some(fingerprint(&uid.into()));
    if context.last_sync(id).deleted == deleted_uid {
        return Ok(StepResult::Done(Outcome::RequeueAfter(Duration::from_secs(1))));
    }
    let place = place(&pair.watched, &id.key);
    let (tombstone, ()) = tokio::try_join!(read_mailbox(context, place), check_identity(context))?;
    let expected_uid = pair.mailbox.as_ref().map(|object| AnyObject(object).uid());
    let is_tombstone = tombstone.as_ref().map(AnyObject).is_some_and(|object| {
        object.is_deleting() && object.has_finalizer() && Some(object.uid()) == expected_uid
    });
    if !is_tombstone {
        return Ok(StepResult::Done(Outcome::Failed));
    }
    if !announce_deletion(context, id, pair, uid).await? {
        return Ok(StepResult::Done(Outcome::RequeueAfter(NAMESPACE_REQUEUE)));
    }
    remove_stored(context, id).await?;
    context.downstream.delete(place, uid).await.map_err(SyncError::failed("CannotDelete"))?;
    context.update_last_sync(id, |last_sync| last_sync.deleted = deleted_uid);
    tracing::info!(
        from = context.settings.name,
        uid,
        reason = "DeletedInMailbox",
        "deleted the downstream object of a deleted mailbox object"
    );
    // An event reports the end of the deletion, unless the object was deleted already.
    Ok(StepResult::Done(Outcome::RequeueAfter(Duration::from_secs(1))))
}

/// Returns whether the previous leader can know that this syncer deletes the object: the namespace names this syncer.
/// If the object is itself a namespace, this call writes the annotation.
async fn announce_deletion(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    uid: &str,
) -> Result<bool, SyncError> {
    let Some(leader) = context.leader() else { return Ok(true) };
    if !id.kind.is_namespaces() {
        let namespace = ObjectId::new(&KindName::new("", "namespaces"), Key::new("", &id.key.namespace));
        return Ok(context.pair(&namespace).is_none_or(|pair| names_leader(context, &namespace, &pair)));
    }
    let is_announced =
        pair.downstream.as_ref().and_then(|downstream| AnyObject(downstream).annotation(LED_BY))
            == Some(leader);
    if !is_announced {
        let change = json!({ "metadata": { "uid": uid, "annotations": { LED_BY: leader } } });
        let place = place(&pair.watched, &id.key);
        match context.downstream.patch(place, Patch::Merge, &change).await {
            // A syncer that may delete but not patch the namespace deletes it without an announcement.
            Err(error) if error.code() == 403 || error.is_not_found() => {}
            patched => drop(patched.map_err(SyncError::failed("CannotDelete"))?),
        }
    }
    Ok(true)
}

async fn release_tombstone(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &mut ObjectPair,
) -> Result<StepResult, SyncError> {
    let place = place(&pair.watched, &id.key);
    if pair.downstream.is_none() {
        pair.downstream = read_downstream(context, place).await?;
        if pair.downstream.is_some() {
            return Ok(StepResult::Continue);
        }
    }
    remove_stored(context, id).await?;
    if let Some(object) = &pair.mailbox {
        remove_finalizer(context, &pair.watched, id, object).await?;
    }
    context.forget(id);
    Ok(StepResult::Done(Outcome::Done))
}

/// Removes our finalizer from a mailbox object.
pub(crate) async fn remove_finalizer(
    context: &SyncerContext,
    watched: &WatchedKind,
    id: &ObjectId,
    object: &Value,
) -> Result<(), SyncError> {
    let Some(index) = AnyObject(object).finalizers().position(|finalizer| finalizer == SYNCER) else {
        return Ok(());
    };
    let path = format!("/metadata/finalizers/{index}");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": AnyObject(object).uid() },
        { "op": "test", "path": path, "value": SYNCER },
        { "op": "remove", "path": path },
    ]);
    match context.mailbox.patch(place(watched, &id.key), Patch::Json, &change).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop).map_err(SyncError::stale("CannotRelease")),
    }
}

/// Finds the tombstone of an object that is missing from the view, for example because it lost its label. If the object
/// still exists and is being deleted, it is the tombstone.
async fn find_tombstone(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &mut ObjectPair,
) -> Result<StepResult, SyncError> {
    let place = place(&pair.watched, &id.key);
    let object = read_mailbox(context, place).await?;
    match object.filter(|object| AnyObject(object).is_deleting()) {
        Some(tombstone) => {
            pair.mailbox = Some(tombstone);
            Ok(StepResult::Continue)
        }
        None => Err(HoldReason::NoTombstone.into()),
    }
}

/// Removes the stored object before the downstream object. A syncer that is killed in between still finds the
/// tombstone; in the other order, it would apply the stored object again if it started without the mailbox.
async fn remove_stored(context: &SyncerContext, id: &ObjectId) -> Result<(), SyncError> {
    let Some(directory) = &context.directory else { return Ok(()) };
    context.update_last_sync(id, |last_sync| last_sync.saved = None);
    directory.remove(&id.kind.group, &id.kind.plural, &id.key).await.map_err(|error| SyncError {
        reason: "CannotRemoveState",
        message: format!("cannot remove the stored object: {error}"),
        retry: Retry::Backoff,
    })
}

/// Reconciles a stored object that the mailbox no longer has. If it does not exist downstream either, it is removed
/// from the state directory, from which it would otherwise be applied again. If it exists downstream, it is held like
/// every object without a tombstone.
pub(crate) async fn reconcile_orphan(context: &SyncerContext, id: &ObjectId, pair: &ObjectPair) {
    let place = place(&pair.watched, &id.key);
    let is_deleted = async {
        let is_known = pair.watched.mailbox.synced() && context.cluster() == ClusterIdentity::Same;
        let exists = pair.mailbox.is_some() || pair.downstream.is_some();
        let is_unplaced = is_known && !exists && read_mailbox(context, place).await?.is_none();
        Ok::<_, SyncError>(is_unplaced && read_downstream(context, place).await?.is_none())
    };
    match is_deleted.await {
        Ok(true) => {
            if remove_stored(context, id).await.is_ok() {
                context.forget_orphan(id);
            }
        }
        Ok(false) if pair.mailbox.is_some() => context.forget_orphan(id),
        // The object is requeued with all others.
        Ok(false) | Err(_) => {}
    }
}

/// Stores the desired object.
async fn store(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    mailbox: &Value,
    desired: &DesiredObject,
) {
    let Some(directory) = &context.directory else { return };
    if context.last_sync(id).saved == Some(desired.fingerprint) {
        return;
    }
    match directory.save(StoredObject::new(&pair.watched.resource.kind, &id.key, mailbox)).await {
        Ok(()) => context.update_last_sync(id, |last_sync| last_sync.saved = Some(desired.fingerprint)),
        Err(error) => tracing::warn!(%error, object = %id.key, "cannot store a desired object"),
    }
}
