//! Deletes objects whose owners are gone.
//!
//! ```text
//!   an owner is gone        ─► its dependents go, unless another owner still holds them
//!   `foregroundDeletion`    ─► the dependents that block go first, then the owner
//!     … of a circle         ─► the last object of the circle to be deleted stops being blocked, and so do the others
//!   `orphan`                ─► the dependents forget the owner, then it goes
//! ```
//!
//! An object is deleted only when every owner it names has been looked for in the store and not found. An owner of a
//! kind that is not served, or that an object in this namespace cannot have, is unknown: then the object
//! stays.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use controller::queue::Outcome;
use openapi::catalog::resource_info::ResourceInfo;
use serde_json::Value;
use storage::{Entry, Key};

use crate::controllers::Controllers;
use crate::controllers::object_head::{ObjectHead, Owner};
use crate::controllers::write::{ReconcileError, amend, delete};
use crate::keys::{Collection, ObjectKey};
use crate::kinds::Kinds;
use crate::registry::deletion::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};

/// While everything is walked through after a start.
const BEGINNING: Duration = Duration::from_millis(100);
/// Kinds come and go; an owner of an unknown one is looked for again after this long.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(300);
/// How many owners are read to find out whether an object waits for itself. ManagedFields are chains of three or four; the
/// bound keeps a chain of a hundred thousand, which a tenant can build, from costing its square in reads.
const CIRCLE_OWNERS_MAX: usize = 1000;

/// What an owner is to the object that names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    Solid,
    Gone,
    /// Leaving, and waiting for its dependents to go first.
    Waiting,
    Unknown,
}

/// The decision about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    Keep,
    KeepForNow,
    /// It stays with the owners it still has, and forgets these.
    Forget(Vec<String>),
    Delete(Propagation),
}

pub(super) async fn reconcile(controllers: &Controllers, key: Key) -> Result<Outcome, ReconcileError> {
    // Who has no dependents that we know of may have some that we have not come to yet.
    if !controllers.graph().is_whole {
        return Ok(Outcome::RequeueAfter(BEGINNING));
    }
    let store = &*controllers.seen;
    let Some(place) = ObjectKey::of(&key) else { return Ok(Outcome::Done) };
    let Some(resource) = resource(controllers, &place).await? else { return Ok(Outcome::Done) };
    let Some(entry) = store.get(&key).await?.value else { return Ok(Outcome::Done) };
    let Some(head) = ObjectHead::of(&entry) else { return Ok(Outcome::Done) };
    if head.is_leaving() {
        return leave(controllers, &resource, &place, &entry, &head).await;
    }
    let mut states = Vec::with_capacity(head.owners().len());
    for owner in head.owners() {
        states.push((owner, owner_state(controllers, &place, owner).await?));
    }
    let has_dependents = !dependents(controllers, &place, &head).is_empty();
    match decide(&head, &states, has_dependents) {
        Verdict::Keep => Ok(Outcome::Done),
        Verdict::KeepForNow => Ok(Outcome::RequeueAfter(UNKNOWN_AGAIN)),
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

/// The resource of an object.
async fn resource(
    controllers: &Controllers,
    place: &ObjectKey<'_>,
) -> Result<Option<Arc<ResourceInfo>>, ReconcileError> {
    let find = |kinds: &Kinds| kinds.find_collection(place.collection).cloned();
    Ok(controllers.kinds.find(place.cluster, find).await?)
}

fn decide(head: &ObjectHead, states: &[(&Owner, OwnerState)], has_dependents: bool) -> Verdict {
    let any = |wanted: OwnerState| states.iter().any(|(_, state)| *state == wanted);
    if any(OwnerState::Unknown) {
        return Verdict::KeepForNow;
    }
    if states.is_empty() || !(any(OwnerState::Gone) || any(OwnerState::Waiting)) {
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
    if controllers.graph().is_gone(&(place.cluster, owner.uid.as_str().into())) {
        return Ok(OwnerState::Gone);
    }
    let find = |kinds: &Kinds| owner_key(kinds, place, owner);
    let Some(key) = controllers.kinds.find(place.cluster, find).await? else {
        return Ok(OwnerState::Unknown);
    };
    let found = controllers.seen.get(&key).await?.value;
    Ok(match found.as_ref().and_then(ObjectHead::of).filter(|head| head.uid == owner.uid) {
        None => OwnerState::Gone,
        Some(head) if head.waits_for_dependents() => OwnerState::Waiting,
        Some(_) => OwnerState::Solid,
    })
}

/// The key of the owner of an object at `place`; none if there is no such kind, or an object that has no
/// namespace names an owner that has one.
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

/// An object that has been deleted waits for what its finalizers stand for.
async fn leave(
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
            // The deletion of the last one requeues this.
            true => return Ok(Outcome::Done),
            false => FOREGROUND,
        },
        _ => return Ok(Outcome::Done),
    };
    amend(&*controllers.seen, resource, entry, |object| {
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|name| name != finalizer);
        }
    })
    .await?;
    Ok(Outcome::Done)
}

/// Lets a dependent forget its owner.
async fn orphan(controllers: &Controllers, key: &Key, uid: &str) -> Result<(), ReconcileError> {
    let Some(entry) = controllers.seen.get(key).await?.value else { return Ok(()) };
    let Some(place) = ObjectKey::of(key) else { return Ok(()) };
    let Some(resource) = resource(controllers, &place).await? else { return Ok(()) };
    amend(&*controllers.seen, &resource, &entry, |object| forget(object, &[uid.to_owned()])).await
}

/// Whether dependents that block are still there. Those that are not leaving yet are asked to, and those that wait for
/// the object themselves are made not to block it.
async fn blocked(
    controllers: &Controllers,
    place: &ObjectKey<'_>,
    head: &ObjectHead,
) -> Result<bool, ReconcileError> {
    let mut blocking = Vec::new();
    for key in dependents(controllers, place, head) {
        let Some(entry) = controllers.seen.get(&key).await?.value else { continue };
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
        if !dependent.is_leaving() {
            controllers.garbage.add(entry.key().clone());
        }
    }
    Ok(is_blocked)
}

/// The uids of the objects that cannot go before this one has gone: the owners it blocks, the owners those block, and
/// so on. The object itself is among them if it is its own owner.
///
/// ```text
///   a ◄─ b ◄─ c ◄─ a      "◄─" is a blocking reference to an owner, and all three wait for their dependents:
///                         c, a and b wait for b, of which c is also what b waits for
/// ```
///
/// kube-controller-manager looks one step far, before it deletes a dependent. That misses a circle of which a client
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
        let found = controllers.seen.get(&key).await?.value.as_ref().and_then(ObjectHead::of);
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

/// The keys and uids of the owners that wait for this object if they are deleted in the foreground.
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
    let known = find(&controllers.kinds.of(place.cluster));
    if known.len() == blocked.len() {
        return Ok(known);
    }
    Ok(find(&*controllers.kinds.fresh(place.cluster).await?))
}

/// Makes a dependent no longer block this owner.
async fn unblock(controllers: &Controllers, entry: &Entry, uid: &str) -> Result<(), ReconcileError> {
    let Some(place) = ObjectKey::of(entry.key()) else { return Ok(()) };
    let Some(resource) = resource(controllers, &place).await? else { return Ok(()) };
    tracing::debug!(key = ?entry.key(), owner = uid, "breaking a cycle of owner references");
    amend(&*controllers.seen, &resource, entry, |object| {
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
    fn an_object_goes_only_when_every_owner_is_known_to_be_gone() {
        use OwnerState::{Gone, Solid, Unknown, Waiting};
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
        check(&[Gone], false, Verdict::Delete(Propagation::Background));
        check(&[Gone, Gone], true, Verdict::Delete(Propagation::Background));
        check(&[Gone, Solid], false, forget(&["0"]));
        check(&[Solid, Waiting, Gone], false, forget(&["1", "2"]));
        check(&[Waiting], false, Verdict::Delete(Propagation::Background));
        check(&[Waiting], true, Verdict::Delete(Propagation::Foreground));
        check(&[Unknown], false, Verdict::KeepForNow);
        check(&[Gone, Unknown], false, Verdict::KeepForNow);
        check(&[Solid, Unknown], false, Verdict::KeepForNow);
    }

    #[test]
    fn what_was_asked_for_when_it_was_deleted_before_still_counts() {
        let owner = Owner::default();
        for (finalizer, propagation) in [(ORPHAN, Propagation::Orphan), (FOREGROUND, Propagation::Foreground)]
        {
            let head = ObjectHead { finalizers: Some(vec![finalizer.to_owned()]), ..ObjectHead::default() };
            assert_eq!(decide(&head, &[(&owner, OwnerState::Gone)], false), Verdict::Delete(propagation));
        }
    }

    /// An object could otherwise be deleted by naming an owner in a namespace where it is not.
    #[test]
    fn an_owner_is_looked_for_where_the_object_is() {
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
