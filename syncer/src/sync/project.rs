//! Reconciles a projection: a downstream object that placed objects created, projected into the mailbox while it exists.
//!
//! ```text
//!   downstream: ours, through its owners  ──► the same object in the mailbox, with the mailbox's uids
//!   downstream: deleted                   ──► deleted in the mailbox
//!   mailbox: a held projection is deleted ──► the downstream object is deleted, unless its owners are being deleted
//!   mailbox: a claim requests more        ──► the downstream claim requests the same
//! ```
//!
//! Projections of pods and claims are held: they have our finalizer, so that the syncer notices when they are deleted.
//! The deletion of an owner in the mailbox does not delete them: the physical cluster decides whether they are deleted.

use api::names::DOWNSTREAM_UID;
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::Patch;
use serde_json::{Value, json};

use super::down::remove_finalizer;
use super::events::record_event;
use super::up;
use crate::mirror;
use crate::mirror::{
    AnyObject, ClusterIdentity, Projection, SENT, is_claim_of, is_projection, owner_references, projection,
};
use crate::state::context::{ObjectId, ObjectPair, SyncerContext, claims_of, place};
use crate::state::errors::{CANNOT_RESIZE, Retry, SyncError};
use crate::state::kinds::KindName;

/// The field with the containers that were added to a running pod.
const EPHEMERAL: &str = "ephemeralContainers";
/// The storage that a claim requests.
const STORAGE_REQUEST: &str = "/spec/resources/requests/storage";

pub(crate) async fn reconcile(
    context: &SyncerContext,
    id: &ObjectId,
    pair: ObjectPair,
) -> Result<Outcome, SyncError> {
    // Events that the syncer itself wrote have the labels of a projection, but represent no downstream object.
    let is_current =
        |object: &&Value| is_projection(object) && AnyObject(object).annotation(DOWNSTREAM_UID).is_some();
    let projected = pair.mailbox.as_ref().filter(is_current);
    if pair.downstream.is_none() {
        context.cancel_waits(id);
    }
    if !may_write(context, &pair, &id.key.namespace) {
        return Ok(Outcome::Done);
    }
    let desired = pair.downstream.as_ref().and_then(|downstream| desired(context, id, downstream, projected));
    match (desired, projected) {
        (None, None) => context.forget(id),
        // Until all informers are synced, its owner may exist without having been observed.
        (None, Some(_)) if pair.downstream.is_some() && !context.is_all_synced() => {}
        (None, Some(projected)) => remove(context, id, &pair, projected).await?,
        (Some(_), None) if pair.mailbox.is_some() => {
            let message = "the mailbox has an object of this name that is not a projection".to_owned();
            return Err(SyncError { reason: "CannotProject", message, retry: Retry::OnEvent });
        }
        (Some(desired), None) => create(context, id, &pair, desired).await?,
        (Some(desired), Some(projected)) => return update(context, id, &pair, desired, projected).await,
    }
    Ok(Outcome::Done)
}

/// Returns whether projections may be written: only with synced informers, the lease and a known cluster.
fn may_write(context: &SyncerContext, pair: &ObjectPair, namespace: &str) -> bool {
    let synced = pair.watched.mailbox.synced()
        && pair.watched.downstream.as_ref().is_some_and(|view| view.synced(namespace));
    synced && context.lease.leads() && context.cluster() == ClusterIdentity::Same
}

/// Returns the desired projection. `None` for an object that is not ours, or whose owner is unknown.
fn desired(
    context: &SyncerContext,
    id: &ObjectId,
    downstream: &Value,
    projected: Option<&Value>,
) -> Option<Projection> {
    if id.kind.is_events() {
        let mut event = downstream.clone();
        event["involvedObject"]["uid"] = mailbox_uid(context, id, &downstream["involvedObject"])?.into();
        event["involvedObject"].as_object_mut()?.remove("resourceVersion");
        return Some(projection(&event, &context.settings.name, Vec::new(), false));
    }
    let owners = owner_references(downstream, |owner| mailbox_uid(context, id, owner));
    let is_ours = !owners.is_empty()
        || (id.kind.is_claims()
            && (is_claimed(context, id) || is_retained(context, id, downstream, projected)));
    let with_finalizer = id.kind.is_pods() || id.kind.is_claims();
    is_ours.then(|| projection(downstream, &context.settings.name, owners, with_finalizer))
}

/// Returns whether to project a claim that has no owner downstream and that no StatefulSet of the mailbox creates: it
/// was retained when its StatefulSet was deleted, and its user has to delete it. In a namespace that the syncer
/// created, every such claim is the user's; in others, only claims that were projected before.
fn is_retained(
    context: &SyncerContext,
    id: &ObjectId,
    downstream: &Value,
    projected: Option<&Value>,
) -> bool {
    let is_current = |projected: &Value| {
        AnyObject(projected).annotation(DOWNSTREAM_UID) == Some(AnyObject(downstream).uid())
    };
    let namespace = ObjectId::new(&KindName::new("", "namespaces"), Key::new("", &id.key.namespace));
    let applied_by = |pair: ObjectPair| Some(AnyObject(pair.downstream.as_ref()?).mailbox()?.to_owned());
    let is_ours =
        || context.pair(&namespace).and_then(applied_by).as_ref() == Some(&context.settings.mailbox);
    AnyObject(downstream).owners().next().is_none() && (projected.is_some_and(is_current) || is_ours())
}

/// Returns the mailbox uid of the object that a reference names. If that object is unknown, `id` is requeued once it is
/// known.
fn mailbox_uid(context: &SyncerContext, id: &ObjectId, reference: &Value) -> Option<String> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (uid, version) = (text("uid"), text("apiVersion"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let lookup = || {
        let watched = context.watched_kind(group, text("kind"))?;
        let namespace = if watched.resource.kind.namespaced { &*id.key.namespace } else { "" };
        let key = Key::new(namespace, text("name"));
        let pair = context.pair(&ObjectId { kind: watched.name.clone(), key })?;
        let mailbox = pair.mailbox.as_ref()?;
        let is_projected =
            AnyObject(mailbox).annotation(DOWNSTREAM_UID) == Some(uid) && is_projection(mailbox);
        let downstream =
            pair.downstream.as_ref().is_some_and(|downstream| AnyObject(downstream).uid() == uid);
        let matches = is_projected || (downstream && pair.is_placed(&context.settings.mailbox));
        matches.then(|| AnyObject(mailbox).uid().to_owned())
    };
    lookup().or_else(|| {
        if !uid.is_empty() {
            context.wait(uid, id);
        }
        // The object may have become known before the wait began.
        lookup()
    })
}

/// Returns whether a placed StatefulSet created this claim.
fn is_claimed(context: &SyncerContext, id: &ObjectId) -> bool {
    let Some(sets) = context.watched_kind("apps", "StatefulSet") else { return false };
    let namespace = &id.key.namespace;
    let read = |key: &Key| sets.mailbox.get(key).map(|set| set.read(&sets.resource.kind));
    let lookup =
        || sets.mailbox.keys_in(namespace).iter().filter_map(read).any(|set| is_claim_of(&set, &id.key.name));
    lookup() || {
        context.wait(&claims_of(namespace), id);
        lookup()
    }
}

async fn create(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    desired: Projection,
) -> Result<(), SyncError> {
    let kind = &pair.watched.resource.kind;
    let created =
        context.mailbox.create(kind, &id.key.namespace, &without_ephemeral_containers(desired.object)).await;
    let created = match created {
        // The view lags; an event will requeue the object.
        Err(error) if error.is_conflict() => return Ok(()),
        other => other.map_err(SyncError::failed("CannotProject"))?,
    };
    write_status(context, id, pair, &created).await
}

/// Returns a pod without ephemeral containers: no pod can be created with them, so they are added in a later write.
fn without_ephemeral_containers(mut object: Value) -> Value {
    let spec = object["spec"].as_object_mut();
    if spec.is_some_and(|spec| spec.remove(EPHEMERAL).is_some()) {
        // The empty fingerprint marks the projection as incomplete.
        object["metadata"]["annotations"][SENT] = "".into();
    }
    object
}

/// Writes the status, with the generations of the projection, whose spec is the same.
async fn write_status(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    projected: &Value,
) -> Result<(), SyncError> {
    let Some(downstream) = pair.downstream.as_ref().filter(|_| pair.watched.resource.has_status) else {
        return Ok(());
    };
    let generations = mirror::Generations {
        mailbox: AnyObject(projected).generation(),
        downstream: AnyObject(downstream).generation(),
        in_sync: true,
    };
    match mirror::upstream_status(downstream, generations) {
        Some(status) => up::write(context, id, pair, projected, status).await,
        None => Ok(()),
    }
}

async fn update(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    desired: Projection,
    projected: &Value,
) -> Result<Outcome, SyncError> {
    let Some(downstream) = &pair.downstream else { return Ok(Outcome::Done) };
    if desired.replaces(projected) {
        remove(context, id, pair, projected).await?;
        return Ok(Outcome::Failed);
    }
    match (AnyObject(projected).is_deleting(), AnyObject(downstream).is_deleting()) {
        (true, false) => return delete_downstream(context, id, pair, &desired, projected).await,
        // The projection shows the deletion. A projection without our finalizer would be deleted at once, so it is left
        // alone.
        (false, true) if AnyObject(projected).has_finalizer() => {
            let seconds = downstream["metadata"]["deletionGracePeriodSeconds"].as_i64();
            let place = place(&pair.watched, &id.key);
            let deleted = context.mailbox.delete_within(place, AnyObject(projected).uid(), seconds).await;
            deleted.map_err(SyncError::failed("CannotProject"))?;
        }
        _ => {}
    }
    let is_complete = desired.is_current(projected) && !AnyObject(downstream).is_deleting();
    if is_complete && resize(context, id, pair, &desired, projected).await? == ResizeOutcome::Refused {
        return Ok(Outcome::Failed);
    }
    let mut current = projected.clone();
    if !desired.is_current(projected) && !AnyObject(projected).is_deleting() {
        match rewrite(context, id, pair, &desired, projected).await? {
            Some(written) => current = written,
            None => return Ok(Outcome::Failed),
        }
    }
    write_status(context, id, pair, &current).await?;
    Ok(Outcome::Done)
}

/// Replaces a projection. `None` if it was deleted, to be created again.
async fn rewrite(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    desired: &Projection,
    projected: &Value,
) -> Result<Option<Value>, SyncError> {
    let place = place(&pair.watched, &id.key);
    let node = |object: &Value| object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let mut version = projected["metadata"]["resourceVersion"].clone();
    // A pod gets its node only by a Binding.
    if id.kind.is_pods() && node(projected).is_empty() && !node(&desired.object).is_empty() {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": id.key.name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node(&desired.object) },
        });
        context
            .mailbox
            .post(place.part("binding"), &binding)
            .await
            .map_err(SyncError::failed("CannotProject"))?;
        version = Value::Null;
    }
    let ephemeral = |object: &Value| object["spec"][EPHEMERAL].clone();
    if id.kind.is_pods()
        && !ephemeral(&desired.object).is_null()
        && ephemeral(projected) != ephemeral(&desired.object)
    {
        let change = json!({ "spec": { EPHEMERAL: ephemeral(&desired.object) } });
        let added = context.mailbox.patch(place.part("ephemeralcontainers"), Patch::Merge, &change).await;
        added.map_err(SyncError::failed("CannotProject"))?;
        version = Value::Null;
    }
    let mut object = desired.object.clone();
    object["metadata"]["uid"] = AnyObject(projected).uid().into();
    object["metadata"]["resourceVersion"] = version;
    match context.mailbox.replace(place, &object).await {
        Ok(written) => Ok(Some(written)),
        // An immutable field differs: the projection is created again.
        Err(error) if error.code() == 422 => {
            remove(context, id, pair, projected).await?;
            Ok(None)
        }
        Err(error) => Err(SyncError::failed("CannotProject")(error)),
    }
}

/// The result of resizing a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ResizeOutcome {
    Done,
    Refused,
}

/// Requests as much storage downstream as the projection of a claim does. The syncer wrote the projection, so a
/// difference is a later request of the user. If the physical cluster rejects it, the syncer restores the projection
/// and tells the user.
async fn resize(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    desired: &Projection,
    projected: &Value,
) -> Result<ResizeOutcome, SyncError> {
    let requested = projected.pointer(STORAGE_REQUEST).filter(|_| id.kind.is_claims());
    let Some(requested) = requested.filter(|size| desired.object.pointer(STORAGE_REQUEST) != Some(*size))
    else {
        return Ok(ResizeOutcome::Done);
    };
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": AnyObject(projected).annotation(DOWNSTREAM_UID) },
        { "op": "replace", "path": STORAGE_REQUEST, "value": requested },
    ]);
    let place = place(&pair.watched, &id.key);
    match context.downstream.patch(place, Patch::Json, &change).await {
        Ok(_) => Ok(ResizeOutcome::Done),
        Err(error) if matches!(error.code(), 403 | 422) => {
            record_event(context, projected, &SyncError::failed(CANNOT_RESIZE)(error)).await;
            rewrite(context, id, pair, desired, projected).await?;
            Ok(ResizeOutcome::Refused)
        }
        Err(error) => Err(SyncError::failed(CANNOT_RESIZE)(error)),
    }
}

/// Deletes the downstream object of a projection that a user deleted. If its owners are being deleted, the physical
/// cluster decides.
async fn delete_downstream(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    desired: &Projection,
    projected: &Value,
) -> Result<Outcome, SyncError> {
    // Its owners were replaced: the projection is created again with the new ones.
    if projected["metadata"]["ownerReferences"] != desired.object["metadata"]["ownerReferences"] {
        remove(context, id, pair, projected).await?;
        return Ok(Outcome::Failed);
    }
    if AnyObject(projected).has_finalizer() && owners_remain(context, id, projected).await? {
        let place = place(&pair.watched, &id.key);
        let seconds = projected["metadata"]["deletionGracePeriodSeconds"].as_i64();
        // The projection names this uid. The object exists: otherwise the projection would have been replaced.
        let uid = AnyObject(projected).annotation(DOWNSTREAM_UID).unwrap_or_default();
        let deleted = context.downstream.delete_within(place, uid, seconds).await;
        deleted.map_err(SyncError::failed("CannotDelete"))?;
        tracing::info!(
            from = context.settings.name,
            uid,
            reason = "ProjectionDeleted",
            "deleted the downstream object of a projection that a user deleted"
        );
    }
    Ok(Outcome::Done)
}

/// Returns whether the owners in the mailbox exist and are not being deleted. They are read from the server, because
/// the view of an owner may lag behind that of its dependents.
async fn owners_remain(context: &SyncerContext, id: &ObjectId, projected: &Value) -> Result<bool, SyncError> {
    for owner in AnyObject(projected).owners() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let Some(watched) = context.watched_kind(group, text("kind")) else { return Ok(false) };
        let key = Key::new(&id.key.namespace, text("name"));
        let owner_object =
            context.mailbox.get(place(&watched, &key)).await.map_err(SyncError::failed("CannotRead"))?;
        let remains = |owner_object: &Value| {
            AnyObject(owner_object).uid() == text("uid") && !AnyObject(owner_object).is_deleting()
        };
        if !owner_object.as_ref().is_some_and(remains) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes a projection at once. Our finalizer is removed first: a projection that will be created again must never
/// look as if a user had deleted it.
async fn remove(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    projected: &Value,
) -> Result<(), SyncError> {
    remove_finalizer(context, &pair.watched, id, projected).await?;
    let place = place(&pair.watched, &id.key);
    let deleted = context.mailbox.delete_within(place, AnyObject(projected).uid(), Some(0)).await;
    deleted.map(drop).map_err(SyncError::failed("CannotProject"))
}
