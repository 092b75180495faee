//! Deletes the contents of terminating namespaces.
//!
//! ```text
//!   marked ─► pods ─► all other objects ─► conditions report what remains ─► removed
//! ```
//!
//! Pods are deleted first, because the objects they use (a Secret, a NetworkPolicy) must outlast them. An object with a
//! finalizer delays the namespace; the conditions report which ones. Each deletion in the namespace requeues it.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::queue::Outcome;
use openapi::catalog;
use openapi::catalog::resource_info::ResourceInfo;
use serde_json::{Value, json};
use storage::{Change, Entry, Expect, Page, Range, Store};

use crate::clusters::logical_cluster;
use crate::controllers::collections;
use crate::controllers::collections::StoredCollection;
use crate::controllers::delete_collection;
use crate::controllers::object_head::ObjectHead;
use crate::controllers::write::{ReconcileError, amend};
use crate::controllers::{Controllers, Namespace, record_revision};
use crate::objects::{metadata, stored};

/// Page size of a list.
const PAGE_ENTRIES: usize = 1000;
/// Requeued after this long if clients keep changing the objects to delete.
const CONFLICT_REQUEUE_AFTER: Duration = Duration::from_millis(500);
/// The finalizer in the spec of a namespace that is not empty.
const KUBERNETES: &str = "kubernetes";

/// The remaining objects of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Remaining {
    /// By resource and group, with a dot in between: `pods.` and `deployments.apps`.
    objects: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    /// The number of objects that another client changed meanwhile.
    conflicts: usize,
}

pub(super) async fn reconcile(
    controllers: &Controllers,
    namespace: Namespace,
) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.store;
    let (cluster, name) = &namespace;
    let key = logical_cluster::NAMESPACES.key(*cluster, None, name);
    let Some(entry) = store.get(&key).await?.value else { return Ok(Outcome::Done) };
    record_revision(entry.revision());
    let tree = stored::tree(&entry).unwrap_or_default();
    if !metadata::is_being_deleted(&tree) {
        return Ok(Outcome::Done);
    }
    let remaining = empty(controllers, &namespace).await?;
    match remaining.objects.is_empty() {
        true => finish(store, &entry, &tree).await?,
        false => {
            amend(store, resource(), &entry, |object| set_conditions(object, &remaining)).await?;
        }
    }
    // A deletion of one of the remaining objects requeues the namespace; a conflict does not.
    Ok(if remaining.conflicts > 0 { Outcome::RequeueAfter(CONFLICT_REQUEUE_AFTER) } else { Outcome::Done })
}

fn resource() -> &'static ResourceInfo {
    catalog::find("", "v1", "namespaces").expect("the catalogue has namespaces")
}

/// Deletes all objects that can be deleted now. Returns the remaining ones.
async fn empty(controllers: &Controllers, (cluster, name): &Namespace) -> Result<Remaining, ReconcileError> {
    let store = &*controllers.store;
    let mut collections =
        collections::all(&*controllers.inner_store, &*controllers.kinds.fresh(*cluster).await?).await?;
    collections.retain(|collection| collection.resource.as_ref().is_none_or(|resource| resource.namespaced));
    collections.sort_by_key(|collection| !collection.is("", "pods"));
    let mut remaining = Remaining::default();
    for collection in &collections {
        let range = collection.collection().range(*cluster, Some(name));
        match &collection.resource {
            Some(resource) => {
                remaining.conflicts += delete_collection::delete_all(store, resource, range.clone()).await?
            }
            // Controllers cannot remove the finalizers of a kind that is not served, so its objects are removed at
            // once.
            None => drop(
                delete_collection::remove_all(&*controllers.inner_store, range.clone(), usize::MAX).await?,
            ),
        }
        count(store, collection, range, &mut remaining).await?;
        if collection.is("", "pods") && !remaining.objects.is_empty() {
            break;
        }
    }
    Ok(remaining)
}

async fn count(
    store: &dyn Store,
    collection: &StoredCollection,
    range: Range,
    remaining: &mut Remaining,
) -> Result<(), ReconcileError> {
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    loop {
        let read = store.list(range.clone(), page.clone()).await?.value;
        for entry in &read.entries {
            let collection = collection.collection();
            *remaining.objects.entry(format!("{}.{}", collection.plural, collection.group)).or_default() += 1;
            for finalizer in ObjectHead::of(entry).and_then(|head| head.finalizers).into_iter().flatten() {
                *remaining.finalizers.entry(finalizer).or_default() += 1;
            }
        }
        page.after = read.entries.last().map(|entry| entry.key().clone());
        if !read.more {
            return Ok(());
        }
    }
}

/// Removes the finalizer of an empty namespace, and with it the namespace, unless another finalizer holds it.
async fn finish(store: &dyn Store, entry: &Entry, tree: &Value) -> Result<(), ReconcileError> {
    let others = |finalizers: &Value| -> Vec<Value> {
        let all = finalizers.as_array().into_iter().flatten();
        all.filter(|name| *name != KUBERNETES).cloned().collect()
    };
    let remaining_finalizers = others(&tree["spec"]["finalizers"]);
    if remaining_finalizers.is_empty() && !metadata::has_finalizers(tree) {
        let expect = Expect::Revision(entry.revision());
        store.commit(entry.key().clone(), expect, Change::Delete).await?;
        return Ok(());
    }
    amend(store, resource(), entry, |object| {
        object["spec"] = if remaining_finalizers.is_empty() {
            json!({})
        } else {
            json!({ "finalizers": remaining_finalizers })
        };
        set_conditions(object, &Remaining::default());
    })
    .await
}

/// Reports the remaining objects in the status. A condition keeps its transition time while its status is the same.
fn set_conditions(object: &mut Value, remaining: &Remaining) {
    let before = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let conditions = conditions(remaining).map(|(kind, state, reason, message)| {
        let same = before.iter().find(|condition| condition["type"] == kind && condition["status"] == state);
        let since = same.map_or_else(|| metadata::now().into(), |same| same["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message,
        })
    });
    object["status"]["conditions"] = conditions.into_iter().collect();
}

type Condition = (&'static str, &'static str, &'static str, String);

fn conditions(remaining: &Remaining) -> [Condition; 5] {
    let format_counts = |counts: &BTreeMap<String, usize>, verb: &str| {
        let each: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances")).collect();
        each.join(", ")
    };
    let content = match remaining.objects.is_empty() {
        true => ("False", "ContentRemoved", "All content successfully removed".to_owned()),
        false => {
            let objects = format_counts(&remaining.objects, "has");
            ("True", "SomeResourcesRemain", format!("Some resources are remaining: {objects}"))
        }
    };
    let finalizers = match remaining.finalizers.is_empty() {
        true => ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
        false => {
            let finalizers = format_counts(&remaining.finalizers, "in");
            let message = format!("Some content in the namespace has finalizers remaining: {finalizers}");
            ("True", "SomeFinalizersRemain", message)
        }
    };
    let well = |kind, reason, message: &str| (kind, "False", reason, message.to_owned());
    [
        well(
            "NamespaceDeletionDiscoveryFailure",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        well(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        well(
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("NamespaceContentRemaining", content.0, content.1, content.2),
        ("NamespaceFinalizersRemaining", finalizers.0, finalizers.1, finalizers.2),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_name_the_remaining_content_and_finalizers_of_a_namespace() {
        let remaining = Remaining {
            objects: [("configmaps.".to_owned(), 2), ("deployments.apps".to_owned(), 1)].into(),
            finalizers: [("a.b/c".to_owned(), 2)].into(),
            conflicts: 0,
        };
        let mut object = json!({ "status": { "phase": "Terminating", "conditions": [
            { "type": "NamespaceContentRemaining", "status": "True", "lastTransitionTime": "then" },
            { "type": "NamespaceFinalizersRemaining", "status": "False", "lastTransitionTime": "then" },
        ] } });
        set_conditions(&mut object, &remaining);
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let (content, finalizers) = (&conditions[3], &conditions[4]);
        assert_eq!(
            content["message"],
            "Some resources are remaining: configmaps. has 2 resource instances, \
             deployments.apps has 1 resource instances"
        );
        assert_eq!(
            finalizers["message"],
            "Some content in the namespace has finalizers remaining: a.b/c in 2 resource instances"
        );
        assert_eq!(content["lastTransitionTime"], "then");
        assert_ne!(finalizers["lastTransitionTime"], "then", "its status has changed");
    }
}
