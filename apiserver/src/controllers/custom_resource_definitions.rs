//! Accepts the names of custom resource definitions, and deletes the objects of terminating ones.
//!
//! ```text
//!   written ─► names accepted, established ─► served ─► … ─► marked ─► its objects deleted ─► removed
//!           └► a name is in use: waits until it is free
//! ```
//!
//! Names must be unique within a group, so all definitions of a group are reconciled together. The objects of a
//! terminating kind are deleted as by a client, so their finalizers delay the definition.

use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use controller::queue::Outcome;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use storage::{Entry, Page};

use crate::controllers::definition_names;
use crate::controllers::definition_names::Taken;
use crate::controllers::object_head::ObjectHead;
use crate::controllers::write::{ReconcileError, amend};
use crate::controllers::{Controllers, delete_collection, record_revision};
use crate::keys::{Collection, ObjectKey};
use crate::kinds;
use crate::kinds::{DEFINITIONS, ESTABLISHED, Status};
use crate::objects::conditions;
use crate::objects::conditions::Condition;
use crate::objects::stored;
use crate::registry::strategy::{CLEANUP, TERMINATING};

/// A group in a logical cluster.
pub(super) type Group = (Id, Arc<str>);

/// Requeued after this long if clients keep changing the objects to delete.
const CONFLICT_REQUEUE_AFTER: Duration = Duration::from_millis(500);

/// The fields of a definition that show whether it needs reconciling. Most of a definition is schema, which is skipped.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
    #[serde(borrow, default)]
    status: Status<'a>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    names: &'a RawValue,
}

impl<'a> Outline<'a> {
    fn of(entry: &'a Entry) -> Option<Outline<'a>> {
        serde_json::from_slice(stored::json(entry)?).ok()
    }

    /// Reports whether the definition has all its names, and is established.
    fn is_settled(&self) -> bool {
        let accepted = self.status.accepted_names.is_some_and(|names| names.get() == self.spec.names.get());
        accepted && self.status.holds(ESTABLISHED) && self.status.holds(definition_names::ACCEPTED)
    }

    fn accepted(&self) -> Value {
        let names = self.status.accepted_names.and_then(|names| serde_json::from_str(names.get()).ok());
        names.unwrap_or_default()
    }
}

/// Reports whether the first list can skip a definition that is not terminating.
pub(super) fn is_settled(place: &ObjectKey<'_>, entry: &Entry) -> bool {
    let is_free =
        !definition_names::is_protected(kinds::group(place.name)) && !kinds::is_reserved(place.name);
    is_free && Outline::of(entry).is_some_and(|outline| outline.is_settled())
}

pub(super) async fn reconcile(
    controllers: &Controllers,
    (cluster, group): Group,
) -> Result<Outcome, ReconcileError> {
    let listed = controllers.store.list(DEFINITIONS.range(cluster, None), Page::default()).await?;
    record_revision(listed.revision);
    let ours =
        |entry: &Entry| ObjectKey::of(entry.key()).is_some_and(|place| kinds::group(place.name) == &*group);
    let entries: Vec<Entry> = listed.value.entries.into_iter().filter(ours).collect();
    let mut taken = Taken::built_in(controllers.kinds.common().resources(), &group);
    // Names in the status of a definition of a built-in kind do not count as taken. If they did, the definition would
    // conflict with itself, lose them, no longer conflict, get them back, and be written forever.
    let is_free =
        |entry: &&Entry| ObjectKey::of(entry.key()).is_some_and(|place| !kinds::is_reserved(place.name));
    let outlines = entries.iter().filter(is_free).filter_map(Outline::of);
    outlines.for_each(|outline| taken.add(&outline.accepted()));
    let mut outcome = Outcome::Done;
    for entry in &entries {
        let is_being_deleted = ObjectHead::of(entry).is_some_and(|head| head.is_being_deleted());
        if !is_being_deleted && ObjectKey::of(entry.key()).is_some_and(|place| is_settled(&place, entry)) {
            continue;
        }
        let Ok(mut definition) = stored::tree(entry) else { continue };
        if is_being_deleted {
            if empty(controllers, cluster, entry, &definition).await? > 0 {
                outcome = Outcome::RequeueAfter(CONFLICT_REQUEUE_AFTER);
            }
            continue;
        }
        definition_names::settle(&mut definition, &taken);
        taken.add(&definition["status"]["acceptedNames"]);
        amend(&*controllers.store, kinds::definitions_resource(), entry, |object| *object = definition)
            .await?;
    }
    Ok(outcome)
}

/// Deletes all objects of a kind, then removes the finalizer of its definition. Returns the number of objects that
/// other clients changed meanwhile.
async fn empty(
    controllers: &Controllers,
    cluster: Id,
    entry: &Entry,
    definition: &Value,
) -> Result<usize, ReconcileError> {
    let store = &*controllers.store;
    let finalizers = definition["metadata"]["finalizers"].as_array();
    if !finalizers.is_some_and(|finalizers| finalizers.iter().any(|name| name == CLEANUP)) {
        return Ok(0);
    }
    if !conditions::holds(definition, ESTABLISHED) {
        let condition =
            Condition::new(TERMINATING, false, "NeverEstablished", "resource was never established");
        return release(controllers, entry, &condition).await.map(|()| 0);
    }
    let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
    let collection =
        Collection { group: group.as_str().unwrap_or_default(), plural: plural.as_str().unwrap_or_default() };
    let range = collection.range(cluster, None);
    let kinds = controllers.kinds.fresh(cluster).await?;
    let conflicts = match kinds.find_collection(collection) {
        Some(resource) => delete_collection::delete_all(store, resource, range.clone()).await?,
        // A kind without a served version has no controllers that could remove finalizers, so its objects are removed
        // at once.
        None => {
            delete_collection::remove_all(&*controllers.inner_store, range.clone(), usize::MAX).await?;
            0
        }
    };
    let remaining = store.list(range, Page { limit: Some(1), ..Page::default() }).await?.value.entries;
    if remaining.is_empty() {
        let condition =
            Condition::new(TERMINATING, false, "InstanceDeletionCompleted", "removed all instances");
        return release(controllers, entry, &condition).await.map(|()| 0);
    }
    let message = "CustomResource deletion is in progress";
    let condition = Condition::new(TERMINATING, true, "InstanceDeletionInProgress", message);
    amend(store, kinds::definitions_resource(), entry, |object| conditions::set(object, &condition)).await?;
    Ok(conflicts)
}

/// Removes the finalizer of a definition without objects. It is deleted with that, unless it has another finalizer.
async fn release(
    controllers: &Controllers,
    entry: &Entry,
    condition: &Condition,
) -> Result<(), ReconcileError> {
    amend(&*controllers.store, kinds::definitions_resource(), entry, |object| {
        conditions::set(object, condition);
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|name| name != CLEANUP);
        }
    })
    .await
}
