//! Deletes the dependents of deleted objects.
//!
//! ```text
//!   an owner is deleted     ─► its dependents are deleted, unless another owner exists
//!   `foregroundDeletion`    ─► the blocking dependents are deleted first, then the owner
//!     … in a cycle          ─► one blocking reference of the cycle is removed, so that all can be deleted
//!   `orphan`                ─► the owner references of the dependents are removed, then the owner is deleted
//! ```
//!
//! An object is deleted only after each of its owners was looked up in the store and not found. If the kind of an owner
//! is not served, or a cluster-scoped object names a namespaced owner, the owner is unknown and the object is kept.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use controller::queue::Outcome;
use openapi::catalog::resource_info::ResourceInfo;
use serde_json::Value;
use storage::{Entry, Key};

use crate::controllers::object_head::{ObjectHead, Owner};
use crate::controllers::write::{ReconcileError, amend, delete};
use crate::controllers::{Controllers, record_revision};
use crate::keys::{Collection, ObjectKey};
use crate::kinds::Kinds;
use crate::registry::deletion::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};

/// Retry interval until the first list is complete.
const BEGINNING: Duration = Duration::from_millis(100);
/// Retry interval for an owner of an unknown kind: kinds are added and removed.
const UNKNOWN_REQUEUE_AFTER: Duration = Duration::from_secs(300);
/// Limit on the owners read to detect a cycle. Real ownership chains have three or four objects. A tenant can build a
/// chain of a hundred thousand; without the limit its reads would grow with the square of that.
const CIRCLE_OWNERS_MAX: usize = 1000;

/// The state of an owner, for its dependent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    Solid,
    Absent,
    /// Terminating, and waiting for its dependents.
    Waiting,
    Unknown,
}

/// The decision about a dependent.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    Keep,
    KeepForNow,
    /// Keep the object, because some owners exist, but remove its references to these uids.
    Forget(Vec<String>),
    Delete(Propagation),
}

pub(super) async fn reconcile(controllers: &Controllers, key: Key) -> Result<Outcome, ReconcileError> {
    // Until the first list is complete, the graph may lack dependents of this object.
    if !controllers.graph().is_complete {
        return Ok(Outcome::RequeueAfter(BEGINNING));
    }
    let store = &*controllers.store;
    let Some(place) = ObjectKey::of(&key) else { return Ok(Outcome::Done) };
    let Some(resource) = resource(controllers, &place).await? else { return Ok(Outcome::Done) };
    let Some(entry) = store.get(&key).await?.value else { return Ok(Outcome::Done) };
    record_revision(entry.revision());
    let Some(head) = ObjectHead::of(&entry) else { return Ok(Outcome::Done) };
    if head.is_being_deleted() {
        return finalize(controllers, &resource, &place, &entry, &head).await;
    }
    let mut states = Vec::with_capacity(head.owners().len());
    for owner in head.owners() {
        states.push((owner, owner_state(controllers, &place, owner).await?));
    }
    let has_dependents = !dependents(controllers, &place, &head).is_empty();
    match decide(&head, &states, has_dependents) {
        Verdict::Keep => Ok(Outcome::Done),
        Verdict::KeepForNow => Ok(Outcome::RequeueAfter(UNKNOWN_REQUEUE_AFTER)),
        Verdict::Forget(uids) => {
            amend(store, &resource, &entry, |object| forget(object, &uids)).await?;
            Ok(Outcome::Done)
        }
        Verdict::Delete(propagation) => {
            let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
            delete(store, &resource, &entry, &options).await?;
            Ok(Outcome::Done)
        }
    }
}

/// Returns the resource of an object.
async fn resource(
    controllers: &Controllers,
    place: &ObjectKey<'_>,
) -> Result<Option<Arc<ResourceInfo>>, ReconcileError> {
    let find = |kinds: &Kinds| kinds.find_collection(place.collection).cloned();
    Ok(controllers.kinds.find(place.cluster, find).await?)
}

fn decide(head: &ObjectHead, states: &[(&Owner, OwnerState)], has_dependents: bool) -> Verdict {
    let any = |expected: OwnerState| states.iter().any(|(_, state)| *state == expected);
    if any(OwnerState::Unknown) {
        return Verdict::KeepForNow;
    }
    if states.is_empty() || !(any(OwnerState::Absent) || any(OwnerState::Waiting)) {
        return Verdict::Keep;
    }
    if any(OwnerState::Solid) {
        let leaving = states.iter().filter(|(_, state)| *state != OwnerState::Solid);
        return Verdict::Forget(leaving.map(|(owner, _)| owner.uid.clone()).collect());
    }
    Verdict::Delete(match () {
        () if any(OwnerState::Waiting) && has_dependents => Propagation::Foreground,
        () if head.has_finalizer(ORPHAN) => Propagation::Orphan,
        () if head.has_finalizer(FOREGROUND) => Propagation::Foreground,
        () => Propagation::Background,
    })
}

async fn owner_state(
    controllers: &Controllers,
    place: &ObjectKey<'_>,
    owner: &Owner,
) -> Result<OwnerState, ReconcileError> {
    if controllers.graph().is_absent(&(place.cluster, owner.uid.as_str().into())) {
        return Ok(OwnerState::Absent);
    }
    let find = |kinds: &Kinds| owner_key(kinds, place, owner);
    let Some(key) = controllers.kinds.find(place.cluster, find).await? else {
        return Ok(OwnerState::Unknown);
    };
    let found = controllers.store.get(&key).await?.value;
    Ok(match found.as_ref().and_then(ObjectHead::of).filter(|head| head.uid == owner.uid) {
        None => OwnerState::Absent,
        Some(head) if head.waits_for_dependents() => OwnerState::Waiting,
        Some(_) => OwnerState::Solid,
    })
}

/// Returns the key of an owner of the object at `place`. None if the kind is not served, or if a cluster-scoped object
/// names a namespaced owner.
pub(super) fn owner_key(kinds: &Kinds, place: &ObjectKey<'_>, owner: &Owner) -> Option<Key> {
    let resource = kinds.find_kind(owner.group(), &owner.kind)?;
    let namespace = match (resource.namespaced, place.namespace) {
        (true, None) => return None,
        (true, namespace) => namespace,
        (false, _) => None,
    };
    let (group, plural) = (&*resource.group, &*resource.plural);
    Some(Collection { group, plural }.key(place.cluster, namespace, &owner.name))
}

fn dependents(controllers: &Controllers, place: &ObjectKey<'_>, head: &ObjectHead) -> Vec<Key> {
    controllers.graph().dependents(&(place.cluster, Arc::from(head.uid.as_str())))
}

/// Reconciles a terminating object: acts on its `orphan` or `foregroundDeletion` finalizer.
async fn finalize(
    controllers: &Controllers,
    resource: &ResourceInfo,
    place: &ObjectKey<'_>,
    entry: &Entry,
    head: &ObjectHead,
) -> Result<Outcome, ReconcileError> {
    let finalizer = match head {
        head if head.has_finalizer(ORPHAN) => {
            for key in dependents(controllers, place, head) {
                orphan(controllers, &key, &head.uid).await?;
            }
            ORPHAN
        }
        head if head.has_finalizer(FOREGROUND) => match blocked(controllers, place, head).await? {
            // The deletion of the last blocking dependent requeues the owner.
            true => return Ok(Outcome::Done),
            false => FOREGROUND,
        },
        _ => return Ok(Outcome::Done),
    };
    amend(&*controllers.store, resource, entry, |object| {
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|name| name != finalizer);
        }
    })
    .await?;
    Ok(Outcome::Done)
}

/// Removes a dependent's reference to its owner.
async fn orphan(controllers: &Controllers, key: &Key, uid: &str) -> Result<(), ReconcileError> {
    let Some(entry) = controllers.store.get(key).await?.value else { return Ok(()) };
    let Some(place) = ObjectKey::of(key) else { return Ok(()) };
    let Some(resource) = resource(controllers, &place).await? else { return Ok(()) };
    amend(&*controllers.store, &resource, &entry, |object| forget(object, &[uid.to_owned()])).await
}

/// Reports whether blocking dependents still exist. Enqueues those that are not terminating yet, and removes the
/// blocking reference of those that wait for this object themselves.
async fn blocked(
    controllers: &Controllers,
    place: &ObjectKey<'_>,
    head: &ObjectHead,
) -> Result<bool, ReconcileError> {
    let mut blocking = Vec::new();
    for key in dependents(controllers, place, head) {
        let Some(entry) = controllers.store.get(&key).await?.value else { continue };
        let Some(dependent) = ObjectHead::of(&entry) else { continue };
        if dependent.owners().iter().any(|owner| owner.uid == head.uid && owner.blocks()) {
            blocking.push((entry, dependent));
        }
    }
    let waiting = match blocking.iter().any(|(_, dependent)| dependent.waits_for_dependents()) {
        true => waiting_for(controllers, place, head).await?,
        false => HashSet::new(),
    };
    let mut is_blocked = false;
    for (entry, dependent) in blocking {
        if waiting.contains(&dependent.uid) {
            unblock(controllers, &entry, &head.uid).await?;
            continue;
        }
        is_blocked = true;
        if !dependent.is_being_deleted() {
            controllers.garbage.add(entry.key().clone());
        }
    }
    Ok(is_blocked)
}

/// Returns the uids of the objects that cannot be deleted before this one: the owners that it blocks, the owners that
/// those block, and so on. In a cycle the object itself is among them.
///
/// ```text
///   a ◄─ b ◄─ c ◄─ a      "◄─" is a blocking reference to an owner; all three wait for their dependents.
///                         a, c and b wait for b. As b waits for its dependent c, that reference closes a cycle.
/// ```
///
/// kube-controller-manager checks only one step, before it deletes a dependent. That misses a cycle in which a client
/// deleted every object.
async fn waiting_for(
    controllers: &Controllers,
    place: &ObjectKey<'_>,
    head: &ObjectHead,
) -> Result<HashSet<String>, ReconcileError> {
    let mut waiting = HashSet::new();
    let mut next = blocked_owners(controllers, place, head).await?;
    for _ in 0..CIRCLE_OWNERS_MAX {
        let Some((key, uid)) = next.pop() else { break };
        let found = controllers.store.get(&key).await?.value.as_ref().and_then(ObjectHead::of);
        let Some(owner) = found.filter(|owner| owner.uid == uid && owner.waits_for_dependents()) else {
            continue;
        };
        if waiting.insert(uid)
            && let Some(place) = ObjectKey::of(&key)
        {
            next.extend(blocked_owners(controllers, &place, &owner).await?);
        }
    }
    Ok(waiting)
}

/// Returns keys and uids of the owners that wait for this object if they are deleted in the foreground.
async fn blocked_owners(
    controllers: &Controllers,
    place: &ObjectKey<'_>,
    head: &ObjectHead,
) -> Result<Vec<(Key, String)>, ReconcileError> {
    let blocked: Vec<_> =
        head.owners().iter().filter(|owner| owner.blocks()).take(CIRCLE_OWNERS_MAX).collect();
    let find = |kinds: &Kinds| -> Vec<(Key, String)> {
        let keyed = |owner: &&Owner| Some((owner_key(kinds, place, owner)?, owner.uid.clone()));
        blocked.iter().filter_map(keyed).collect()
    };
    let resources = find(&controllers.kinds.of(place.cluster));
    if resources.len() == blocked.len() {
        return Ok(resources);
    }
    Ok(find(&*controllers.kinds.fresh(place.cluster).await?))
}

/// Makes a dependent no longer block its owner.
async fn unblock(controllers: &Controllers, entry: &Entry, uid: &str) -> Result<(), ReconcileError> {
    let Some(place) = ObjectKey::of(entry.key()) else { return Ok(()) };
    let Some(resource) = resource(controllers, &place).await? else { return Ok(()) };
    tracing::debug!(key = ?entry.key(), owner = uid, "breaking a cycle of owner references");
    amend(&*controllers.store, &resource, entry, |object| {
        let owners = object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten();
        for owner in owners.filter(|owner| owner["uid"] == uid) {
            owner["blockOwnerDeletion"] = false.into();
        }
    })
    .await
}

fn forget(object: &mut Value, uids: &[String]) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
    owners.retain(|owner| !uids.iter().any(|uid| owner["uid"] == **uid));
    if owners.is_empty() {
        metadata.remove("ownerReferences");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_deleted_only_if_every_owner_is_known_to_be_absent() {
        use OwnerState::{Absent, Solid, Unknown, Waiting};
        let check = |states: &[OwnerState], has_dependents, expected: Verdict| {
            let owners: Vec<Owner> = (0..states.len())
                .map(|number| Owner { uid: number.to_string(), ..Owner::default() })
                .collect();
            let states: Vec<_> = owners.iter().zip(states.iter().copied()).collect();
            assert_eq!(decide(&ObjectHead::default(), &states, has_dependents), expected, "{states:?}");
        };
        let forget = |uids: &[&str]| Verdict::Forget(uids.iter().map(|uid| (*uid).to_owned()).collect());
        check(&[], false, Verdict::Keep);
        check(&[Solid], false, Verdict::Keep);
        check(&[Absent], false, Verdict::Delete(Propagation::Background));
        check(&[Absent, Absent], true, Verdict::Delete(Propagation::Background));
        check(&[Absent, Solid], false, forget(&["0"]));
        check(&[Solid, Waiting, Absent], false, forget(&["1", "2"]));
        check(&[Waiting], false, Verdict::Delete(Propagation::Background));
        check(&[Waiting], true, Verdict::Delete(Propagation::Foreground));
        check(&[Unknown], false, Verdict::KeepForNow);
        check(&[Absent, Unknown], false, Verdict::KeepForNow);
        check(&[Solid, Unknown], false, Verdict::KeepForNow);
    }

    #[test]
    fn a_dependent_is_deleted_with_the_policy_of_its_finalizer() {
        let owner = Owner::default();
        for (finalizer, propagation) in [(ORPHAN, Propagation::Orphan), (FOREGROUND, Propagation::Foreground)]
        {
            let head = ObjectHead { finalizers: Some(vec![finalizer.to_owned()]), ..ObjectHead::default() };
            assert_eq!(decide(&head, &[(&owner, OwnerState::Absent)], false), Verdict::Delete(propagation));
        }
    }

    /// Otherwise naming an owner that does not exist in that namespace would delete an object.
    #[test]
    fn an_owner_is_looked_up_in_the_namespace_of_the_object() {
        let id = api::cluster::Id::new(5);
        let place = |namespace| ObjectKey {
            collection: Collection { group: "", plural: "configmaps" },
            cluster: id,
            namespace,
            name: "a",
        };
        let owner = |api_version: &str, kind: &str| Owner {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "o".to_owned(),
            ..Owner::default()
        };
        let key = |namespace, owner: &Owner| {
            owner_key(Kinds::built_in(), &place(namespace), owner)
                .map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned())
        };
        let id = id.to_string();
        let expected = |text: &str| Some(text.replace("ID", &id));
        assert_eq!(
            key(Some("shop"), &owner("apps/v1", "ReplicaSet")),
            expected("apps/replicasets/ID/shop/o")
        );
        assert_eq!(key(Some("shop"), &owner("v1", "Node")), expected("core/nodes/ID/-/o"));
        assert_eq!(key(None, &owner("v1", "Node")), expected("core/nodes/ID/-/o"));
        assert_eq!(key(None, &owner("apps/v1", "ReplicaSet")), None);
        assert_eq!(key(Some("shop"), &owner("nowhere.io/v1", "Thing")), None);
    }
}
