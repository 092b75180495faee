//! Projects objects of mailboxes into the user's logical cluster.
//!
//! ```text
//!   mailbox                                        user's logical cluster
//!   Pod, Job, claim, slice, Event ──► object ────► the same, with the user's names and owners
//!   ReplicaSets of a Deployment ────► replica_sets ► one per template, of all mailboxes
//!   PhysicalClusters ───────────────► nodes ─────► a Node for each that is used
//!   metrics.k8s.io is served ───────► metrics ───► the same, if a used cluster serves it
//!      a Pod or claim is deleted ◄──── object ◄── a Pod or claim is deleted
//!           a claim is resized   ◄──── object ◄── a claim is resized
//! ```
//!
//! A projection names its source, so events of both requeue the source; only the ReplicaSets of a Deployment are
//! reconciled together, by Deployment. A source whose owner is not projected yet waits for an event of the owner. A
//! projection is deleted when its source is gone and the server confirms it: the cache alone is not enough.

mod lookup;
mod metrics;
mod nodes;
mod object;
mod origin;
mod replica_sets;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::Distribution;
use api::meta::metadata;
use api::names::{DOWNSTREAM_NAME, MAILBOX, PROJECTED, TRUE};
use controller::informer::{CachedObject, Key};
use controller::queue::Outcome;
use controller::remote::CallError;
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Splitter, WorkItem};
use crate::snapshot::ObjectRef;

pub(crate) use metrics::is_metrics_definition;
pub(crate) use nodes::nodes;

const DEPLOYMENTS: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";
const NAMESPACES: &str = "namespaces";

/// Reconciles the projection of an object in a mailbox, the ReplicaSets of a Deployment, or a projected ReplicaSet
/// without Deployment.
pub(crate) async fn reconcile(splitter: &Splitter, subject: &ObjectRef) -> Result<Outcome, CallError> {
    match &*subject.kind {
        DEPLOYMENTS => replica_sets::reconcile(splitter, subject).await,
        SETS if is_stray(splitter, subject) => replica_sets::remove_stray(splitter, subject).await,
        _ => object::reconcile(splitter, subject).await,
    }
}

/// Whether it is a projection in a user's logical cluster.
fn is_stray(splitter: &Splitter, subject: &ObjectRef) -> bool {
    let found = splitter.caches.by_resource(&subject.kind).and_then(|watched| watched.view.get(&subject.key));
    found.is_some_and(|found| ProjectionMetadata::of(&found).is_projection())
        && !splitter.caches.is_mailbox(subject.cluster())
}

/// The metadata of a projection: its source and its owners.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProjectionMetadata {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

impl ProjectionMetadata {
    fn of(object: &CachedObject) -> ProjectionMetadata {
        #[derive(Deserialize)]
        struct ProjectionObject {
            metadata: ProjectionMetadata,
        }
        object.parse::<ProjectionObject>().map(|object| object.metadata).unwrap_or_default()
    }

    /// Whether it is a projection, in a mailbox or in a user's logical cluster.
    fn is_projection(&self) -> bool {
        self.labels.get(PROJECTED).is_some_and(|value| value == TRUE)
    }

    /// The object in a mailbox that was projected.
    fn source(&self, kind: &Arc<str>) -> Option<ObjectRef> {
        let mailbox: Id = self.annotations.get(MAILBOX)?.parse().ok()?;
        let (namespace, name) = self.annotations.get(DOWNSTREAM_NAME)?.split_once('/')?;
        let key = Key { cluster: Some(mailbox), namespace: namespace.to_owned(), name: name.to_owned() };
        Some(ObjectRef { kind: kind.clone(), key })
    }

    /// The Deployment that controls a ReplicaSet.
    fn deployment(&self, set: &Key) -> Option<ObjectRef> {
        let owner = self.owner_references.iter().find(|owner| owner.controller)?;
        let key = Key { name: owner.name.clone(), ..set.clone() };
        (owner.kind == "Deployment").then(|| ObjectRef { kind: DEPLOYMENTS.into(), key })
    }
}

/// An event of an object in a mailbox that is projected, or owns a projected one.
pub(crate) fn handle_mailbox_object(splitter: &Splitter, kind: &Arc<str>, object: &CachedObject, gone: bool) {
    let subject = ObjectRef { kind: kind.clone(), key: object.key.clone() };
    splitter.projections.wake_waiting(&splitter.queue, &subject);
    if &**kind == NAMESPACES {
        return enqueue_namespace_projections(splitter, &subject.key, gone);
    }
    let metadata = ProjectionMetadata::of(object);
    if !metadata.is_projection() {
        return;
    }
    match metadata.deployment(&object.key).filter(|_| &**kind == SETS) {
        None => splitter.queue.add(WorkItem::Projected(subject)),
        Some(downstream) => {
            splitter.projections.set(&downstream, &object.key.name, gone);
            let here = origin::user_namespace(&splitter.caches, subject.cluster(), &subject.key.namespace);
            if let Some((cluster, namespace)) = here {
                let key = Key { cluster: Some(cluster), namespace, name: downstream.key.name.clone() };
                splitter.queue.add(WorkItem::Projected(ObjectRef { kind: downstream.kind.clone(), key }));
            }
        }
    }
}

/// An event of a namespace in a mailbox: its user's namespace can be resolved now, or it was deleted with its objects.
fn enqueue_namespace_projections(splitter: &Splitter, namespace: &Key, gone: bool) {
    let Some(cluster) = namespace.cluster else { return };
    let sources = splitter.projections.sources(cluster, Some(&namespace.name));
    sources.into_iter().filter(|_| gone).for_each(|source| splitter.queue.add(WorkItem::Projected(source)));
    let Some((user, here)) = origin::user_namespace(&splitter.caches, cluster, &namespace.name) else {
        return;
    };
    let deployments = splitter.caches.by_resource(DEPLOYMENTS);
    for key in deployments.iter().flat_map(|watched| watched.view.keys_within(user, Some(&here))) {
        splitter.queue.add(WorkItem::Projected(ObjectRef { kind: DEPLOYMENTS.into(), key }));
    }
}

/// An event of a projection in a user's logical cluster.
pub(crate) fn handle_projected(splitter: &Splitter, kind: &Arc<str>, object: &CachedObject, gone: bool) {
    let metadata = ProjectionMetadata::of(object);
    let subject = ObjectRef { kind: kind.clone(), key: object.key.clone() };
    if &**kind == "nodes" {
        return splitter.queue.add(WorkItem::Nodes(subject.cluster()));
    }
    if let Some(source) = metadata.source(kind) {
        splitter.projections.set_projection(&source, &object.key, gone);
        splitter.projections.wake_waiting(&splitter.queue, &source);
        return splitter.queue.add(WorkItem::Projected(source));
    }
    match metadata.deployment(&object.key).filter(|_| &**kind == SETS) {
        Some(deployment) => {
            splitter.projections.set(&deployment, &object.key.name, gone);
            splitter.projections.wake_waiting(&splitter.queue, &deployment);
            splitter.queue.add(WorkItem::Projected(deployment));
        }
        // A Deployment was deleted with propagation policy Orphan, and this ReplicaSet was left.
        None if &**kind == SETS && !gone => splitter.queue.add(WorkItem::Projected(subject)),
        None => {}
    }
}

/// An event of a record: its targets are the physical clusters that the logical cluster uses. None: the record was
/// deleted.
pub(crate) fn handle_record(splitter: &Splitter, key: &Key, record: Option<&Distribution>) {
    let targets = record.iter().flat_map(|record| &record.spec.targets);
    let names = targets.map(|target| target.cluster.clone()).collect();
    if let Some(cluster) = key.cluster.filter(|_| splitter.projections.record(key, names)) {
        splitter.queue.add(WorkItem::Nodes(cluster));
    }
}

/// A physical cluster became ready or unready, which decides whether deleted projections wait for it.
pub(crate) fn enqueue_mailbox(splitter: &Splitter, mailbox: Id) {
    let sources = splitter.projections.sources(mailbox, None);
    sources.into_iter().for_each(|source| splitter.queue.add(WorkItem::Projected(source)));
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    metadata::annotation(object, name).unwrap_or_default()
}
